"""Part of ``make verify``: exact moments over rows of real data against simulations that draw these rows."""

from __future__ import annotations

import time

import numpy as np
import pytest
from own_data import N_OWN_DATA, own_data
from zscores import exact, judge, noise_only, simulated, z_score


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
