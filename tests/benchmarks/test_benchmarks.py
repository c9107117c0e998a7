"""The benchmarks compute what they claim, and the runner runs: everything once, tiny."""

from dataclasses import replace
from functools import partial

import contests
import limits
import naive
import numpy as np
import precision
import pytest
import recorded
import simulations
import workloads
from builders import run
from peers import PEERS
from workloads import TINY

SMALL = replace(TINY, replicates=16)


@pytest.fixture(scope="module", params=[("distance", 5), ("dot_product", 5), ("dot_product", 3)])
def arrays(request):
    return workloads.draw(replace(TINY, **dict(zip(("logits", "queries"), request.param, strict=True))))


@pytest.fixture(scope="module")
def expected(arrays):
    """Means and Gram matrices by loops."""
    keys, values, u, points = (x.astype(float) for x in (arrays.keys, arrays.values, arrays.projections, arrays.points))
    projected, queries = np.einsum("rdn,hdp->rhnp", keys, u), np.einsum("qd,hdp->qhp", points, u)
    found = [naive.moments({"logits": arrays.logits}, k, y, np.ones(len(y)), queries, arrays.bandwidth)
             for k, y in zip(projected, values, strict=True)]  # fmt: skip
    return [np.array(each) for each in zip(*found, strict=True)]


def close(found, expected):
    return np.abs(np.asarray(found) - expected).max() < 1e-5 * np.abs(expected).max()


def require_right(estimates, means, grams, expected):
    assert close(estimates, expected[0]) and close(means, expected[0]) and close(grams, expected[1])


def test_own_jobs__give_the_right_values(arrays, expected):
    require_right(workloads.by_us(arrays, False), *workloads.by_us(arrays, True), expected)
    wrong = replace(arrays, bandwidth=1.01 * arrays.bandwidth)
    assert not close(workloads.by_us(wrong, False), expected[0])
    assert not close(workloads.by_us(wrong, True)[1], expected[1])


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_peers__give_the_right_values_and_whole_jobs_compute_on_new_data(peer, arrays, expected):
    if peer.missing or (peer.name == "C" and arrays.logits != "distance"):
        pytest.skip(peer.missing or "of distances alone")
    alone, both = (peer.job(arrays, with_gram)(arrays.keys, arrays.values) for with_gram in (False, True))
    require_right(alone, *both, expected)
    if peer.drawn is None:
        return
    keys, noise = peer.drawn(SMALL)()
    assert keys.shape == (16, SMALL.features, SMALL.keys) and noise.shape == (16, SMALL.keys)
    assert abs(keys.std() - 1) < 0.05 and abs(noise.std() - 1) < 0.2
    job = contests.peer_job(peer, SMALL, "whole W0")
    assert not np.array_equal(job(), job())


def test_limits_and_bounds__are_rates_of_the_work_named_counted_by_hand():
    job, count = limits.issue_job("float32")
    assert 1e9 < count / min(limits.interleaved([job], 5)[0]) < 1e12
    size = replace(TINY, keys=1, features=3, heads=2, queries=1, p=4)
    assert limits.operations_needed(size, False) == 2 * (4 * 3 + 4 + 5 + 6 + 2)
    assert limits.operations_needed(size, True) == 2 * (4 * 3 + 4 + 5 + 6 + 1 + 2 + 1.5)
    assert limits.operations_needed(replace(size, dtype="float64"), False) == 2 * (4 * 3 + 4 + 11 + 6 + 2)


def test_runner__makes_the_table_and_names_missing_peers(monkeypatch):
    monkeypatch.setattr(contests.workloads, "LAYERS", [replace(SMALL, logits="dot_product")])
    monkeypatch.setattr(contests.workloads, "POPULATIONS", contests.workloads.POPULATIONS[:1])
    for name in ("scaling_rows", "few_query_rows"):
        monkeypatch.setattr(contests, name, partial(getattr(contests, name), n=128))
    for name in ("simulations.simulation", "inspections.inspection", "precision.control", "precision.expansion"):
        monkeypatch.setattr(f"{name}_rows", lambda *_: iter(()))
    rows = list(contests.all_rows([SMALL], 1))
    assert {row.work for row in rows} == set(contests.WORKS)
    assert all(recorded.line(row).count("|") == recorded.HEAD.splitlines()[-1].count("|") for row in rows)
    monkeypatch.setattr(contests, "PEERS", (replace(PEERS[0], name="absent", needs="no_such_module"),))
    first = next(iter(contests.contest_rows(SMALL, "W0", 1)))
    assert first.value is None and "no_such_module is not installed" in first.unit


def test_share_that_fell_by_a_third_and_ratio_below_85_percent__are_named(monkeypatch):
    shares = [limits.spread([factor * 0.43]) for factor in (1.0, 0.72, 0.66)]
    rows = [limits.Row("W1", "S2 float32", recorded.SHARE, share, "1") for share in shares]
    assert recorded.lost(rows, recorded.CLASSES[2]) == [f"W1 S2 float32, {recorded.SHARE}: 0.28, recorded 0.43"]
    assert recorded.lost(rows, "another") == []
    rows = [limits.Row("W0", "S1", recorded.BEST, limits.spread([ratio]), "times") for ratio in (3.5, 3.3)]
    assert recorded.lost(rows, recorded.CLASSES[0]) == [f"W0 S1, {recorded.BEST}: 3.30, recorded 3.90"]


def test_precision_and_numpy_with_a_mask__compare_two_ways_to_the_same_numbers():
    name = "noise, 100 keys, 2 heads at 60°"
    found = list(precision.expansion_rows({name: precision.CELLS[name]}))  # which checks the rival
    assert len(found) == 4 and all(row.value.low > 0 for row in found)
    ours = contests._heads(40, 2, 33, 8, visible=np.eye(33, 40, dtype=bool) | (np.arange(40) % 3 == 0))
    assert close(contests._numpy_masked(ours)(), ours()[0][0])


@pytest.mark.parametrize("one_by_one", [False, True])
def test_simulation_by_hand__estimates_the_same(tmp_path, monkeypatch, one_by_one):
    monkeypatch.setattr(simulations, "BATCH", 1024)
    methods = (simulations.mean, simulations.jackknifed)[: 2 if one_by_one else 1]
    how = methods, (12,), 2 * simulations.BATCH, one_by_one  # 32 blocks, the fewest that have a printed error
    found = run(simulations.design_of(tmp_path, *how), output=tmp_path, executor="serial")
    by_hand = simulations.by_hand(*how)[0, :, :, 1].ravel()
    errors = found.mean_squared_error_mcse.values
    assert (np.abs(found.mean_squared_error.sel(source="empirical").values - by_hand) < 6 * errors).all()
    assert (errors < 0.05 * by_hand).all()
