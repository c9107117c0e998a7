"""Interleaved timing, and what surrounds the kernels: threads, Dask, memory."""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from builders import DESIGN, edited, write_design
from workloads import Arrays, Size, moments

import simstudy
from simstudy.batch import simulate_batch
from simstudy.design import load_design


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
    jobs: Sequence[Callable[[], object]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> list[list[float]]:
    """Seconds of each job in each round; jobs take turns, so that a slow spell of the machine meets all of them."""
    for job in jobs:
        job()
    seconds: list[list[float]] = [[] for _ in jobs]
    for _ in range(rounds):
        for job, taken in zip(jobs, seconds, strict=True):
            start = clock()
            job()
            taken.append(clock() - start)
    return seconds


def ratio(times: Sequence[float], reference: Sequence[float]) -> Ratio:
    """Ratio of two rows of `interleaved`."""
    ratios = [a / b for a, b in zip(times, reference, strict=True)]
    if len(ratios) < 2:
        return Ratio(ratios[0], ratios[0], ratios[0])
    low, median, high = statistics.quantiles(ratios, n=4, method="inclusive")
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

        alone, together = interleaved([one, two], rounds)
    return ratio(alone, together)


def dask_overhead(replicates: int, rounds: int) -> dict[str, Ratio]:
    """Time of `simstudy.run` over that of the bare loop over the same batches."""
    text = edited(DESIGN, "max_replicates = 512", f"max_replicates = {replicates}")
    text = edited(text, "min_replicates = 64", f"min_replicates = {replicates}")
    with tempfile.TemporaryDirectory() as folder:
        path = write_design(Path(folder), text)
        cells = [planned.cell for planned in load_design(path, "quick").cells]
        size = cells[0].simulation.batch_size

        def loop() -> None:
            for made in cells:
                for batch in range(-(-replicates // size)):
                    simulate_batch([made], batch)

        def run(executor: str) -> Callable[[], None]:
            def job() -> None:
                with tempfile.TemporaryDirectory() as output:
                    simstudy.run(path, output=output, executor=executor)

            return job

        bare, serial, threads = interleaved([loop, run("serial"), run("threads")], rounds)
    return {"serial": ratio(serial, bare), "threads": ratio(threads, bare)}


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
        f"made = workloads.cell(workloads.{size!r}, 'integrated')\n"
        f"for batch in range({batches}): measure.simulate_batch([made], batch)\n"
        "print(measure.high_water_mark())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)
