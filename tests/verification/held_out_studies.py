"""Tiny studies of three data sets whose batches each have a split of the rows of their own."""

from pathlib import Path

import numpy as np
from builders import minimal_cell
from population_studies import Intervals

from simstudy.design.contents import read_contents
from simstudy.replicates.batch import simulate_batch
from simstudy.replicates.population import measured

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
    """Studies of one data set, each of another seed."""
    columns, regression, noise, stated = DATA_SETS[name]
    found = []
    for seed in range(count):
        cell = minimal_cell(
            n_keys=30, n_features=2, n_heads=2, head_dim=1, arrangement="orthogonal", bandwidth=0.7, batch_size=16,
            key_distribution={
                "kind": "file", "path": f"sklearn:{name}", "columns": columns, "response": "target",
                "held_out": 20,
            },
            regression=regression, noise=noise, queries={"kind": "held_out", "count": 4}, seed=seed,
            population=stated if population is None else population,
        )  # fmt: skip
        cell, problems = read_contents(cell, Path())
        assert not problems, problems
        performance = measured(cell, [simulate_batch([cell], batch)[0] for batch in range(n_batches)])
        found.append([(performance.estimate[measure], performance.mcse[measure]) for measure in MEASURES])
    values = np.array(found, float)
    return Intervals(values[..., 0], values[..., 1], performance.n_blocks - 1)
