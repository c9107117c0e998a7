"""Interleaved timing, and what surrounds the kernels: threads, Dask, memory."""

import contextlib
import functools
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from workloads import Arrays, Size, moments

from simstudy.design.settings.cell import Cell
from simstudy.execution.queue import Queue, Task, open_queue


@dataclass(frozen=True)
class Ratio:
    """Median of the ratios of times taken in the same round, with its quartiles."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}–{self.high:.2f})"


@dataclass(frozen=True)
class Row:
    """One line: what was done, by whom, at which size, and the figure with its meaning."""

    work: str
    size: str
    who: str
    value: float | Ratio | None
    unit: str


def interleaved(
    jobs: Sequence[Callable[[], object]], rounds: int, clock: Callable[[], float] = time.process_time
) -> list[list[float]]:
    """Seconds of each job in each round; jobs take turns, so that a slow spell of the machine meets all of them.

    Processor seconds, which other programs lengthen less than those that pass.
    """
    for job in jobs:
        job()
    seconds: list[list[float]] = [[] for _ in jobs]
    for _ in range(rounds):
        for job, taken in zip(jobs, seconds, strict=True):
            start = clock()
            job()
            taken.append(clock() - start)
    return seconds


def several(job: Callable[[], object], times: int) -> Callable[[], None]:
    """Return a call that does a short job several times, since the first finds caches full of what ran before."""

    def jobs() -> None:
        for _ in range(times):
            job()

    return jobs


def ratio(times: Sequence[float], reference: Sequence[float]) -> Ratio:
    """Ratio of two rows of `interleaved`."""
    return spread([a / b for a, b in zip(times, reference, strict=True)])


def spread(found: Sequence[float]) -> Ratio:
    """Median and quartiles."""
    if len(found) < 2:
        return Ratio(found[0], found[0], found[0])
    low, median, high = statistics.quantiles(found, n=4, method="inclusive")
    return Ratio(median, low, high)


def two_threads(arrays: Arrays, repeats: int, rounds: int) -> Ratio:
    """Speed of two threads over that of one, for calls of W1 that share nothing."""
    with ThreadPoolExecutor(2) as pool:

        def one() -> None:
            for _ in range(2 * repeats):
                moments(arrays)

        def half() -> None:
            for _ in range(repeats):
                moments(arrays)

        def two() -> None:
            for future in [pool.submit(half), pool.submit(half)]:
                future.result()

        alone, together = interleaved([one, two], rounds, time.perf_counter)
    return ratio(alone, together)


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


def high_water_mark() -> float:
    """Megabytes that this process has held at most; NaN where the system does not tell.

    Not `getrusage`, which counts the parent from which the process was forked.
    """
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), math.nan)


def peak_memory(size: Size, batches: int) -> float:
    """Megabytes that a fresh process holds at most while it computes batches, imports included."""
    here = Path(__file__).resolve().parent
    code = (
        f"import sys; sys.path[:0] = {[str(here), str(here.parent), str(here.parents[1])]!r}\n"
        "import measure, workloads\n"
        "from simstudy.replicates.batch import simulate_batch\n"
        f"made = workloads.cell(workloads.{size!r}, 'integrated')\n"
        f"for batch in range({batches}): simulate_batch([made], batch)\n"
        "print(measure.high_water_mark())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)
