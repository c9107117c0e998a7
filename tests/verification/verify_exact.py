"""Verdict of ``make verify``: do Monte Carlo z-scores of exact moments look standard normal, and of wrong ones not?

The name keeps this out of the ordinary test suite.  Seeds are fixed, so a verdict holds until the code or the random
streams change.
"""

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from zscores import (
    N_CONFIGURATIONS,
    N_QUASI_MONTE_CARLO,
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
