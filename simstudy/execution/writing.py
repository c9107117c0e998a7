"""Writing behind the work: a thread that stores what others have computed, all that waits at once."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

from simstudy.errors import UserError

T = TypeVar("T")
GATHER_SECONDS = 0.05
"""How long things may wait for others that are written with them: the work that a kill may cost."""
MOST_WAITING = 1 << 10
"""Things that may wait before whoever adds another has to wait, too."""


class Writer(Generic[T]):
    """Hands what is added to a function, in order and many at a time, in a thread; use it as a context manager.

    What it was given is written when the block ends, however it ends.

    Parameters
    ----------
    write
        The function.  What it raises, the next `add`, `settle` or the end of the block does, and no more is written.
    """

    def __init__(self, write: Callable[[list[T]], None]) -> None:
        self._write = write
        self._waiting: list[T] = []
        self._changed = threading.Condition()
        self._busy = self._urgent = self._closed = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="writer", daemon=True)

    def __enter__(self) -> Writer[T]:
        self._thread.start()
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        with self._changed:
            self._closed = self._urgent = True
            self._changed.notify_all()
        self._thread.join()
        if self._failure is not None and error is None:
            raise self._failure

    def add(self, thing: T) -> None:
        """Let a thing be written soon."""
        with self._changed:
            self._raise_failure()
            self._waiting.append(thing)
            if len(self._waiting) == 1:
                self._changed.notify_all()
            full = len(self._waiting) >= MOST_WAITING
        if full:
            self.settle()

    def settle(self) -> None:
        """Wait until all that was added is written."""
        with self._changed:
            self._urgent = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._failure is not None or not (self._waiting or self._busy))
            self._urgent = self._closed
            self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        while self._failure is None:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                self._changed.wait_for(lambda: self._urgent, GATHER_SECONDS)
                taken, self._waiting = self._waiting, []
                self._busy = bool(taken)
            if not taken:
                return
            try:
                self._write(taken)
            except BaseException as failure:  # whatever it is, it belongs to those who wait
                self._failure = failure
            with self._changed:
                self._busy = False
                self._changed.notify_all()


def flush_to_disk(paths: Iterable[Path]) -> None:
    """Wait until files and folders are on disk, one after another.

    Raises
    ------
    UserError
        If the disk does not take them.
    """
    for path in paths:
        try:
            opened = os.open(path, os.O_RDONLY)
            try:
                os.fsync(opened)
            finally:
                os.close(opened)
        except OSError as error:
            # Some network file systems flush files alone; what names them is then theirs to keep.
            if error.errno != errno.EINVAL or not path.is_dir():
                raise unwritable(path, error) from error


def unwritable(path: Path, error: Exception) -> UserError:
    """Return what to tell of a path that cannot be written."""
    reason = getattr(error, "strerror", None) or error
    return UserError(
        f"{path}: cannot be written ({reason}); free space, mend permissions or choose another --output, and run again"
    )


def require_writable(folder: Path) -> None:
    """Refuse a folder that cannot be written before anything is computed for it."""
    if "\0" in str(folder):
        raise UserError(f"output = {str(folder)!r}: no name of a folder; choose another --output")
    place = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    if not place.is_dir():
        raise UserError(f"{place}: cannot be written (a file is in the way); move it or choose another --output")
    if not os.access(place, os.W_OK | os.X_OK):
        raise UserError(f"{place}: cannot be written (no permission); mend permissions or choose another --output")
