"""Verdict of ``make verify``: do Monte Carlo z-scores of exact moments look standard normal, and of wrong ones not?

The name keeps this out of the ordinary test suite.  Seeds are fixed, so a verdict holds until the code or the random
streams change."""

import multiprocessing
import random
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import pytest
from builders import with_contents
from scipy import stats
from zscores import (
    N_CONFIGURATIONS,
    N_QUASI_MONTE_CARLO,
    STATISTICS,
    Configuration,
    Value,
    Verdict,
    configuration,
    exact,
    judge,
    leading,
    noise_only,
    sensitive,
    simulated,
    turned,
    z_score,
)

from simstudy.data.heads import key_projections, query_points, query_projections
from simstudy.theory import exact_moments

CONTROLS = {
    "z_noise_dropped": "noise term dropped",
    "z_signal_dropped": "signal term dropped",
    "z_leading_order": "leading order in place of exact",
}


def row(number: int) -> dict[str, Any]:
    """Simulate one configuration and compare it with the exact theory and with wrong ones; NaN where not wrong."""
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
    start = time.perf_counter()
    # Processes of their own: quadrature does not release the interpreter for long.
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        rows = pd.DataFrame(pool.map(row, range(N_CONFIGURATIONS + N_QUASI_MONTE_CARLO), chunksize=2))
    print(f"\n{len(rows)} configurations in {time.perf_counter() - start:.0f} s")
    return rows


def test_z_scores_of_exact_moments_look_standard_normal(table):
    z = table["z"].to_numpy()
    verdict = judge(z)
    report("exact moments", len(z), verdict)
    assert len(z) >= 200
    assert np.isfinite(z).all()
    # Numerical error of quadrature is a negligible part of the comparison, that of quasi-Monte Carlo is a part of it.
    share = table["numerical_error"] / table["mcse"]
    assert (share[:N_CONFIGURATIONS] < 0.01).all() and share[N_CONFIGURATIONS:].median() < 0.5
    assert verdict.failures == []


def test_keys_that_are_not_gaussian(table):
    other = table[N_CONFIGURATIONS:]
    verdict = judge(other["z"].to_numpy())
    report("exact moments by quasi-Monte Carlo", len(other), verdict)
    assert verdict.failures == []
    assert judge(other["z_signal_dropped"].fillna(other["z"]).to_numpy()).failures


@pytest.mark.parametrize("column", CONTROLS)
def test_a_wrong_theory_fails(table, column):
    """Where the wrong theory says nothing of its own, the z-scores of the right one stay in."""
    z = table[column].fillna(table["z"]).to_numpy()
    verdict = judge(z)
    report(CONTROLS[column], int(table[column].notna().sum()), verdict)
    assert len(verdict.failures) >= 2


def test_one_degree_is_told_apart():
    chosen = sensitive()
    measured = simulated(chosen)
    right, wrong = z_score(measured, exact(chosen)), z_score(measured, turned(chosen))
    bound = stats.norm.isf(0.005)
    print(f"\nheads at 45 degrees: z = {right:+.2f}; by the theory of 46 degrees {wrong:+.2f}; bound {bound:.2f}")
    assert abs(right) < bound < abs(wrong)


def report(theory: str, count: int, verdict: Verdict) -> None:
    low, high = verdict.sd_bounds
    result = f"FAIL ({', '.join(verdict.failures)})" if verdict.failures else "PASS"
    print(
        f"\n{theory}, {count} configurations: {result}\n"
        f"  Anderson-Darling    p = {verdict.anderson_darling:.4f}\n"
        f"  Kolmogorov-Smirnov  p = {verdict.kolmogorov_smirnov:.4f}\n"
        f"  largest |z|         {verdict.largest:.2f} (below {verdict.largest_bound:.2f})\n"
        f"  mean                {verdict.mean:+.3f} (within {verdict.mean_bound:.3f})\n"
        f"  sd                  {verdict.sd:.3f} (in {low:.3f} to {high:.3f})"
    )


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
