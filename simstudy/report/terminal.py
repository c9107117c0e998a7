"""The one way by which text reaches a terminal: no markup in it, control characters spelt out, whoever wrote it."""

import contextlib
import importlib.util
import os
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from rich.console import Console, RenderableType
from rich.progress import Progress, ProgressColumn
from rich.table import Table
from rich.text import Text

from simstudy.errors import UserError, printable

_T = TypeVar("_T")


class _Plain(Console):
    """A console for which text is text, in lines as in cells of tables; what nobody reads any more is dropped."""

    def render_str(self, text: str, *, style: Any = "", justify: Any = None, overflow: Any = None, **_: Any) -> Text:
        return Text(printable(text), style=style, justify=justify, overflow=overflow)

    def on_broken_pipe(self) -> None:
        # A run is not lost with the pager that showed it; and Python flushes the rest of the buffer when it ends.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


_output, _errors = _Plain(), _Plain(stderr=True)
SPEED_SECONDS = 600.0  # over which the speed of a run is estimated


def say(*what: str | Table) -> None:
    """Print lines to standard output, none of them wrapped, and tables; a newline inside of a line is spelt out."""
    lines = [each for each in what if isinstance(each, str)]
    for each in [entry(*lines)] if len(lines) == len(what) > 1 else what:  # one by one takes five times as long
        _print(_output, entry(each) if isinstance(each, str) else each, soft_wrap=not isinstance(each, Table))


def warn(*lines: str) -> None:
    """Print lines to standard error."""
    _print(_errors, *map(entry, lines))


def fail(*lines: str) -> None:
    """Print to standard error why a command ends."""
    _print(_errors, Text.assemble(("error: ", "bold red"), entry(*lines)))


def entry(*lines: str | tuple[str, str]) -> Text:
    """Return text of several lines, such as an entry of a table: each a string, or a pair of one and its style."""
    pairs = ((line, "") if isinstance(line, str) else line for line in lines)
    return Text("\n").join(Text(printable(text), style) for text, style in pairs)


def counted(number: int, what: str) -> str:
    """Return "1 cell", "2 cells"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def is_watched() -> bool:
    """Return true if standard output is a terminal, or a notebook that can show a bar."""
    return _output.is_terminal or (_output.is_jupyter and importlib.util.find_spec("ipywidgets") is not None)


def bar(*columns: ProgressColumn, quiet: bool = False) -> Progress:
    """Return a progress bar on standard output, which shows nothing unless somebody watches that."""
    return Progress(*columns, console=_output, disable=quiet or not is_watched(), speed_estimate_period=SPEED_SECONDS)


def track(tasks: Iterable[_T], total: int) -> Iterator[_T]:
    """Yield tasks, and show how far they are."""
    with bar(*Progress.get_default_columns()) as progress:
        yield from progress.track(tasks, total, description="batches")


def _print(console: Console, *what: RenderableType, soft_wrap: bool = True) -> None:
    try:
        console.print(*what, sep="\n", soft_wrap=soft_wrap)
    except OSError as error:
        console.on_broken_pipe()
        # Nobody can be told that errors cannot be told.
        if console is _output:
            raise UserError(f"standard output cannot be written ({error.strerror}); mend where it goes") from None
