"""Batches that a client takes from many threads, stores and looks at, and what Dask adds to a loop over batches."""

import contextlib
import functools
import tempfile
import time
import tomllib
from collections.abc import Iterator
from typing import Any

from builders import DESIGN, edited
from limits import Ratio, Row, interleaved, ratio

from simstudy.design.load import load_design
from simstudy.design.settings.cell import Cell
from simstudy.execution.queue import DaskQueue, Meter, Queue, Task, open_queue
from simstudy.execution.store import store_of
from simstudy.study import open_ledger, simulate

THREADS = 64
TASK_SECONDS = 0.05


def design_of(batches: int) -> Any:
    """A cell, so that no batches come together, which is not content before it has all of them."""
    text = edited(DESIGN, "relative_mcse = { mse = 0.05 }", "relative_mcse = { mse = 0.00001 }")
    text = edited(text, "max_replicates = 512", f"max_replicates = {32 * batches}")
    text = edited(edited(text, "angle = [0, 45, 90]\nbandwidth = [0.5, 1.0]", "angle = [45]"), "0.8", "0.5")
    return load_design(tomllib.loads(text.partition("[claims")[0] + "[profiles.quick]"))


def sleep_instead(seconds: float) -> None:
    """Let tasks of this process sleep, and hand out the moments that the first of their cells had."""
    from simstudy.execution import queue

    kept: dict[Any, Any] = {}

    def compute(tasks: Any, device: str, _: str) -> Any:
        for cells, batch in tasks:
            if cells not in kept:
                kept[cells] = queue.simulate_batch(cells, batch, device)
        time.sleep(seconds * len(tasks))
        return [queue.Outcome(kept[task.cells], queue._process(), seconds, 0.0) for task in tasks]

    queue.compute = compute


def client_rows(batches: int = 12_000, seconds: float = TASK_SECONDS) -> Iterator[Row]:
    """Batches a second that a study takes from threads that sleep, over TLS, stores and looks at."""
    from distributed import Client, LocalCluster, Security

    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(
            n_workers=1, threads_per_worker=THREADS, dashboard_address=":0", host="127.0.0.1", protocol="tls://",
            security=Security.temporary(),
        ) as cluster,
        Client(cluster) as client,
    ):  # fmt: skip
        design = design_of(batches)
        client.run(sleep_instead, seconds)
        queue, store = DaskQueue(client), store_of(design, folder)
        queue.add(Task((planned.cell,), 0) for planned in design.cells)
        list(queue)  # everything is imported, and known to the workers
        with store.locked():
            ledger = open_ledger(design, store, "cpu", {})
            start, busy = time.perf_counter(), time.process_time()
            simulate(ledger, queue, Meter(), budget=design.budget)
            taken, busy = time.perf_counter() - start, time.process_time() - busy
        done = ledger.tally()["batches_computed"]
    size = f"{done} batches of {1e3 * seconds:g} ms, {THREADS} threads"
    yield Row("client", size, "simstudy", done / taken, "batches a second")
    yield Row("client", size, "simstudy", 1e3 * busy / done, "ms of its process a batch")


def dask_overhead(made: Cell, batches: int, rounds: int) -> dict[str, Ratio]:
    """Time of batches through one worker of a Dask executor over that of a loop; the worker is there already."""
    executors = ("threads", "processes")
    with contextlib.ExitStack() as stack:
        queues = [stack.enter_context(open_queue(name, 1)) for name in ("serial", *executors)]
        jobs = [functools.partial(_drain, queue, made, batches) for queue in queues]
        loop, *others = interleaved(jobs, rounds, time.perf_counter)
    return {name: ratio(taken, loop) for name, taken in zip(executors, others, strict=True)}


def _drain(queue: Queue, made: Cell, batches: int) -> None:
    queue.add(Task((made,), batch) for batch in range(batches))
    for _ in queue:
        pass
