"""What is left when everything foreseen is dealt with: a defect, told in one line, its traceback in a private log."""

from __future__ import annotations

import contextlib
import platform
import sys
import tempfile
import traceback
import uuid

from simstudy.errors import UserError
from simstudy.execution.folder import Folder
from simstudy.report.terminal import fail, warn

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
