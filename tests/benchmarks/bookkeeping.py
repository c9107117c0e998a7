"""What Dask adds to a loop over batches."""

import contextlib
import functools
import time
from collections import deque

from limits import Ratio, interleaved, ratio

from simstudy.design.settings.cell import Cell
from simstudy.execution.executors import Executor, open_executor
from simstudy.execution.loop import Task, run_tasks


def dask_overhead(made: Cell, batches: int, rounds: int) -> dict[str, Ratio]:
    """Time of batches through one worker of a Dask executor over that of a loop; the worker is there already."""
    executors = ("threads", "processes")
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(open_executor(name, 1)) for name in ("serial", *executors)]
        jobs = [functools.partial(_drain, executor, made, batches) for executor in opened]
        loop, *others = interleaved(jobs, rounds, time.perf_counter)
    return {name: ratio(taken, loop) for name, taken in zip(executors, others, strict=True)}


def _drain(executor: Executor, made: Cell, batches: int) -> None:
    for _ in run_tasks(executor, deque([(Task((made,), batch) for batch in range(batches))])):
        pass
