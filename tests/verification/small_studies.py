"""Small studies whose block values are drawn directly, judged by the code that judges all others.

A block value is the mean of one block of replicates; an account needs no more than these.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from exact_estimates import N_BLOCKS, averaged, claim
from numpy.typing import NDArray
from scipy import stats

from simstudy.design.claims import LEVEL
from simstudy.verdicts.judge import Judgement, judge_claim, selected_by

Array = NDArray[np.float64]

DRAWS: dict[str, Callable[[np.random.Generator, tuple[int, int]], Array]] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "exponential": lambda rng, shape: rng.standard_exponential(shape) - 1.0,
    "negative exponential": lambda rng, shape: 1.0 - rng.standard_exponential(shape),
}
"""Block values of mean 0 and variance 1."""


def accounts(
    levels: Sequence[dict[str, Any]], blocks: Array, hdi: Array | None = None, measure: str = "mse"
) -> list[Any]:
    made = [averaged(each, blocks[:, k], measure=measure, n_replicates=len(blocks)) for k, each in enumerate(levels)]
    for each, index in zip(made, np.zeros(len(made)) if hdi is None else hdi, strict=True):
        each.performance.estimate["hdi"] = np.full(8, index)
        each.performance.contribution["hdi"] = np.zeros((len(blocks), 8))
    return made


class Setting(NamedTuple):
    """What is claimed of cells with true values, in MCSE of a cell at 64 blocks, and how cells share their noise."""

    name: str
    stated: Any
    levels: list[dict[str, Any]]
    truth: Sequence[float]
    factors: tuple[str, ...] = ("x",)
    law: str = "normal"
    shared: float = 0.0
    hdi: Array | None = None

    def study(self, rng: np.random.Generator, n_blocks: int = N_BLOCKS) -> Array:
        own = DRAWS[self.law](rng, (n_blocks, len(self.truth)))
        common = DRAWS[self.law](rng, (n_blocks, 1))
        return np.asarray(self.truth) / 8.0 + np.sqrt(1 - self.shared) * own + np.sqrt(self.shared) * common

    def judged(self, blocks: Array) -> Judgement:
        made = accounts(self.levels, blocks, self.hdi, self.stated.measure)
        return judge_claim(self.stated, selected_by(self.stated, made, self.factors), 1)


class Rates(NamedTuple):
    """How often, among so many studies, a claim was contradicted, supported, and the truth left by its interval."""

    studies: int
    contradicted: float
    supported: float
    left: float

    def at_most_the_level(self, rate: float) -> bool:
        return rate <= LEVEL + 3.0 * np.sqrt(LEVEL * (1 - LEVEL) / self.studies)


def rates(setting: Setting, studies: int, true_value: float | None = None, looks: Sequence[int] = (N_BLOCKS,)) -> Rates:
    """Judge studies at every look; a verdict counts if any gave it, and so does a true value that an interval left."""
    rng = np.random.default_rng(sum(map(ord, setting.name)))
    counts = np.zeros(3)
    for _ in range(studies):
        blocks = setting.study(rng, looks[-1])
        judged = [setting.judged(blocks[:look]) for look in looks]
        counts[:2] += [any(each.verdict == verdict for each in judged) for verdict in ("contradicted", "supported")]
        if true_value is not None:
            reach = [each.comparisons[0].confidence(LEVEL) for each in judged]
            counts[2] += any(not low <= true_value <= high for low, high in reach)
    return Rates(studies, *(counts / studies))


@functools.cache
def verdict_on_events(measure: str, share: float, events: int, n_blocks: int) -> str:
    """Return the verdict on "the measure, 1 in blocks with an event and else 0, is larger than a share"."""
    blocks = (np.arange(n_blocks) < events).astype(float)[:, None]
    stated = claim(kind="larger_than", value=share, measure=measure)
    return Setting("events", stated, [{"x": 1.0}], [0.0]).judged(blocks).verdict


def false_on_events(measure: str, share: float, n_blocks: int, verdict: str) -> float:
    """Return how often a verdict is given where the share claimed is the true one: exact, as events are binomial."""
    counts = np.arange(int(stats.binom.ppf(1 - 1e-9, n_blocks, share)) + 1)
    given = [verdict_on_events(measure, share, int(count), n_blocks) == verdict for count in counts]
    return float(stats.binom.pmf(counts, n_blocks, share)[given].sum())
