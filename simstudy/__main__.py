"""The command ``simstudy``, also as ``python -P -m simstudy``: signals, standard streams, and unexpected errors."""

import os
import sys

if __name__ == "__main__" and sys.path[0] == os.getcwd():
    del sys.path[0]  # without -P the first place to look for modules

import contextlib
import gc
import platform
import signal
import threading
import traceback
from collections.abc import Sequence
from typing import Any

from simstudy.errors import UserError, printable

EXIT_USER_ERROR = 2
EXIT_DEFECT = 70  # EX_SOFTWARE of sysexits.h
EXIT_INTERRUPTED = 130
_received: list[int] = []


class Interrupted(BaseException):
    """Ctrl-C, a closed terminal, or the SIGTERM by which a batch system ends a job."""


def main() -> None:
    """Run the command line; in all cases end with one line and a specific exit code."""
    # With the default threshold of 700 new objects, garbage collection takes a sixth of a short run.
    gc.set_threshold(1_000_000)
    catch_signals()
    open_standard_streams()
    threading.excepthook = sys.unraisablehook = _caught_elsewhere
    code = _outcome()
    # While Python exits, exceptions cannot be caught; a second Ctrl-C ends the process at once.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    # Without a last garbage collection, which would take a fifth of a short run.
    gc.freeze()
    sys.exit(code)


def command(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; a mistake of the user becomes a message and exit code 2."""
    from simstudy.commands import app, typer

    os.environ["MPLBACKEND"] = "agg"  # for figures in files; that of Jupyter may not be installed here
    try:
        return int(typer.main.get_command(app)(arguments, prog_name="simstudy", standalone_mode=False) or 0)
    except UserError as error:
        lines = error.args
    except typer.TyperException as error:
        place = getattr(getattr(error, "ctx", None), "command_path", "simstudy")
        lines = (f"{error.format_message()} (see {place} --help)",)
    except MemoryError:
        lines = ("this machine has not enough memory; simstudy plan predicts the memory of a study",)
    from simstudy.report.terminal import fail

    fail(*lines)
    return EXIT_USER_ERROR


def catch_signals() -> None:
    """Let signals that end a process raise `Interrupted`; under ``nohup`` SIGHUP stays ignored."""
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _interrupt)


def _interrupt(number: int, _: Any) -> None:
    _received.append(number)
    raise Interrupted


def open_standard_streams() -> None:
    """Replace closed streams by the null device; otherwise output would go to the next opened file."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number, which is this one
            setattr(sys, name, os.fdopen(descriptor, "r" if descriptor == 0 else "w", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _outcome() -> Any:
    try:
        return command()
    except SystemExit as ended:
        return ended.code
    except BaseException as error:
        # An import, or code in C, may replace the exception of a signal by another.
        if _received or isinstance(error, (Interrupted, KeyboardInterrupt)):
            _write_stderr("interrupted; finished batches are stored: run the same command again to continue")
            return EXIT_INTERRUPTED
        _report_defect(error)
        return EXIT_DEFECT


def _report_defect(error: BaseException) -> None:
    """Print a defect of the program with its traceback, or that a library is missing."""
    if isinstance(error, ImportError):
        _write_stderr(f"error: simstudy is not installed as it should be ({error!a}); install it again")
        return
    text = "".join(traceback.format_exception(error))
    first = "error: a defect of simstudy, not a mistake of yours; please report it with these lines"
    _write_stderr(first, *f"{sys.argv}\nPython {sys.version} on {platform.platform()}\n{text}".splitlines())


def _write_stderr(*lines: str) -> None:
    """Print lines without further imports, as an import may have been interrupted or have failed."""
    with contextlib.suppress(OSError):
        os.write(2, "".join(f"{printable(line)}\n" for line in lines).encode())


def _caught_elsewhere(event: Any) -> None:
    """Handle exceptions of threads, callbacks and destructors."""
    if isinstance(event.exc_value, Interrupted):
        threading.Timer(0.1, os.kill, (os.getpid(), _received[-1])).start()
    elif not sys.is_finalizing() and not isinstance(event.exc_value, (SystemExit, type(None))):
        _report_defect(event.exc_value)


if __name__ == "__main__":
    main()
