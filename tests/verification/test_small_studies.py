"""Is a verdict wrong no more often than its level says, at the edge of every kind of claim?

Studies of 64 blocks unless said otherwise, with the truth on the boundary of the claim, or just beyond it; block
values are drawn directly, and judged by the code that judges all others.  What is printed beside: how often the
interval leaves the truth, and the power away from the boundary.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from builders import rare
from exact_estimates import N_BLOCKS, Array, averaged, claim
from scipy import stats

from simstudy.design.document import LEVEL
from simstudy.verdicts.evidence import Contrast, p_above
from simstudy.verdicts.judge import Judgement, judge_claim, selected_by

DRAWS: dict[str, Callable[[np.random.Generator, tuple[int, int]], Array]] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "exponential": lambda rng, shape: rng.standard_exponential(shape) - 1.0,
    "negative exponential": lambda rng, shape: 1.0 - rng.standard_exponential(shape),
}
"""Block values of mean 0 and variance 1."""
STUDIES = 2000


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
        how = {"measure": self.stated.measure, "n_replicates": len(blocks)}
        made = [averaged(each, own, **how) for each, own in zip(self.levels, blocks.T, strict=True)]
        for each, index in zip(made, np.zeros(len(made)) if self.hdi is None else self.hdi, strict=True):
            each.performance.estimate["hdi"] = np.full(8, index)
            each.performance.contribution["hdi"] = np.zeros((len(blocks), 8))
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


def levels(count: int) -> list[dict[str, Any]]:
    return [{"x": float(k)} for k in range(1, count + 1)]


def least(name: str, truth: list[float], **settings: Any) -> Setting:
    return Setting(name, claim(kind="optimum", x="x", value=1.0), levels(len(truth)), truth, **settings)


def pairs(name: str, truth: list[float], **entries: Any) -> Setting:
    stated = claim(against="chordal", direction="increasing", **entries)
    return Setting(name, stated, levels(len(truth)), truth, hdi=np.arange(len(truth), dtype=float))


def slope(name: str, claimed: float, curvature: float, middle: float = 5.0) -> Setting:
    """Parabolas in ln x, of a curvature in MCSE a doubling of x squared, whose least value grows like the root of z.

    The claim is that this exponent is within 0.2 of a value.
    """
    z, x = 2.0 ** np.arange(4), 2.0 ** np.arange(6)
    stated = claim(kind="optimum_slope", x="x", along="z", scale="log_log", value=claimed, margin=0.2)
    cells = [{"z": along, "x": each} for along in z for each in x]
    truth = [curvature * np.log2(each / place) ** 2 for place in middle * (z / z[1]) ** 0.5 for each in x]
    return Setting(name, stated, cells, truth, ("z", "x"))


@pytest.mark.rare
@pytest.mark.parametrize("setting, false", [
    *((least(f"{k} levels tie", [0.0] * k), {"contradicted"}) for k in (2, 4, 8)),
    *((least(f"least of 8 by {gap}", [0.0] + [gap] * 7), {"contradicted"}) for gap in (0.5, 1.0, 3.0)),
    *((least(f"another less by {gap}, six as good", [0.0, -gap] + [0.0] * 6), {"supported"})
      for gap in (1e-9, 0.5, 1.0, 3.0)),
    *((least(f"another as good, six worse by {gap}", [0.0, -1e-9] + [gap] * 6), {"supported"}) for gap in (1.0, 9.0)),
    (least("8 levels tie, exponential", [0.0] * 8, law="exponential"), {"contradicted"}),
    (least("8 levels tie, shared noise", [0.0] * 8, shared=0.9), {"contradicted"}),
    (pairs("all pairs tie, none violated", [0.0] * 8, kind="violated_pairs", at_most=0.0), {"contradicted"}),
    (pairs("4 pairs violated by nothing, 3 claimed", [10.0 * (k // 2) - 1e-9 * (k % 2) for k in range(8)],
           kind="violated_pairs", at_most=3 / 28), {"supported"}),
    *((slope(f"slope of an optimum on its bound, curvature {c}", 0.7, c), {"contradicted", "supported"})
      for c in (1.0, 6.0, 20.0)),
    (slope("slope of an optimum on its upper bound", 0.3, 10.0), {"contradicted", "supported"}),
    *((Setting(f"equals on its bound, {name}", bound, levels(1), [0.0], law=name), {"contradicted", "supported"})
      for name in DRAWS for bound in [claim(kind="equals", value=-2.0, margin=2.0)]),
    (Setting("nine steps of nothing", claim(kind="monotone", x="x", direction="increasing"), levels(10), [0.0] * 10),
     {"contradicted"}),
], ids=lambda value: getattr(value, "name", ""))  # fmt: skip
def test_false_verdicts__are_no_more_than_the_level_says(setting, false):
    found = rates(setting, STUDIES)
    print(f"{setting.name}: contradicted {found.contradicted:.2%}, supported {found.supported:.2%}")
    assert all(found.at_most_the_level(getattr(found, verdict)) for verdict in false)


@pytest.mark.rare
@pytest.mark.parametrize("setting, verdict, least_power", [
    (least("least of 8 by 8", [0.0] + [8.0] * 7), "supported", 0.9),
    (least("worse than 7 others by 8", [8.0] + [0.0] * 7), "contradicted", 0.7),
    (pairs("steps of 8, 3 pairs of 28 claimed", [8.0 * k for k in range(8)], kind="violated_pairs", at_most=3 / 28),
     "supported", 0.9),
    (slope("slope within 0.2, curvature 20", 0.5, 20.0), "supported", 0.9),
    (slope("slope off by 0.5, curvature 20", 1.0, 20.0), "contradicted", 0.9),
], ids=lambda value: getattr(value, "name", ""))  # fmt: skip
def test_claims_away_from_the_boundary__are_decided(setting, verdict, least_power):
    found = rates(setting, STUDIES // 10)
    print(f"{setting.name}: {verdict} {getattr(found, verdict):.1%}")
    assert getattr(found, verdict) >= least_power


@pytest.mark.parametrize("name, truth, law, studies, looks", [
    ("tie", [0.0] * 4, "normal", 100, (64, 128)),
    ("skewed", [0.0] * 2, "exponential", 100, (64, 128)),
    *(rare(f"set of {truth}", truth, "normal", STUDIES, (64, 128, 256)) for truth in ([0.0] * 4, [0.0, 1.0, 1.0, 1.0])),
])  # fmt: skip
def test_sets_of_possible_optima__hold_the_optimum_at_all_looks(name, truth, law, studies, looks):
    found = rates(least(name, truth, law=law), studies, 1.0, looks)
    print(f"{name}: left at some of {len(looks)} looks in {found.left:.2%}")
    assert found.at_most_the_level(found.left) and found.at_most_the_level(found.contradicted)
    clear = rates(least(name, [-12.0, *truth[1:]], law=law), 20)
    assert clear.supported > 0.4 and clear.contradicted == 0.0  # the control


@pytest.mark.rare
@pytest.mark.parametrize("law_of", DRAWS)
def test_one_inequality__is_refuted_at_the_level_however_often_one_looks(law_of):
    """Ten thousand studies with the truth on the bound, looked at after every batch from 4 to 64."""
    rng, studies, ever, repeated = np.random.default_rng(5), 10_000, 0, 0
    looks = np.arange(64, 1025, 16)
    for _ in range(studies // 500):
        blocks = DRAWS[law_of](rng, (500, 1024))
        first, second, third = (np.cumsum(blocks**power, axis=1)[:, looks - 1] / looks for power in (1, 2, 3))
        variance = second - first**2
        skewness = (third - 3 * first * second + 2 * first**3) / variance**1.5
        mcse = np.sqrt(variance / (looks - 1))
        p = p_above(Contrast(first, mcse, looks, looks - 1, skewness / np.sqrt(looks), np.zeros_like(first)), 0.0)
        ever += np.count_nonzero((p < LEVEL).any(axis=1))
        repeated += np.count_nonzero((first / mcse > 1.6449).any(axis=1))
    print(f"{law_of}: ever {ever / studies:.2%} at {len(looks)} looks; a fixed test repeated {repeated / studies:.1%}")
    assert ever / studies <= LEVEL < repeated / studies


@pytest.mark.parametrize("share, sizes, studies", [
    (0.01, (64,), 0), (0.1, (64,), 0), (0.003, (1024,), 0),
    *(rare(share, (64, 256, 1024), STUDIES) for share in (0.001, 0.003, 0.01, 0.03, 0.1)),
])  # fmt: skip
def test_rare_events__are_found_rarer_or_more_frequent_no_more_often_than_the_level_says(share, sizes, studies):
    """One replicate to a block; at one look exactly, and in studies looked at after every fourth batch."""
    for n_blocks in sizes:
        found = [false_on_events("coverage", share, n_blocks, each) for each in ("contradicted", "supported")]
        print(f"events in {share:.1%}, {n_blocks} blocks: found rarer {found[0]:.2%}, more frequent {found[1]:.2%}")
        assert max(found) <= LEVEL
        # The control: of what counts no events, blocks that are alike prove that there are none.
        assert false_on_events("mse", share, n_blocks, "contradicted") >= 0.99 * (1.0 - share) ** n_blocks
    looks, rng, ever = np.arange(64, 1025, 64), np.random.default_rng(6), np.zeros(2)
    for events in np.cumsum(rng.random((studies, 1024)) < share, axis=1)[:, looks - 1]:
        given = {verdict_on_events("coverage", share, *map(int, look)) for look in zip(events, looks, strict=True)}
        ever += ["contradicted" in given, "supported" in given]
    print(f"events in {share:.1%}, {len(looks)} looks: ever rarer, more frequent {ever} of {studies}")
    assert not studies or max(ever) / studies <= LEVEL + 3 * np.sqrt(LEVEL * (1 - LEVEL) / studies)
