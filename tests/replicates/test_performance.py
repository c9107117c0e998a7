"""Measures and their errors against naive formulas on raw replicates; what heads disagree in; blocks of batches."""

import itertools
import math
from typing import Any

import naive
import numpy as np
import pytest
from builders import estimated, minimal_cell
from scipy import stats

from simstudy.attention.members import NO_INDICES, Members
from simstudy.data.heads import key_projections, overlap, query_points
from simstudy.data.shared import SharedData
from simstudy.design.measures import INDICES
from simstudy.replicates.batch import update
from simstudy.replicates.intervals import widening_of
from simstudy.replicates.moments import Moments, empty, stack
from simstudy.replicates.performance import block_lengths, halved, halvings_of, performance, whole_batches
from simstudy.verdicts.estimates import estimates_from

STATISTICS = ("direct_mse", "query_correlation")
N_STATISTICS = 7 + len(STATISTICS)
NOISE = {"regression": "zero", "noise_sd": 0.7, "n_keys": 12, "arrangement": "rotated", "angle": 50.0, "n_heads": 3,
         "head_dim": 1, "batch_size": 16, "queries": {"kind": "points", "points": [[0.0], [0.5, -1.0]]}}  # fmt: skip
N_BATCHES, SIZE, NAMES = 3000, 16, ()
WEIGHTS = np.full(2, 0.5)


