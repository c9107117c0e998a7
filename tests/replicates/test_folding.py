"""Blocks of many batches: 128 at most, whose errors are those of all blocks."""

import numpy as np
import pytest

from simstudy.replicates.moments import Moments, stack
from simstudy.replicates.performance import block_lengths, halved, halvings_of, performance, whole_batches
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
    blocks = halved(stack(batches), halvings_of(len(batches)))
    return performance(blocks, WEIGHTS, NAMES, lengths=block_lengths(len(batches)))


@pytest.mark.parametrize("n", [1, 8, 9, 16, 17, 64, 1250, 10**6])
def test_blocks__are_as_many_as_can_be_and_of_one_length_but_the_last(n):
    lengths = block_lengths(n)
    assert lengths.sum() == 16 * n and len(lengths) <= 128 and (len(lengths) > 64 or n <= 4)
    assert (lengths[:-1] == 2 ** halvings_of(n)).all() and 0 < lengths[-1] <= lengths[0]
    assert halvings_of(n) == 0 or n > 8
    assert whole_batches(n) <= n and 16 * whole_batches(n) % lengths[0] == 0


@pytest.mark.parametrize("earlier", [9, 100, 1250, 2999])
def test_fold__is_the_same_to_the_bit_whatever_was_folded_before(earlier):
    batches = some_batches(N_BATCHES, n_queries=3)
    whole, times, before = halved(stack(batches), halvings_of(N_BATCHES)), halvings_of(earlier), whole_batches(earlier)
    parts = [halved(stack(batches[:before]), times), halved(stack(batches[before:]), times)]
    for one, other in zip(whole, halved(stack(parts), halvings_of(N_BATCHES) - times), strict=True):
        assert one.tobytes() == other.tobytes()
    np.testing.assert_allclose(whole.product_sum.sum(axis=0), stack(batches).product_sum.sum(axis=0), rtol=1e-12)


def test_errors__are_those_of_all_blocks():
    batches = some_batches(N_BATCHES)
    found, fine = folded(batches), performance(stack(batches), WEIGHTS, NAMES)
    assert found.n_blocks == fine.n_blocks == 16 * N_BATCHES and len(found.contribution["mse"]) <= 128
    for name in ("mse", "mean_variance", "squared_bias", "correlation", "failure_rate"):
        assert found.estimate[name] == pytest.approx(fine.estimate[name], rel=1e-3)
        assert found.mcse[name] == pytest.approx(fine.mcse[name], rel=0.25), name


def test_cells_of_one_stream__are_paired_by_the_longest_blocks_that_either_has():
    """Their covariance is the variance of the larger: the smaller one's error is that and an independent part."""
    covariance, degrees = [], []
    for seed in range(20):
        batches = some_batches(N_BATCHES, seed)
        measured = [folded(batches[:700]), folded(batches)]
        both = estimates_from([{}] * 2, [(0, SIZE)] * 2, measured, "mse")
        shares = both.placed([0, 1])
        covariance.append(shares.T @ shares)
        degrees.append(both.combine({0: 1.0, 1: -1.0}).degrees)
        assert both.combine({0: 1.0}).degrees == len(block_lengths(700)) - 1
    mean = np.mean(covariance, axis=0)
    assert mean[0, 1] == pytest.approx(mean[1, 1], rel=0.15)
    assert mean[0, 0] == pytest.approx(mean[1, 1] * N_BATCHES / 700, rel=0.15)
    assert set(degrees) == {np.ceil(700 * 16 / block_lengths(N_BATCHES)[0]) - 1}


def test_beside_a_population__cells_contribute_by_batch_or_by_several():
    fixed = folded(some_batches(64))
    share = np.random.default_rng(1).normal(size=64)
    drawn = fixed._replace(contribution={"mse": share}, by_batch=True, n_blocks=64, block_length=16)
    both = estimates_from([{}] * 2, [(0, SIZE)] * 2, [fixed, drawn], "mse")
    of_fixed, of_drawn = both.placed([0, 1]).T
    assert both.n_blocks.tolist() == [64, 64] and of_drawn.tolist() == share.tolist()
    assert of_fixed.tolist() == fixed.contribution["mse"].reshape(64, 2).sum(axis=1).tolist()
    many = folded(some_batches(1250))
    long = drawn._replace(contribution={"mse": np.ones(1250)}, n_blocks=1250)
    of_many, of_long = estimates_from([{}] * 2, [(0, SIZE)] * 2, [many, long], "mse").placed([0, 1]).T
    assert of_many.tolist() == many.contribution["mse"].tolist() and of_long.tolist() == [16.0] * 78 + [2.0]
