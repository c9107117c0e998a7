"""The one way by which text reaches a terminal: no markup in it, control characters spelt out, whoever wrote it.

What is left when everything foreseen is dealt with is a defect: one line here, and its traceback in a private log.
"""

import contextlib
import importlib.util
import os
import platform
import sys
import tempfile
import traceback
import uuid
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from rich.console import Console, RenderableType
from rich.progress import Progress, ProgressColumn
from rich.table import Table
from rich.text import Text

from simstudy.errors import UserError, printable
from simstudy.execution.folder import Folder

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
SPEED_SECONDS = 600.0
"""Time over which the speed of a run is estimated."""


def say(*what: str | Table) -> None:
    """Print lines to standard output, none of them wrapped, and tables; a newline inside of a line is spelt out."""
    for each in what:
        _print(_output, entry(each) if isinstance(each, str) else each, soft_wrap=isinstance(each, str))


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


MAX_SHOWN = 200
"""Characters of an exception that are shown; the log has all of them."""
_study: list[Folder] = []


def log_beside(folder: Folder) -> None:
    """Let the logs of this process go to the folder of a study, where they outlive the job of a cluster."""
    _study[:] = [folder]


def tell(error: BaseException) -> None:
    """Say in one line that the program has a defect, and where the traceback is: in a file of mode 0600."""
    text = "".join(traceback.format_exception(error))
    kind = f"{type(error).__name__}: {error}"
    brief = kind if len(kind) <= MAX_SHOWN else f"{kind[:MAX_SHOWN]}..."
    path = _logged(f"{sys.argv}\nPython {sys.version} on {platform.platform()}\n\n{text}")
    fail(f"a defect of simstudy, not of what you asked for ({brief}); please report it, with {path or 'these lines'}")
    if path is None:
        warn(*text.splitlines())


def _logged(text: str) -> str | None:
    for folder in _study:
        # A command that failed before it wrote anything leaves no folder behind.
        with contextlib.suppress(UserError):
            if folder.path.is_dir():
                content = text.encode(errors="backslashreplace")
                return str(folder.write(f"logs/defect-{uuid.uuid4().hex}.log", content, mode=0o600))
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="defect-", suffix=".log", delete=False, encoding="utf-8", errors="backslashreplace"
        ) as file:
            file.write(text)
        return file.name
    except OSError:
        return None
