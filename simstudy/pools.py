"""Executors of `concurrent.futures`: the caller's own, threads that end with their process, backends of joblib."""

import importlib.util
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import ExitStack
from multiprocessing.pool import ThreadPool
from typing import Any

from simstudy.errors import UserError


def joblib_backends() -> tuple[str, ...]:
    """Return the names of the backends of joblib, those that were registered too; none without joblib."""
    if importlib.util.find_spec("joblib") is None:
        return ()
    from joblib.parallel import BACKENDS

    return tuple(BACKENDS)


def of_caller(executor: Any, held: ExitStack, otherwise: int) -> tuple[Any, int]:
    """Return an executor of the caller's or a client of Dask, which stays open, and its workers if it tells them."""
    if hasattr(executor, "get_client"):  # a cluster
        executor = held.enter_context(executor.get_client())
    if isinstance(executor, Executor) or (hasattr(executor, "nthreads") and not executor.asynchronous):
        return executor, getattr(executor, "_max_workers", None) or otherwise
    known = "a Client (not asynchronous) or cluster of Dask, an executor of concurrent.futures, or a word"
    raise UserError(f"executor of type {type(executor).__name__}: give {known}")


class Threads(Executor):
    """Threads that end with their process; with a backend of joblib each waits for a call that runs there."""

    def __init__(self, count: int, backend: str = "threads") -> None:
        self._pool, self._max_workers, self._backend = ThreadPool(count), count, backend

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **_: Any) -> Future:
        """Return the future of a call."""
        future: Future = Future()

        def there() -> Any:
            import joblib

            return joblib.Parallel(self._max_workers, backend=self._backend)([joblib.delayed(function)(*arguments)])[0]

        call, given = (function, arguments) if self._backend in ("serial", "threads") else (there, ())
        self._pool.apply_async(call, given, {}, future.set_result, future.set_exception)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads, whatever they do."""
        self._pool.terminate()
