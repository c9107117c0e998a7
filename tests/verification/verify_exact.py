"""Verdict of ``make verify``: do Monte Carlo z-scores of exact moments look standard normal, and of wrong ones not?

The name keeps this out of the ordinary test suite.  Seeds are fixed, so a verdict holds until the code or the random
streams change."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import pytest
from zscores import (
    N_CONFIGURATIONS,
    N_QUASI_MONTE_CARLO,
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
