"""Executors of batches: threads, processes, GPUs, a running scheduler of Dask, and `jobs` of a batch system.

Whoever reaches a scheduler or a worker of Dask can run code as its user.  So what is started here talks over TLS, with
certificates of its own that end with it.
"""

import asyncio
import concurrent.futures
import contextlib
import importlib.util
import logging
import math
import os
import re
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Future
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import psutil
from threadpoolctl import threadpool_limits

from simstudy.errors import UserError, require_extra
from simstudy.execution.jobs import CHILDREN, Jobs, job_cluster

MAX_WORKERS = 1024
"""Most workers on one machine: a system that can start no more threads would end the run as a defect."""
COUNT_SECONDS, WORKER_SECONDS, BUSY_SECONDS = 1.0, 30, 60.0
"""Time after which workers of a scheduler are counted again; how long it may have none, or be too busy to answer."""
ONE_ENGINE = "install the same simstudy and libraries there, and use nodes of one processor type"
_HERE = r"inproc://.*|tcp://(127(\.[0-9]{1,3}){3}|localhost|\[::1\])(:[0-9]+)?"
"""Addresses on this machine, to which nobody else on the network connects."""
_GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
"""Control groups of this process, and what the system says of them."""
_FILES = ("memory.max", "memory.current", "file"), ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache")
"""Of a control group, version 2 and 1: its limit, what is used, and how much of that can be given back."""


def available() -> int:
    """Return the bytes that this process may still take: of the machine, its control groups and its address space."""
    free = [psutil.virtual_memory().available]
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        free.append(limit - psutil.Process().memory_info().vms)
    with contextlib.suppress(OSError):
        for line in _GROUPS[0].read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            root = _GROUPS[1] / controllers
            for group in (root / path[1:], *(root / path[1:]).parents):
                for most, used, cached in _FILES:
                    with contextlib.suppress(OSError, ValueError):  # no such file; no limit, which is "max"
                        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
                        taken = int((group / used).read_text()) - int(stat[cached])
                        free.append(int((group / most).read_text()) - taken)
    return min(free)


class Executor:
    """An executor of `concurrent.futures`; others have the same methods."""

    device = "cpu"

    def __init__(self, pool: Any, count: int) -> None:
        self._pool, self._count = pool, count
        self.aside: list[str] = []

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future:
        """Return the future of a call."""
        return self._pool.submit(function, *arguments)

    def workers(self) -> int:
        """Return how many calls run at once."""
        return self._count

    def memory(self) -> float:
        """Return the bytes that the workers may still take together."""
        return available()

    def result(self, future: Future) -> Any:
        """Result of a call that has ended; UserError if that was lost."""
        try:
            return future.result()
        except BrokenExecutor as error:
            raise UserError(f"{type(self._pool).__name__}: {error} Run again: finished batches are stored") from None

    def wait_for_workers(self) -> None:
        """Do nothing, or raise UserError if there have been no workers for long."""

    def set_aside(self, worker: Any) -> None:
        """Submit nothing to a worker of another engine any more, and say so in ``aside``; UserError if none is left."""
        raise UserError(f"a worker on {worker.host} would give other bits (engine {worker.engine}); {ONE_ENGINE}")


