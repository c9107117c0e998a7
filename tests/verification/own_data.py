"""Cells whose keys are rows of data that scikit-learn ships, on which exact moments are verified."""

import random
from pathlib import Path
from typing import Any

from builders import minimal_cell
from configurations import STATISTICS, Configuration

from simstudy.design.contents import read_contents

# Name, features, and whether they can be standardised: the corners of digits are blank.
DATA_SETS = (("diabetes", 10, True), ("breast_cancer", 30, True), ("digits", 64, False), ("wine", 13, True))
N_KEYS = (3, 5, 10, 30, 100, 300)
N_OWN_DATA = 3 * len(DATA_SETS) * len(N_KEYS)
BANDWIDTHS = {1: (0.3, 1.0), 2: (0.6, 1.2), 4: (1.2, 2.0)}
LEARNERS = ("linear", "nearest_neighbours")
RIDGE = {"kind": "ridge", "amplitude": 2.0, "direction": [1.0, -1.0, 0.5]}
NOISES = (
    {"kind": "residuals"},
    {"kind": "residuals", "paired": True},
    {"kind": "gaussian"},
    {"kind": "heteroscedastic", "strength": 2.0},
)


def own_data(number: int) -> Configuration:
    """Draw the levels of one configuration; data sets and numbers of keys are crossed, each with every statistic."""
    draw = random.Random(number)
    name, n_features, standardise = DATA_SETS[number // 3 % 4]
    n_keys, p = N_KEYS[number // 12], draw.choice((1, 2, 4))
    regression, noise = _outcomes(draw, name)
    cell = minimal_cell(
        n_keys=n_keys,
        n_features=n_features,
        head_dim=p,
        arrangement=draw.choice(("orthogonal", "haar")),
        logits=draw.choice(("distance", "distance", "dot_product")),
        # Pixels have a standard deviation of 6.
        bandwidth=draw.choice(BANDWIDTHS[p]) * (1.0 if standardise else 6.0),
        key_distribution={
            "kind": "file", "path": f"sklearn:{name}", "response": "target", "held_out": 8,
            "standardise": standardise,
        },
        regression=regression,
        noise=noise,
        noise_sd=draw.choice((0.5, 1.0)),
        noise_treatment=draw.choice(("integrated", "drawn")),
        queries={"kind": "held_out", "count": 2},
        batch_size=512 if n_keys >= 30 else 2048,
        seed=number,
    )  # fmt: skip
    cell, problems = read_contents(cell, Path())
    assert not problems, problems
    return Configuration(number, cell, STATISTICS[number % len(STATISTICS)])


def _outcomes(draw: random.Random, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    noise = draw.choice(NOISES)
    if noise["kind"] == "residuals":
        return {"kind": "fitted", "learner": draw.choice(LEARNERS)}, noise
    return draw.choice(({"kind": "file"}, RIDGE)), noise
