"""Part of ``make verify``: does the error over splits of the rows say how estimates differ from seed to seed?

Tiny studies of three data sets.  The controls are studies that keep the split of their seed, as all did before rows
held out could be a population.
"""

import numpy as np
import pytest
from builders import estimated, with_contents
from verify_population import Intervals

MEASURES = ("mse", "ensemble_variance", "squared_bias")
DATA_SETS = {
    "diabetes": (["bmi", "s5"], {"kind": "fitted", "learner": "nearest_neighbours"}, "residuals", ["held_out"]),
    "wine": (
        ["hue", "ash"],
        {"kind": "fitted", "learner": "linear"},
        {"kind": "residuals", "paired": True},
        ["held_out", "rows"],
    ),
    "breast_cancer": (["mean radius", "mean texture"], "file", "gaussian", ["held_out"]),
}


def studies(name: str, count: int, population: list[str] | None = None, n_batches: int = 64) -> Intervals:
    columns, regression, noise, stated = DATA_SETS[name]
    found = []
    for seed in range(count):
        cell = with_contents(
            n_keys=30, n_features=2, n_heads=2, head_dim=1, arrangement="orthogonal", bandwidth=0.7, batch_size=16,
            key_distribution={
                "kind": "file", "path": f"sklearn:{name}", "columns": columns, "response": "target",
                "held_out": 20,
            },
            regression=regression, noise=noise, queries={"kind": "held_out", "count": 4}, seed=seed,
            population=stated if population is None else population,
        )  # fmt: skip
        performance = estimated(cell, n_batches)
        found.append([(performance.estimate[measure], performance.mcse[measure]) for measure in MEASURES])
    values = np.array(found, float)
    return Intervals(values[..., 0], values[..., 1], performance.n_blocks - 1)


SEEDS = 120


@pytest.fixture(scope="module")
def found():
    return {name: (studies(name, SEEDS), studies(name, SEEDS // 3, [], n_batches=8)) for name in DATA_SETS}


def test_standard_errors__are_the_standard_deviation_over_seeds(found):
    for name, (over, fixed) in found.items():
        ratios = over.ratio
        print(f"\n{name}: error over standard deviation of {SEEDS} seeds", dict(zip(MEASURES, ratios, strict=True)))
        assert ((ratios >= 0.85) & (ratios <= 1.15)).all()
        assert (fixed.ratio < 0.6).all()


def test_intervals__cover_and_those_given_one_split_do_not(found):
    truths = {name: over.estimates.mean(axis=0) for name, (over, _) in found.items()}
    share, control = (
        np.mean([each[which].coverage(truths[name]) for name, each in found.items()], axis=0) for which in (0, 1)
    )
    print(f"\n{SEEDS * len(found)} studies", dict(zip(MEASURES, share, strict=True)), "given one split", control)
    assert ((share >= 0.93) & (share <= 0.97)).all()
    assert (control < 0.7).all()
