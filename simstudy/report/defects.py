"""What is left when everything foreseen is dealt with: a defect, told in one line, its traceback in a private log."""

from __future__ import annotations

import platform
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

from simstudy.report.terminal import fail, warn

MAX_SHOWN = 200
"""Characters of an exception that are shown; the log has all of them."""
_study: list[Path] = []


def log_beside(folder: Path) -> None:
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
    for folder in _folders():
        try:
            with tempfile.NamedTemporaryFile(
                "w", prefix="defect-", suffix=".log", dir=folder, delete=False, encoding="utf-8",
                errors="backslashreplace",
            ) as file:  # fmt: skip
                file.write(text)
            return file.name
        except OSError:
            continue
    return None


def _folders() -> Iterator[Path | None]:
    """Folders to try; None stands for that of the system for temporary files."""
    for folder in _study:
        # A command that failed before it wrote anything leaves no folder behind.
        if folder.is_dir():
            (folder / "logs").mkdir(exist_ok=True)
            yield folder / "logs"
    yield None
