"""Do 95 % intervals hold the truth, over a population and where tails are heavy?

The truth is the mean of all studies, whose error is a twentieth of that of one.  Over queries, heads or splits of rows
the controls are the errors given those that were drawn, which say nothing of others.  From 64 blocks of one replicate,
± 1.96 printed errors must cover in 93 of 100 studies of thirteen hard cells.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from builders import estimated, minimal_cell, with_contents
from numpy.typing import NDArray
from scipy import stats

from simstudy.design.settings.cell import Cell
from simstudy.replicates.batch import simulate_batch
from simstudy.replicates.intervals import COVERAGE
from simstudy.replicates.population import measured
from simstudy.verdicts.comparisons import paired
from simstudy.verdicts.estimates import estimates_from

pytestmark = pytest.mark.rare

Array = NDArray[np.float64]

TINY = {
    "n_keys": 20, "n_features": 3, "head_dim": 1, "arrangement": "haar", "regression": {"kind": "ridge"},
    "queries": {"kind": "gaussian", "count": 2}, "batch_size": 16,
}  # fmt: skip
ROWS = {
    "n_keys": 30, "n_features": 2, "n_heads": 2, "head_dim": 1, "arrangement": "orthogonal", "bandwidth": 0.7,
    "batch_size": 16, "queries": {"kind": "held_out", "count": 4},
}  # fmt: skip
OF_ROWS, N_DRAWS, LEAST, MOST = ("mse", "ensemble_variance", "squared_bias"), 64, 0.93, 0.97
DATA_SETS = {
    "diabetes": (["bmi", "s5"], {"kind": "fitted", "learner": "nearest_neighbours"}, "residuals", ["held_out"]),
    "wine": (["hue", "ash"], {"kind": "fitted", "learner": "linear"}, {"kind": "residuals", "paired": True},
             ["held_out", "rows"]),
    "breast_cancer": (["mean radius", "mean texture"], "file", "gaussian", ["held_out"]),
}  # fmt: skip


class Intervals(NamedTuple):
    """Estimates of many studies, their errors and degrees of freedom: (study, ...)."""

    estimates: Array
    errors: Array
    degrees: int

    @property
    def ratio(self) -> Array:
        return np.asarray(self.errors.mean(axis=0) / self.estimates.std(axis=0, ddof=1))

    def coverage(self, truth: Array) -> Array:
        within = np.abs(self.estimates - truth) <= stats.t.ppf(0.975, self.degrees) * self.errors
        return np.asarray(within.mean(axis=0))


def intervals(cell_of: Callable[[int], Cell], count: int, measures: tuple[str, ...], n_batches: int) -> Intervals:
    found = []
    for seed in range(count):
        performance = estimated(cell_of(seed), n_batches)
        found.append([(performance.estimate[name], performance.mcse[name]) for name in measures])
    values = np.array(found, float)
    return Intervals(values[..., 0], values[..., 1], performance.n_blocks - 1)


def test_intervals_over_the_population__cover_and_those_given_one_draw_do_not():
    measures, studies = ("mse", "ensemble_variance", "correlation"), 500
    over, fixed = (
        intervals(lambda seed, drawn=drawn: minimal_cell(**TINY, seed=seed, population=drawn), count, measures, n)
        for drawn, count, n in ((("queries", "heads"), studies, N_DRAWS), ((), studies // 4, 8))
    )
    truth = over.estimates.mean(axis=0)
    for name, share, control in zip(measures, over.coverage(truth), fixed.coverage(truth), strict=True):
        print(f"{name}: {share:.1%} over the population, {control:.1%} given one draw")
        assert LEAST <= share <= MOST
        assert control < 0.7


def split_of(name: str, seed: int, given: bool) -> Cell:
    columns, regression, noise, population = DATA_SETS[name]
    keys = {"kind": "file", "path": f"sklearn:{name}", "columns": columns, "response": "target", "held_out": 20}
    drawn = {"seed": seed, "population": [] if given else population}
    return with_contents(**ROWS | drawn, key_distribution=keys, regression=regression, noise=noise)


def test_standard_errors_over_splits_of_rows__are_the_standard_deviation_over_seeds_and_intervals_cover():
    seeds, shares = 120, []
    for name in DATA_SETS:
        over = intervals(lambda seed, name=name: split_of(name, seed, False), seeds, OF_ROWS, N_DRAWS)
        fixed = intervals(lambda seed, name=name: split_of(name, seed, True), seeds // 3, OF_ROWS, 8)
        print(f"\n{name}: error over standard deviation of {seeds} seeds", dict(zip(OF_ROWS, over.ratio, strict=True)))
        assert ((over.ratio >= 0.85) & (over.ratio <= 1.15)).all()
        assert (fixed.ratio < 0.6).all()
        truth = over.estimates.mean(axis=0)
        shares.append([over.coverage(truth), fixed.coverage(truth)])
    share, control = np.mean(shares, axis=0)
    print(f"\n{seeds * len(shares)} studies", dict(zip(OF_ROWS, share, strict=True)), "given one split", control)
    assert ((share >= LEAST) & (share <= MOST)).all()
    assert (control < 0.7).all()


N_STUDIES, N_BATCHES = 400, 4
T4, T5 = ({"kind": "student_t", "df": df} for df in (4, 5))
NOISE = {"noise": T5, "noise_treatment": "drawn"}
HARD = {
    "dot products, 64 t(4) keys": {"key_distribution": T4},
    "dot products, 10 t(4) keys": {"key_distribution": T4, "n_keys": 10},
    "dot products, 64 keys": {},
    "dot products, 10 keys": {"n_keys": 10},
    "narrow, 64 t(4) keys": {"key_distribution": T4, "bandwidth": 0.5},
    "distances, 64 t(4) keys": {"key_distribution": T4, "logits": "distance"},
    "distances, 10 t(4) keys": {"key_distribution": T4, "logits": "distance", "n_keys": 10},
    "distances, 10 keys": {"logits": "distance", "n_keys": 10},
    "t(5) noise, 64 t(4) keys": {"key_distribution": T4, **NOISE},
    "t(5) noise, 10 t(4) keys": {"key_distribution": T4, "n_keys": 10, **NOISE},
    "t(5) noise, distances": {"key_distribution": T4, "logits": "distance", **NOISE},
    "t(5) noise, 10 keys": {"n_keys": 10, **NOISE},
    "four heads, 64 t(4) keys": {"key_distribution": T4, "n_heads": 4, "head_dim": 1},
}
BASE = {
    "batch_size": 16, "control": "none", "n_features": 4, "n_heads": 2, "head_dim": 2, "arrangement": "rotated",
    "regression": {"kind": "ridge"}, "bandwidth": 1.0, "queries": {"kind": "gaussian", "count": 4}, "n_keys": 64,
    "logits": "dot_product",
}  # fmt: skip


def estimates_and_errors(settings: dict) -> dict[str, np.ndarray]:
    """Estimates and printed errors (study, 2) of measures of a cell, and of what two cells differ in."""
    pair = [minimal_cell(**BASE | settings, angle=angle) for angle in (20, 80)]
    found: dict[str, list] = {}
    for study in range(N_STUDIES):
        batches = [simulate_batch(pair, N_BATCHES * study + batch) for batch in range(N_BATCHES)]
        both = [measured(cell, [moments[i] for moments in batches]) for i, cell in enumerate(pair)]
        for name in ("mse", "squared_bias", "ensemble_variance", "correlation"):
            found.setdefault(name, []).append((float(both[0].estimate[name]), float(both[0].printed(name))))
        estimates = estimates_from([{}, {}], [(0, 16)] * 2, both, "ensemble_variance")
        for name in ("difference", "ratio"):
            contrast, _ = paired(estimates, 0, 1, name)
            found.setdefault(name, []).append((float(contrast.value), float(contrast.mcse * contrast.widening)))
    return {name: np.array(each) for name, each in found.items()}


@pytest.mark.parametrize("name", HARD)
def test_printed_errors__cover(name):
    found = estimates_and_errors(HARD[name])
    shares = {
        measure: float((np.abs(each[:, 0] - each[:, 0].mean()) <= COVERAGE * each[:, 1]).mean())
        for measure, each in found.items()
    }
    print(f"{name}: " + ", ".join(f"{measure} {share:.3f}" for measure, share in shares.items()))
    assert min(shares.values()) >= 0.93
