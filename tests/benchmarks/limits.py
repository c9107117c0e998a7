"""What this machine allows one core, measured on the spot, and interleaved timing."""

import functools
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from workloads import Size

from simstudy.kernels.jit import kernel
from simstudy.kernels.vectors import at_least, lanes, load, store_four


class Ratio(NamedTuple):
    """Median of the ratios of times taken in the same round, with its quartiles."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}–{self.high:.2f})"


class Row(NamedTuple):
    """One line: what was done, by whom, at which size, and the figure with its meaning."""

    work: str
    size: str
    who: str
    value: float | Ratio | None
    unit: str


def interleaved(jobs: Sequence[Callable[[], object]], rounds: int) -> list[list[float]]:
    """Seconds of each job in each round; jobs take turns, so that a slow spell of the machine meets all of them.

    Processor seconds, which other programs lengthen less than those that pass.
    """
    for job in jobs:
        job()
    seconds: list[list[float]] = [[] for _ in jobs]
    for _ in range(rounds):
        for job, taken in zip(jobs, seconds, strict=True):
            start = time.process_time()
            job()
            taken.append(time.process_time() - start)
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
    low, median, high = map(float, np.quantile(found, [0.25, 0.5, 0.75]))
    return Ratio(median, low, high)


@kernel
def _products_and_comparisons(x, a, b, width, repetitions):
    v0, v1, v2, v3 = load(x, 0), load(x, width), load(x, 2 * width), load(x, 3 * width)
    v4 = v8 = v0
    v5 = v9 = v1
    v6 = v10 = v2
    v7 = v11 = v3
    f, g = load(a, 0), load(b, 0)
    for _ in range(repetitions):
        v0, v1 = at_least(v0 * f + g, g), at_least(v1 * f + g, g)
        v2, v3 = at_least(v2 * f + g, g), at_least(v3 * f + g, g)
        v4, v5 = at_least(v4 * g + f, g), at_least(v5 * g + f, g)
        v6, v7 = at_least(v6 * g + f, g), at_least(v7 * g + f, g)
        v8, v9 = at_least(v8 * f + f, g), at_least(v9 * f + f, g)
        v10, v11 = at_least(v10 * f + f, g), at_least(v11 * f + f, g)
    store_four(x, 0, width, v0 + v4 + v8, v1 + v5 + v9, v2 + v6 + v10, v3 + v7 + v11)


def issue_job(dtype: str, loops: int = 300_000) -> tuple[Callable[[], object], float]:
    """Return a call that does fused multiply-adds and comparisons, one to one, and how many operations.

    It lasts milliseconds by default: in a shorter one the processor is still on its way to full speed.
    """
    # Twelve chains in registers, so that neither caches nor how far the processor looks ahead decide the rate: they
    # wait for nothing but themselves, and two ports, of a latency of four, need eight.
    width = lanes(np.dtype(dtype).itemsize)
    x, a, b = np.ones(4 * width, dtype), np.full(width, 0.5, dtype), np.full(width, 0.25, dtype)
    return functools.partial(_products_and_comparisons, x, a, b, width, loops), 2.0 * 12 * width * loops


def operations_needed(size: Size, with_gram: bool) -> float:
    """Vector operations that one replicate needs, most of them fused multiply-adds.

    Projection: d for each projected number.  Then, for every query, key and head: p for the score, 5 (11 in float64)
    and six more for the power, 1 for the sum of weights, and 1 or 2 for other sums and (H + 1)/2 for the Gram matrix.
    """
    each = size.p + {"float32": 11, "float64": 17}[size.dtype] + 1 + (2 + (size.heads + 1) / 2 if with_gram else 1)
    return size.keys * size.heads * (size.p * size.features + size.queries * each)