class DaskExecutor(Executor):
    """A client of Dask; ``without_workers`` is called while it has none."""

    def __init__(self, client: Any, device: str = "cpu", without_workers: Callable[[], None] | None = None) -> None:
        super().__init__(client, 0)
        self.device, self._client, self._without_workers = device, client, without_workers
        self._address = client.scheduler.address
        self._counted, self._last_seen = -math.inf, time.monotonic()
        self._unlike: set[str] = set()
        self._alike: list[str] | None = None

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future:
        """Return the future of a call."""
        task = self._client.submit(function, *arguments, pure=False, workers=self._alike)

        async def outcome() -> Any:
            return await task

        # Dask's own executor takes an outcome for an error if its worker is lost just after it was fetched.
        return asyncio.run_coroutine_threadsafe(outcome(), self._client.loop.asyncio_loop)

    def workers(self) -> int:
        """Return how many calls run at once, by the threads that the scheduler had within the last second."""
        if time.monotonic() - self._counted >= COUNT_SECONDS:
            try:
                threads = self._client.nthreads()
            except OSError:  # also a connection that is closed, or that was not taken in time
                raise self._lost() from None
            mine = {address: count for address, count in threads.items() if address not in self._unlike}
            self._alike = sorted(mine) if self._unlike and mine else self._alike
            self._count, self._counted = sum(mine.values()), time.monotonic()
        return self._count

    def memory(self) -> float:
        """Return the bytes that workers may take together, if all had the limit of the smallest."""
        workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
        limits = [each["memory_limit"] / each["nthreads"] for each in workers if each["memory_limit"]]
        here = [available()] if all(each["host"] == "127.0.0.1" for each in workers) else []
        return min([*here, *(limit * self.workers() for limit in limits)], default=math.inf)

    def result(self, future: Future) -> Any:
        """Result of a call that has ended; UserError if its workers died or the scheduler is lost."""
        from distributed import KilledWorker
        from distributed.comm import CommClosedError

        self._last_seen = time.monotonic()
        try:
            return future.result()
        except KilledWorker:
            remedy = "start fewer workers, give them more memory or lower batch_size, and run again: finished batches"
            said = "workers died, several in a row, while they computed one batch (out of memory?)"
            raise UserError(f"{said}; {remedy} are stored") from None
        except (CancelledError, CommClosedError):
            raise self._lost() from None

    def _lost(self) -> UserError:
        remedy = "start it again, and run again: finished batches are stored"
        return UserError(f"executor = {self._address!r}: the Dask scheduler is lost; {remedy}")

    def wait_for_workers(self) -> None:
        """Raise UserError if there have been no workers for long and none will come."""
        if self.workers():
            self._last_seen = time.monotonic()
        elif time.monotonic() - self._last_seen > WORKER_SECONDS:
            if self._without_workers is None:
                raise no_workers(self._address)
            self._without_workers()
            self._last_seen = time.monotonic()

    def set_aside(self, worker: Any) -> None:
        """Submit nothing to a worker of another engine any more, and say so in ``aside``; UserError if none is left."""
        said = f"a worker on {worker.host} would give other bits (engine {worker.engine})"
        if worker.address not in self._unlike:
            self._unlike.add(worker.address)
            self._counted = -math.inf
            self.aside.append(f"{said} and computed nothing; {ONE_ENGINE}")
        if not self.workers():
            raise UserError(f"{said}, and no other worker is left; {ONE_ENGINE}")


class Threads(Executor):
    """Threads that end with their process; with a backend of joblib each waits for a call that runs there."""

    def __init__(self, pool: ThreadPool, count: int, backend: str = "") -> None:
        super().__init__(pool, count)
        self._backend = backend

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future:
        """Return the future of a call."""
        future: Future = Future()

        def there() -> Any:
            import joblib

            return joblib.Parallel(self._count, backend=self._backend)([joblib.delayed(function)(*arguments)])[0]

        call, given = (there, ()) if self._backend else (function, arguments)
        self._pool.apply_async(call, given, {}, future.set_result, future.set_exception)
        return future


@contextlib.contextmanager
def open_executor(
    executor: Any,
    workers: int | None = None,
    trust_network: bool = False,
    claim: Callable[[float, int], None] = lambda *_: None,
) -> Iterator[Executor]:
    """Open an executor; ``claim`` takes its memory and workers, and locks the folder before a job or key is made."""
    if workers is not None and not (type(workers) is int and 1 <= workers <= MAX_WORKERS):
        raise UserError(f"workers = {workers!r}: must be a whole number from 1 to {MAX_WORKERS}; leave it out for all")
    if isinstance(executor, Jobs) or (isinstance(executor, str) and re.match("processes|cuda|.*://", executor)):
        require_extra(f"executor = {str(executor)!r}", "distributed", "cluster", ", or choose executor = 'threads'")
    count = workers or os.cpu_count() or 1
    # Threads of the numerical library would compete with workers, and last bits depend on their number.
    with threadpool_limits(1), contextlib.ExitStack() as held:
        if isinstance(executor, Jobs):
            client, require_live = held.enter_context(job_cluster(executor, claim))
            yield DaskExecutor(client, without_workers=require_live)
            return
        if executor in ("serial", "threads"):
            count = 1 if executor == "serial" else count
            opened: Executor = Threads(held.enter_context(ThreadPool(count)), count)
        elif executor == "processes":
            opened = DaskExecutor(held.enter_context(local_client({str(number): {} for number in range(count)}, 1)))
        elif executor == "cuda":
            opened = DaskExecutor(held.enter_context(local_client(*gpu_environments(workers))), "cuda")
        elif not isinstance(executor, str):  # of the caller's, which stays open
            own = held.enter_context(executor.get_client()) if hasattr(executor, "get_client") else executor
            if hasattr(own, "nthreads") and not own.asynchronous:
                opened = DaskExecutor(own)
            elif isinstance(own, concurrent.futures.Executor):
                opened = Executor(own, getattr(own, "_max_workers", None) or count)
            else:
                known = "a Client (not asynchronous) or cluster of Dask, an executor of concurrent.futures, or a word"
                raise UserError(f"executor of type {type(own).__name__}: give {known}")
        elif "://" in executor:
            opened = DaskExecutor(held.enter_context(remote_client(executor, trust_network)))
        else:
            joblib = importlib.import_module("joblib.parallel") if importlib.util.find_spec("joblib") else None
            if joblib is None or executor not in joblib.BACKENDS:
                known = "serial, threads, processes, cuda, a backend of joblib, or an address such as tls://host:8786"
                raise UserError(f"executor = {executor!r}: unknown; choose {known}")
            opened = Threads(held.enter_context(ThreadPool(count)), count, executor)
            opened.result(opened.submit(int))  # joblib makes its processes in steps; no second thread may come between
        claim(opened.memory(), opened.workers())
        yield opened


