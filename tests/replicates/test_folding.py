"""Blocks of many batches: some thousands, whose errors are those of all blocks."""

import numpy as np
import pytest

from simstudy.replicates.moments import Moments, stack
from simstudy.replicates.performance import block_lengths, block_starts, fold, performance, whole_blocks
from simstudy.verdicts.estimates import estimates_from

N_BATCHES, SIZE, NAMES = 3000, 16, ()
WEIGHTS = np.full(2, 0.5)


def some_batches(n: int, seed: int = 0, n_queries: int = 1) -> list[Moments]:
    rng = np.random.default_rng(seed)
    errors = rng.normal(0.1, 1.0, (n, 16, 1, n_queries, 2)) * [1.0, 0.5]
    products = errors[..., [0, 0, 1]] * errors[..., [0, 1, 1]]
    defined, target, none = np.ones(16, np.int64), np.zeros(n_queries), np.zeros(0, np.int64)
    return [
        Moments(defined, e, p, np.zeros((16, 7)), np.concatenate([e, p], axis=-1), target, none)
        for e, p in zip(errors.sum(axis=2), products.sum(axis=2), strict=True)
    ]


def folded(batches: list[Moments]):
    return performance(fold(batches), WEIGHTS, NAMES, lengths=block_lengths(len(batches)))


@pytest.fixture
def few(monkeypatch):
    """Of these, blocks are folded from 32 batches on."""
    monkeypatch.setattr("simstudy.replicates.performance.FINE_BATCHES", 32)


def test_blocks__are_bounded_and_begin_alike_whatever_comes_after():
    assert block_starts(4096).tolist() == list(range(4096))
    lengths = block_lengths(10**6)
    assert len(lengths) < 40_000 and lengths.sum() == 16 * 10**6 and lengths.max() < 0.001 * lengths.sum()
    assert (np.diff(lengths[:-1]) >= 0).all() and (lengths[:-1] % 16 < 2).all()
    starts = block_starts(16 * 10**6)
    for n in (1, 256, 257, 10_000, 10_001, 200_000):
        assert np.array_equal(block_starts(16 * n), starts[: len(block_starts(16 * n))])
        assert whole_blocks(n) * 16 in starts and n - n // 100 <= whole_blocks(n) <= n


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("n_queries", [1, 3])
def test_fold__is_the_same_in_any_parts(n_queries):
    batches = some_batches(N_BATCHES, n_queries=n_queries)
    whole, parts, done = fold(batches), [], 0
    for wanted in (4, 33, 700, 1111, N_BATCHES):
        stop = whole_blocks(wanted) if wanted < N_BATCHES else wanted
        parts.append(fold(batches[done:stop], done))
        done = stop
    for one, other in zip(whole, stack(parts), strict=True):
        assert one.tobytes() == other.tobytes()
    assert len(whole.n_defined) == len(block_lengths(N_BATCHES)) < 2000
    np.testing.assert_allclose(whole.product_sum.sum(axis=0), stack(batches).product_sum.sum(axis=0), rtol=1e-12)


@pytest.mark.usefixtures("few")
def test_errors__are_those_of_all_blocks():
    batches = some_batches(N_BATCHES)
    found, fine = folded(batches), performance(stack(batches), WEIGHTS, NAMES)
    assert found.n_blocks == fine.n_blocks == 16 * N_BATCHES and len(found.contribution["mse"]) < 2000
    for name in ("mse", "mean_variance", "squared_bias", "correlation", "failure_rate"):
        assert found.estimate[name] == pytest.approx(fine.estimate[name], rel=1e-4)
        assert found.mcse[name] == pytest.approx(fine.mcse[name], rel=0.1), name


@pytest.mark.usefixtures("few")
def test_cell_with_fewer_batches__is_paired_with_the_first_of_another():
    """Their covariance is the variance of the larger: the smaller one's error is that and an independent part."""
    batches = some_batches(N_BATCHES)
    measured = [folded(batches[:700]), folded(batches)]
    placed = estimates_from([{}] * 2, [(0, SIZE)] * 2, measured, "mse").placed([0, 1])
    covariance = placed.T @ placed
    assert covariance[0, 1] == pytest.approx(covariance[1, 1], rel=0.15)
    assert covariance[0, 0] == pytest.approx(covariance[1, 1] * N_BATCHES / 700, rel=0.15)


@pytest.mark.usefixtures("few")
def test_beside_a_population__cells_contribute_by_batch(monkeypatch):
    monkeypatch.setattr("simstudy.verdicts.estimates.FINE_BATCHES", 32)
    batches = some_batches(N_BATCHES)
    fixed = folded(batches)
    share = np.random.default_rng(1).normal(size=N_BATCHES)
    drawn = fixed._replace(contribution={"mse": share}, by_batch=True, n_blocks=N_BATCHES)
    both = estimates_from([{}] * 2, [(0, SIZE)] * 2, [fixed, drawn], "mse")
    of_fixed, of_drawn = both.placed([0, 1]).T
    assert len(of_fixed) == len(np.unique(block_starts(16 * N_BATCHES) // 16))
    assert both.n_blocks.tolist() == [N_BATCHES] * 2
    assert of_fixed.sum() == pytest.approx(fixed.contribution["mse"].sum(), abs=1e-12)
    assert of_drawn[:512].tolist() == share[:512].tolist()
    assert of_drawn[512] == pytest.approx(share[512:528].sum())
