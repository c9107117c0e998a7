"""Part of ``make verify``: exact moments over rows of real data against simulations that draw these rows."""

import time

import numpy as np
import pytest
from builders import minimal_cell
from own_data import N_OWN_DATA, RIDGE, own_data
from zscores import exact, judge, noise_only, simulated, z_score

from simstudy.data.heads import key_projections, query_points, query_projections
from simstudy.design.contents import read_contents
from simstudy.theory import exact_moments


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
    cell, problems = read_contents(minimal_cell(**stated, queries={"kind": "held_out", "count": 2}), tmp_path)
    assert not problems and len(cell.rows.keys) == 2000
    heads, points = (key_projections(cell), query_projections(cell)), query_points(cell)[:1]
    exact_moments(cell, *heads, points)
    start = time.process_time()
    found = exact_moments(cell, *heads, points)
    print(f"\n2000 rows, {n_keys} keys: {time.process_time() - start:.3f} s of processor time for a pair of heads")
    assert found.reason == "" and found.self_check.max() < 1e-8