def no_workers(address: str) -> UserError:
    """Return the error of a scheduler that had no workers for long."""
    said = f"executor = {address!r}: the scheduler has had no workers for {WORKER_SECONDS} s"
    return UserError(f"{said}; start some (dask worker {address}), and run again: finished batches are stored")


def gpu_environments(workers: int | None) -> tuple[dict[str, dict[str, str]], int]:
    """Return the environments of processes that each see one GPU alone, by its name, and the threads of each."""
    from simstudy.kernels.devices import cuda_problem, cuda_simulated, visible_gpus

    if problem := cuda_problem():
        raise UserError(f"executor = 'cuda': {problem}, or choose another executor")
    gpus = visible_gpus()
    if workers is not None and workers > len(gpus):
        raise UserError(f"workers = {workers}: more than the GPUs that can be used ({len(gpus)}); leave it out for all")
    # While one batch waits for the GPU, the other is made ready; the simulator runs one kernel at a time.
    return {name: {"CUDA_VISIBLE_DEVICES": name} for name in gpus[:workers]}, 1 if cuda_simulated() else 2


@contextlib.contextmanager
def local_client(environments: dict[str, dict[str, str]], n_threads: int) -> Iterator[Any]:
    """Start a process on this machine for each name, with an environment of its own and so many threads."""
    import dask
    from distributed import Client, Security, SpecCluster
    from distributed.system import MEMORY_LIMIT

    from simstudy.execution.nodes import PagelessScheduler, PagelessWorker, PathlessNanny

    place = {"host": "127.0.0.1", "protocol": "tls://", "security": Security.temporary()}
    worker = {
        **place, "worker_class": PagelessWorker, "nthreads": n_threads, "silence_logs": logging.CRITICAL,
        "memory_limit": MEMORY_LIMIT // len(environments),
    }  # fmt: skip
    nannies = {name: {"cls": PathlessNanny, "options": {**worker, "env": env}} for name, env in environments.items()}
    scheduler = {"cls": PagelessScheduler, "options": {**place, "dashboard_address": None}}
    os.environ |= CHILDREN  # before any child: Python starts one of its own for its semaphores
    config = {"distributed.nanny.pre-spawn-environ": CHILDREN}
    with tempfile.TemporaryDirectory(prefix="simstudy-") as own, dask.config.set(config | {"temporary-directory": own}):
        cluster = SpecCluster(nannies, scheduler, security=place["security"], silence_logs=logging.CRITICAL)
        with cluster, Client(cluster) as client:
            yield client


@contextlib.contextmanager
def remote_client(address: str, trust_network: bool) -> Iterator[Any]:
    """Connect to a running scheduler that has a worker, with the user's certificates, which a network has to take."""
    from distributed import Security

    from simstudy.execution.nodes import FirmClient

    security = Security()
    if address.startswith("tls://"):
        own = security.get_tls_config_for_role("client")
        if not (own["ca_file"] and own["cert"]):
            remedy = "set distributed.comm.tls.ca-file and distributed.comm.tls.client.cert (and .key)"
            raise UserError(f"executor = {address!r}: certificates are missing; {remedy} in Dask's configuration")
    elif not (trust_network or re.fullmatch(_HERE, address)):
        said = f"executor = {address!r}: without TLS anybody on the network can run code as you; use tls:// with "
        raise UserError(f"{said}certificates in Dask's configuration, or --trust-network if nobody else is on it")
    # A scheduler that is lost is reported once, by us.
    for name in ("distributed", "distributed.client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        client = FirmClient(address, security=security, timeout=BUSY_SECONDS)
    except (OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        remedy = "start one, or mend the certificates" if address.startswith("tls://") else "start one"
        raise UserError(f"executor = {address!r}: no Dask scheduler answers there ({reason}); {remedy}") from None
    with client:
        client.rpc.timeout = BUSY_SECONDS
        try:
            client.wait_for_workers(1, timeout=WORKER_SECONDS)
        except TimeoutError:
            raise no_workers(address) from None
        yield client
