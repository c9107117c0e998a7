"""Part of ``make verify``: exact moments over rows of real data against simulations that draw these rows."""

import random
import time
from typing import Any

import numpy as np
import pytest
from builders import with_contents
from zscores import STATISTICS, Configuration, exact, judge, noise_only, simulated, z_score

from simstudy.data.heads import key_projections, query_points, query_projections
from simstudy.theory import exact_moments

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
    return Configuration(number, cell, STATISTICS[number % len(STATISTICS)])


def _outcomes(draw: random.Random, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    noise = draw.choice(NOISES)
    if noise["kind"] == "residuals":
        return {"kind": "fitted", "learner": draw.choice(LEARNERS)}, noise
    return draw.choice(({"kind": "file"}, RIDGE)), noise


@pytest.fixture(scope="module")
def scores():
    start, found = time.perf_counter(), []
    for chosen in map(own_data, range(N_OWN_DATA)):
        measured = simulated(chosen)
        wrong = noise_only(chosen) if chosen.statistic != "bias" else None
        found.append((z_score(measured, exact(chosen)), z_score(measured, wrong) if wrong else np.nan))
    print(f"\n{N_OWN_DATA} configurations of real data in {time.perf_counter() - start:.0f} s")
    return np.array(found)


def test_exact_moments_over_rows_are_those_of_the_simulation(scores):
    verdict = judge(scores[:, 0])
    print(f"\nlargest |z| {verdict.largest:.2f}, mean {verdict.mean:+.3f}, sd {verdict.sd:.3f}")
    assert len(scores) >= 60
    assert np.abs(scores[:, 0]).max() < 4.0
    assert verdict.failures == []


def test_a_theory_without_the_signal_fails(scores):
    wrong = np.where(np.isnan(scores[:, 1]), scores[:, 0], scores[:, 1])
    assert len(judge(wrong).failures) >= 2


@pytest.mark.parametrize("n_keys", [3, 30, 300])
def test_two_thousand_rows__cost_a_fraction_of_a_second(n_keys, tmp_path):
    """The processor time of a pair is printed, to be read: a busy machine must not fail it."""
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(2002, 10)))
    keys = {"kind": "file", "path": "rows.npy", "held_out": 2, "standardise": True}
    stated = dict(n_keys=n_keys, n_features=10, head_dim=2, bandwidth=1.0, key_distribution=keys, regression=RIDGE)
    cell = with_contents(tmp_path, **stated, queries={"kind": "held_out", "count": 2})
    assert len(cell.rows.keys) == 2000
    heads, points = (key_projections(cell), query_projections(cell)), query_points(cell)[:1]
    exact_moments(cell, *heads, points)
    start = time.process_time()
    found = exact_moments(cell, *heads, points)
    print(f"\n2000 rows, {n_keys} keys: {time.process_time() - start:.3f} s of processor time for a pair of heads")
    assert found.reason == "" and found.self_check.max() < 1e-8
