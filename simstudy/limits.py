"""A limit on the time of a call."""

import contextlib
import ctypes
import threading
import time
from collections.abc import Iterator


@contextlib.contextmanager
def within(seconds: float | None) -> Iterator[None]:
    """Raise TimeoutError in this thread after some seconds on the clock: in Python code at once, else at its end."""
    if seconds is None:
        yield
        return
    start, lock, over = time.perf_counter(), threading.Lock(), False
    thread, raise_in = ctypes.c_ulong(threading.get_ident()), ctypes.pythonapi.PyThreadState_SetAsyncExc

    def interrupt() -> None:
        with lock:
            if not over:
                raise_in(thread, ctypes.py_object(TimeoutError))

    timer = threading.Timer(seconds, interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with lock:
            over = True
    # What was asked for is raised by now.  Taking it back would leave an interpreter in which profilers hang.
    if time.perf_counter() - start > seconds:
        raise TimeoutError
