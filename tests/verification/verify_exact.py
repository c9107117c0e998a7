"""Verdict of ``make verify``: do Monte Carlo z-scores of exact moments look standard normal, and of wrong ones not?

The name keeps this out of the ordinary test suite.  Seeds are fixed, so a verdict holds until the code or the random
streams change."""

import multiprocessing
import random
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import pytest
from builders import with_contents
from zscores import (
    N_CONFIGURATIONS,
    N_QUASI_MONTE_CARLO,
    STATISTICS,
    Configuration,
    Value,
    configuration,
    exact,
    judge,
    leading,
    noise_only,
    simulated,
    z_score,
)

CONTROLS = ("z_noise_dropped", "z_signal_dropped", "z_leading_order")


def row(number: int) -> dict[str, Any]:
    chosen = configuration(number)
    measured, theory = simulated(chosen), exact(chosen)
    first = leading(chosen)
    wrong = dict.fromkeys(CONTROLS, np.nan)
    if np.isfinite(first.value):
        wrong["z_leading_order"] = z_score(measured, first)
    if chosen.statistic != "bias":
        noise = noise_only(chosen)
        signal = Value(theory.value - noise.value, theory.error + noise.error)
        wrong |= {"z_noise_dropped": z_score(measured, signal), "z_signal_dropped": z_score(measured, noise)}
    return {"numerical_error": theory.error, "mcse": measured.error, "z": z_score(measured, theory), **wrong}


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    # Processes of their own: quadrature does not release the interpreter for long.
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        return pd.DataFrame(pool.map(row, range(N_CONFIGURATIONS + N_QUASI_MONTE_CARLO), chunksize=2))


def test_z_scores_of_exact_moments_look_standard_normal(table):
    z = table["z"].to_numpy()
    assert len(z) >= 200
    assert np.isfinite(z).all()
    # Numerical error of quadrature is a negligible part of the comparison, that of quasi-Monte Carlo is a part of it.
    share = table["numerical_error"] / table["mcse"]
    assert (share[:N_CONFIGURATIONS] < 0.01).all() and share[N_CONFIGURATIONS:].median() < 0.5
    assert failures("exact moments", z) == []


def test_keys_that_are_not_gaussian(table):
    other = table[N_CONFIGURATIONS:]
    assert failures("quasi-Monte Carlo", other["z"].to_numpy()) == []
    assert judge(other["z_signal_dropped"].fillna(other["z"]).to_numpy())


@pytest.mark.parametrize("column", CONTROLS)
def test_a_wrong_theory_fails(table, column):
    """Where the wrong theory says nothing of its own, the z-scores of the right one stay in."""
    assert len(failures(column, table[column].fillna(table["z"]).to_numpy())) >= 2


def failures(theory: str, z: np.ndarray) -> list[str]:
    failed = judge(z)
    print(
        f"\n{theory}: {len(z)} z, largest {np.abs(z).max():.2f}, mean {z.mean():+.3f}, sd {z.std(ddof=1):.3f}; {failed}"
    )
    return failed


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
    cell = with_contents(
        n_keys=n_keys,
        n_features=n_features,
        head_dim=p,
        arrangement=draw.choice(("orthogonal", "haar")),
        logits=draw.choice(("distance", "distance", "dot_product")),
        # Pixels have a standard deviation of 6.
        bandwidth=draw.choice(BANDWIDTHS[p]) * (1.0 if standardise else 6.0),
        key_distribution={"kind": "file", "path": f"sklearn:{name}", "response": "target", "held_out": 8,
                          "standardise": standardise},
        regression=regression,
        noise=noise,
        noise_sd=draw.choice((0.5, 1.0)),
        noise_treatment=draw.choice(("integrated", "drawn")),
        queries={"kind": "held_out", "count": 2},
        batch_size=512 if n_keys >= 30 else 2048,
        seed=number,
    )  # fmt: skip
    return Configuration(number, cell, STATISTICS[number % len(STATISTICS)])


def _outcomes(draw: random.Random, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    noise = draw.choice(NOISES)
    if noise["kind"] == "residuals":
        return {"kind": "fitted", "learner": draw.choice(LEARNERS)}, noise
    return draw.choice(({"kind": "file"}, RIDGE)), noise


@pytest.fixture(scope="module")
def scores():
    found = []
    for chosen in map(own_data, range(N_OWN_DATA)):
        measured = simulated(chosen)
        wrong = noise_only(chosen) if chosen.statistic != "bias" else None
        found.append((z_score(measured, exact(chosen)), z_score(measured, wrong) if wrong else np.nan))
    return np.array(found)


def test_exact_moments_over_rows_are_those_of_the_simulation(scores):
    assert len(scores) >= 60
    assert np.abs(scores[:, 0]).max() < 4.0
    assert failures("rows", scores[:, 0]) == []
    wrong = np.where(np.isnan(scores[:, 1]), scores[:, 0], scores[:, 1])
    assert len(failures("rows, without the signal", wrong)) >= 2
