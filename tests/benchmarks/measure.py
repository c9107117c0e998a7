"""Interleaved timing, also of two threads."""

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from workloads import Arrays, moments


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
