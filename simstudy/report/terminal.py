"""Output to a terminal: text is never read as markup, and control characters are escaped."""

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
    """A console that reads no markup in text, and discards output once its reader has closed the pipe."""

    def render_str(self, text: str, *, style: Any = "", justify: Any = None, overflow: Any = None, **_: Any) -> Text:
        return Text(printable(text), style=style, justify=justify, overflow=overflow)

    def on_broken_pipe(self) -> None:
        # A run goes on if its pager is closed.  Python flushes the rest of the buffer when it ends.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


_output, _errors = _Plain(), _Plain(stderr=True)
SPEED_SECONDS = 600.0  # over which the speed of a run is estimated


def say(*what: str | Table) -> None:
    """Print lines, which are not wrapped, and tables to standard output; a newline inside a line is escaped."""
    lines = [each for each in what if isinstance(each, str)]
    for each in [entry(*lines)] if len(lines) == len(what) > 1 else what:  # one by one takes five times as long
        _print(_output, entry(each) if isinstance(each, str) else each, soft_wrap=not isinstance(each, Table))


def warn(*lines: str) -> None:
    """Print lines to standard error."""
    _print(_errors, *map(entry, lines))


def fail(*lines: str) -> None:
    """Print lines to standard error after "error: "."""
    _print(_errors, Text.assemble(("error: ", "bold red"), entry(*lines)))


def entry(*lines: str | tuple[str, str]) -> Text:
    """Return text of several lines, such as an entry of a table; a line is a string or a pair (string, style)."""
    pairs = ((line, "") if isinstance(line, str) else line for line in lines)
    return Text("\n").join(Text(printable(text), style) for text, style in pairs)


def counted(number: int, what: str) -> str:
    """Return a number with a noun: "1 cell", "2 cells"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def is_watched() -> bool:
    """Return true if standard output is a terminal or a notebook that can show a progress bar."""
    return _output.is_terminal or (_output.is_jupyter and importlib.util.find_spec("ipywidgets") is not None)


def bar(*columns: ProgressColumn, quiet: bool = False) -> Progress:
    """Return a progress bar on standard output, which is hidden unless `is_watched`."""
    return Progress(*columns, console=_output, disable=quiet or not is_watched(), speed_estimate_period=SPEED_SECONDS)


def track(tasks: Iterable[_T], total: int) -> Iterator[_T]:
    """Yield tasks, and show the share that is done."""
    with bar(*Progress.get_default_columns()) as progress:
        yield from progress.track(tasks, total, description="batches")


def _print(console: Console, *what: RenderableType, soft_wrap: bool = True) -> None:
    try:
        console.print(*what, sep="\n", soft_wrap=soft_wrap)
    except OSError as error:
        console.on_broken_pipe()
        # If standard error fails, nothing can be reported.
        if console is _output:
            raise UserError(f"standard output cannot be written ({error.strerror}); redirect it elsewhere") from None
