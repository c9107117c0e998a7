"""What Dask adds to a loop over batches."""

import contextlib
import functools
import time

from limits import Ratio, interleaved, ratio

from simstudy.design.settings.cell import Cell
from simstudy.execution.queue import Queue, Task, open_queue


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
