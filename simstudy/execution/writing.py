"""Writing behind the work: a thread that stores what others have computed, all that waits at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

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