def blocks_of(errors: np.ndarray, target: np.ndarray, n_blocks: int, own: Any = 0.0) -> Moments:
    errors = errors[: len(errors) // n_blocks * n_blocks]
    statistics = np.zeros((len(errors), N_STATISTICS))
    statistics[:, -len(STATISTICS) :] = own
    blank = empty(n_blocks, target, errors.shape[2], N_STATISTICS)
    return update(blank, range(n_blocks), 0, Members(errors + target[:, None], None, NO_INDICES, {}), statistics)


@pytest.fixture
def sample() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    mixing = rng.normal(size=(3, 3))
    return rng.exponential(size=(320, 2, 3)) @ mixing - 0.3, np.array([0.5, -1.0])


@pytest.mark.parametrize("weights", [(1 / 3, 1 / 3, 1 / 3), (1.0, 1.0, 1.0), (0.7, -0.2, 0.1)])
@pytest.mark.parametrize(("n_blocks", "broken"), [(320, []), (16, []), (16, [5, *range(40, 59), 300])])
def test_measures__are_those_of_raw_replicates_left_out_block_by_block(sample, weights, n_blocks, broken):
    """Failures leave blocks of unequal length, whose pseudo-values do not weigh alike (Busing et al. 1999)."""
    errors, target = sample
    broken_errors = errors.copy()
    broken_errors[broken, 1, 2] = np.nan
    found = performance(blocks_of(broken_errors, target, n_blocks), np.array(weights), STATISTICS)
    assert (found.n_replicates, found.n_failed) == (320 - len(broken), len(broken))
    of_block = np.delete(np.arange(320) * n_blocks // 320, broken)
    outputs = np.delete(errors, broken, axis=0) + target[:, None]
    whole = naive.performance(outputs, target, weights)
    ratios = len(outputs) / np.bincount(of_block)
    left_out = [naive.performance(outputs[of_block != block], target, weights) for block in range(n_blocks)]
    for name in whole:
        pseudo = ratios * whole[name] - (ratios - 1) * [each[name] for each in left_out]
        estimate = (pseudo / ratios).sum()
        assert found.estimate[name] == pytest.approx(estimate, rel=1e-8), name
        # Those of cells that share data pair replicate by replicate, as errors of differences need.
        share = (pseudo - estimate) / np.sqrt(n_blocks * (ratios - 1))
        np.testing.assert_allclose(found.contribution[name], share, atol=1e-8 * np.abs(share).max())
        of_blocks = np.sqrt((share**2).sum() + found.remainder.get(name, 0.0) ** 2)
        assert found.mcse[name] == pytest.approx(of_blocks, rel=1e-8)
    if n_blocks == 320:
        assert found.estimate["ensemble_variance"] == pytest.approx((outputs @ weights).var(axis=0, ddof=1).mean())


def test_spectral_indices__know_independent_and_identical_heads_and_a_matrix_by_hand():
    """Of a correlation ρ between two heads, eigenvalues are 1 ± ρ; three that agree leave one, 3."""
    rng = np.random.default_rng(5)
    count, rho = 1 << 14, 0.6
    first, second = rng.normal(size=(2, count))
    pair = np.stack([first, rho * first + np.sqrt(1 - rho**2) * second], axis=1)[:, None]

    def indices(errors) -> np.ndarray:
        found = performance(blocks_of(errors, np.zeros(1), 32), np.ones(errors.shape[-1]), STATISTICS)
        return found.estimate["hdi"][-6:-3]

    share = np.array([1 + rho, 1 - rho]) / 2
    expected = [1 / (share**share).prod(), np.sqrt(1 - rho**2), 2 / (1 + rho**2)]
    np.testing.assert_allclose(indices(pair), expected, rtol=0.01)
    np.testing.assert_allclose(indices(rng.normal(size=(count, 1, 3))), [3.0, 1.0, 3.0], rtol=0.002)
    np.testing.assert_allclose(indices(pair[..., :1].repeat(3, axis=2)), [1.0, 0.0, 1.0], atol=1e-5)
    assert np.isnan(indices(pair * np.array([1.0, 0.0]))).all()


@pytest.mark.parametrize("level", [0.0, 1e9, 1e13])
def test_mcse_of_own_numbers__does_not_depend_on_their_level(level):
    numbers = level + np.random.default_rng(2).integers(-9, 9, 4096).astype(float)
    blocks = empty(4096, np.zeros(0), 1, 1)._replace(n_defined=np.ones(4096, np.int64), statistic_sum=numbers[:, None])
    found = performance(blocks, np.ones(1), ("coverage",))
    assert found.mcse["coverage"] * 64.0 == pytest.approx(np.std(numbers - level, ddof=1), rel=1e-12 + 1e-16 * level)


def test_quadratic_part_of_a_squared_bias__is_that_of_the_covariance_of_mean_errors(sample):
    """√(2 Σ S_qq'²)/Q over queries and √2·S_qq at each, S the covariance of the mean errors of blocks."""
    errors, target = sample
    weights = np.array([0.7, -0.2, 0.1])
    found = performance(blocks_of(errors, target, 32), weights, STATISTICS, by_query=True)
    by_block = (errors @ weights).reshape(32, 10, 2).mean(axis=1) + (weights.sum() - 1.0) * target
    covariance = np.cov(by_block.T) / 32
    together = np.sqrt(2 * (covariance**2).sum()) / 2
    assert found.remainder["squared_bias"] == pytest.approx(together)
    linear = np.linalg.norm(found.contribution["squared_bias"])
    assert found.mcse["squared_bias"] == pytest.approx(np.hypot(linear, together))
    mean = by_block.mean(axis=0)
    pseudo = 32 * mean**2 - 31 * ((32 * mean - by_block) / 31) ** 2
    errors_by_query = found.mcse["squared_bias_by_query"]
    assert errors_by_query == pytest.approx(np.hypot(stats.sem(pseudo), np.sqrt(2) * np.diag(covariance)))
    # Of vectors, through maps that heads share in part: of each component, and of heads by themselves.
    through = (maps := np.random.default_rng(4).normal(size=(3, 3))) @ maps.T
    of_vectors = performance(blocks_of(errors, target, 32), weights, STATISTICS, through).remainder
    together, apart = errors * weights @ maps, errors * np.sqrt(np.diag(through))
    for name, each, n_heads in (("squared_bias", together, 1), ("mean_squared_bias", apart, 3)):
        covariance = np.cov(each.reshape(32, 10, -1).mean(axis=1).T) / 32
        assert of_vectors[name] == pytest.approx(np.sqrt(2 * (covariance**2).sum()) / (2 * n_heads))
    # The share that others explain of a head without correlation is a square as well: ± 1.96 errors held 0 in 91 %.
    apart = np.random.default_rng(0).normal(size=(4096, 1, 2))
    remainder = performance(blocks_of(apart, np.zeros(1), 64), np.ones(2), STATISTICS).remainder
    assert remainder["linear_predictability"] == pytest.approx(np.sqrt(2) / 4096, rel=0.5)


@pytest.mark.parametrize("defined", [[4] * 15 + [1], [4, 3] * 6 + [4] * 4, [4] * 15 + [0]])
def test_failure_rate__has_the_larger_of_two_errors(defined):
    """That between blocks, and that of Agresti and Coull, who add two failures and two successes."""
    n_failed = 64 - sum(defined)
    errors = np.random.default_rng(1).normal(size=(64, 1, 1))
    for block, kept in enumerate(defined):
        errors[4 * block + kept : 4 * block + 4] = np.nan
    found = performance(blocks_of(errors, np.zeros(1), 16), np.ones(1), STATISTICS)
    rates = 1 - np.array(defined) / 4
    shrunk = (n_failed + 2) / 68
    assert found.estimate["failure_rate"] == pytest.approx(n_failed / 64)
    assert found.mcse["failure_rate"] == pytest.approx(max(stats.sem(rates), np.sqrt(shrunk * (1 - shrunk) / 68)))
    assert found.contribution["failure_rate"] == pytest.approx((rates - rates.mean()) / np.sqrt(240))


def test_gaps__are_zero_for_covariance_and_ambiguity_and_not_for_other_correlations(sample):
    errors, target = sample
    means = errors + target[:, None]
    direct = (errors.mean(axis=2) ** 2).mean(axis=1)
    moments = blocks_of(errors, target, len(errors), np.stack([direct, np.full(len(errors), 0.25)], axis=1))
    found = performance(moments, np.array([0.5, 0.3, 0.2]), STATISTICS).estimate
    assert found["decomposition_gap"] == pytest.approx(0.0, abs=1e-12)
    assert found["ambiguity_gap"] == pytest.approx(0.0, abs=1e-12)
    # By hand, of the uniform average whatever the weights; here variances of heads differ twofold and more.
    variance = np.trace(np.array([np.cov(means[:, q].T) for q in range(2)]), axis1=1, axis2=2).mean() / 3
    by_hand = ((errors.mean(axis=(0, 2)) ** 2).mean() + variance / 3 + 2 / 3 * 0.25 * variance) / direct.mean() - 1
    assert found["query_correlation_gap"] == pytest.approx(by_hand, abs=0.01)
    assert abs(found["correlation_gap"]) > 0.01 and abs(by_hand) > 0.05


def test_equivalent_heads__are_the_inverse_sum_of_squares_for_heads_alike_and_those_that_are_one_count_as_one():
    for n_heads, one, bias, few in ((1, np.nan, 0.0, 1e-12), (4, 1.0, 0.0, 1e-12), (8, 1.0, 1e5, 1e-4)):
        rng = np.random.default_rng(0)
        errors = bias + rng.normal(size=(64, 2, 1)) * (1 + 1e-7 * rng.normal(size=(64, 2, n_heads)))
        result = performance(blocks_of(errors, np.zeros(2), 16), np.full(n_heads, 1 / n_heads), STATISTICS).estimate
        three = [result[name] for name in ("effective_heads", "correlation", "linear_predictability")]
        assert np.isclose(three, [1.0, one, one], 0.0, [few, few, 0.05], equal_nan=True).all(), three
        assert np.isnan(result["mean_covariance"]) == (n_heads == 1) and np.isnan(result["equivalent_heads"])
    moments = blocks_of(rng.normal(size=(40_000, 1, 3)) + rng.normal(size=(40_000, 1, 1)), np.zeros(1), 80)
    for weights in ([1 / 3] * 3, [0.6, 0.3, 0.1]):
        found = performance(moments, np.array(weights), STATISTICS)
        error = abs(found.estimate["equivalent_heads"] - 1 / np.sum(np.square(weights)))
        assert error < 4 * found.mcse["equivalent_heads"] + 1e-9 and found.mcse["equivalent_heads"] < 0.1


def test_printed_error__is_wider_where_few_blocks_hold_it_or_are_skewed_and_none_of_too_few():
    assert widening_of(np.random.default_rng(0).normal(size=4096)) == pytest.approx(1.0, abs=0.005)
    signs = np.tile([1.0, -1.0], 32)  # no kurtosis at all: Student's t of 63
    assert widening_of(signs) == pytest.approx(stats.t.ppf(0.975, 63) / stats.norm.ppf(0.975))
    few = signs * np.where(np.arange(64) < 4, 10.0, 0.1)  # four blocks: 1/(4/16 - 1/64) degrees
    assert widening_of(few) == pytest.approx(stats.t.ppf(0.975, 1 / (0.25 - 1 / 64)) / stats.norm.ppf(0.975), rel=2e-3)
    skewed = np.random.default_rng(1).exponential(size=64) - 1.0
    assert widening_of(skewed) == pytest.approx(widening_of(-skewed)) and widening_of(skewed) > 1.15
    assert np.isnan(widening_of(signs[:31])) and np.isfinite(widening_of(signs[:32]))


def measured(**settings):
    return estimated(minimal_cell(**NOISE | settings))


def index(found, name):
    return found.estimate["hdi"][INDICES.index(name)], found.mcse["hdi"][INDICES.index(name)]


def test_disagreement_of_positions__is_the_error_under_noise_alone_and_blank_where_moments_do_not_tell_it():
    found, cell, together = measured(), minimal_cell(**NOISE), []
    for keys, x in itertools.product(SharedData(cell, 0, 16).keys(cell.data.n_keys), query_points(cell)):
        weights = [naive.weights(keys.T, x, w, w, cell.bandwidth, "distance") for w in key_projections(cell)]
        together += [one @ other for one in weights for other in weights]
    value, error = index(found, "disagreement_positions")
    assert value == pytest.approx(-np.mean(together), rel=1e-6)
    assert found.estimate["mse"] == pytest.approx(-(0.7**2) * value, rel=1e-9)
    assert error == pytest.approx(found.mcse["mse"] / 0.7**2, rel=1e-9) and error > 0
    # The control: with a signal the error is another; the overlap of attention is the same.
    signal = measured(regression="linear")
    assert index(signal, "disagreement_positions")[0] == pytest.approx(value, rel=1e-9)
    assert signal.estimate["mse"] > 1.5 * found.estimate["mse"]
    for settings in ({"noise_treatment": "drawn"}, {"noise_sd": 0.0}, {"noise": {"kind": "heteroscedastic"}}):
        assert np.isnan(index(measured(**settings), "disagreement_positions")[0]), settings


def test_disagreement_of_outputs_and_predictability__are_cosines_and_regressions_on_the_other_heads(sample):
    errors, target = sample
    found = performance(blocks_of(errors, target, len(errors)), np.full(3, 1 / 3), STATISTICS)
    outputs = errors + target[:, None]
    cosines = []
    for h, g in itertools.product(range(3), repeat=2):
        one, other = outputs[..., h].ravel(), outputs[..., g].ravel()
        cosines.append(sum(one * other) / math.sqrt(sum(one * one) * sum(other * other)))
    value, error = index(found, "disagreement_outputs")
    assert value == pytest.approx(-np.mean(cosines), abs=0.2 * error)
    assert index(found, "output")[0] == pytest.approx(1 - found.estimate["correlation"])
    # The control: errors in the place of outputs are another thing by far.
    assert abs(value + np.mean([np.corrcoef(errors[:, q].T) for q in range(2)])) > 5 * error
    single = performance(blocks_of(errors[:, :1], target[:1], len(errors)), np.ones(3), STATISTICS)
    values = errors[:, 0] - errors[:, 0].mean(axis=0)
    explained = []
    for h in range(3):
        others = np.delete(values, h, axis=1)
        rest = values[:, h] - others @ np.linalg.lstsq(others, values[:, h], rcond=None)[0]
        explained.append(1 - (rest @ rest) / (values[:, h] @ values[:, h]))
    value, error = (getattr(single, part)["linear_predictability"] for part in ("estimate", "mcse"))
    assert value == pytest.approx(np.mean(explained), abs=0.2 * error) and 0 < error < 0.1
    correlation = np.corrcoef(values.T)[np.triu_indices(3, 1)]
    assert abs(np.mean(explained) - (correlation**2).mean()) > 3 * error  # of three heads it is no mean of pairs


def test_disagreement_of_values__is_that_of_the_maps_of_heads():
    assert index(measured(), "disagreement_values") == (-1.0, 0.0) and index(measured(), "chordal")[1] == 0.0
    cell = minimal_cell(**NOISE, value_projections={"kind": "random", "n_components": 6, "value_dim": 3})
    found, products = estimated(cell), overlap(cell)
    cosines = [products[h][g] / math.sqrt(products[h][h] * products[g][g]) for h in range(3) for g in range(3)]
    value, error = index(found, "disagreement_values")
    assert value == pytest.approx(-np.mean(cosines), rel=1e-12) and error < 1e-12
    assert value > -0.9
    # Values and positions enter the error as a product of the two, pair by pair.
    assert found.estimate["mse"] != pytest.approx(-(0.7**2) * index(found, "disagreement_positions")[0], rel=0.01)


def some_batches(n: int, seed: int = 0, n_queries: int = 1) -> list[Moments]:
    errors = np.random.default_rng(seed).normal(0.1, 1.0, (n, 16, 1, n_queries, 2)) * [1.0, 0.5]
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
    # The last block, which is shorter, counts by its length.
    blocks, lengths = halved(stack(batches), halvings_of(N_BATCHES)), block_lengths(N_BATCHES)

    def share(values):
        ratio = lengths.sum() / lengths
        return (values - np.average(values, weights=lengths)) / np.sqrt(ratio * (ratio - 1))

    bias = share(blocks.error_sum[:, 0] @ WEIGHTS / lengths)
    np.testing.assert_allclose(found.contribution["mse"], share(blocks.product_sum[:, 0] @ [0.25, 0.5, 0.25] / lengths))
    assert found.remainder["squared_bias"] == pytest.approx(2**0.5 * bias @ bias)
    kept = lengths - np.arange(len(lengths)) % 3
    some = blocks._replace(n_defined=kept, failed=np.zeros((lengths - kept).sum(), int))
    failures = performance(some, WEIGHTS, NAMES, lengths=lengths).contribution["failure_rate"]
    np.testing.assert_allclose(failures, share(1 - kept / lengths), rtol=1e-9)


def test_cells_of_one_stream__are_paired_by_the_longest_blocks_that_either_has():
    """Their covariance is the variance of the larger: the smaller one's error is that and an independent part."""
    covariance, degrees = [], []
    for seed in range(20):
        batches = some_batches(N_BATCHES, seed)
        both = estimates_from([{}] * 2, [(0, SIZE)] * 2, [folded(batches[:700]), folded(batches)], "mse")
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
