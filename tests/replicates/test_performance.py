"""Measures against naive formulas on raw replicates, and Monte Carlo errors against repeated studies."""

import naive
import numpy as np
import pytest
from scipy import stats

from simstudy.replicates.intervals import widening_of
from simstudy.replicates.moments import Moments, empty, update
from simstudy.replicates.performance import performance

STATISTICS = ("direct_mse", "query_correlation")
N_STATISTICS = 7 + len(STATISTICS)


def blocks_of(errors: np.ndarray, target: np.ndarray, n_blocks: int) -> Moments:
    errors = errors[: len(errors) // n_blocks * n_blocks]
    statistics = np.zeros((len(errors), N_STATISTICS))
    blank = empty(n_blocks, target, errors.shape[2], N_STATISTICS)
    return update(blank, range(n_blocks), 0, errors + target[:, None], None, None, statistics)


N_STUDIES = 500


@pytest.fixture
def sample() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    mixing = rng.normal(size=(3, 3))
    errors = rng.exponential(size=(320, 2, 3)) @ mixing - 0.3
    return errors, np.array([0.5, -1.0])


@pytest.mark.parametrize("weights", [(1 / 3, 1 / 3, 1 / 3), (1.0, 1.0, 1.0), (0.7, -0.2, 0.1)])
def test_measures__equal_textbook_formulas_on_raw_replicates(sample, weights):
    """With blocks of one replicate the jackknife estimates are the textbook ones; longer blocks differ by O(1/R)."""
    errors, target = sample
    single = performance(blocks_of(errors, target, len(errors)), np.array(weights), STATISTICS)
    blocks = performance(blocks_of(errors, target, 32), np.array(weights), STATISTICS)
    expected = naive.performance(errors + target[:, None], target, weights)
    for name in ("squared_bias", "mean_variance", "mean_covariance", "ensemble_variance", "mse"):
        assert single.estimate[name] == pytest.approx(expected[name], rel=1e-10), name
    for name in expected:  # for ratios the jackknife also removes a bias of order 1/R
        for result in (single, blocks):
            assert result.estimate[name] == pytest.approx(expected[name], abs=0.2 * float(result.mcse[name])), name


def test_spectral_indices__know_independent_and_identical_heads_and_a_matrix_by_hand():
    """Of a correlation ρ between two heads, eigenvalues are 1 ± ρ; three that agree leave one, 3."""
    rng = np.random.default_rng(5)
    count, rho = 1 << 14, 0.6
    first, second = rng.normal(size=(2, count))
    pair = np.stack([first, rho * first + np.sqrt(1 - rho**2) * second], axis=1)[:, None]

    def indices(errors) -> np.ndarray:
        n_heads = errors.shape[-1]
        found = performance(blocks_of(errors, np.zeros(1), 32), np.full(n_heads, 1 / n_heads), STATISTICS)
        return found.estimate["hdi"][-6:-3]

    share = np.array([1 + rho, 1 - rho]) / 2
    expected = [1 / (share**share).prod(), np.sqrt(1 - rho**2), 2 / (1 + rho**2)]
    np.testing.assert_allclose(indices(pair), expected, rtol=0.01)
    np.testing.assert_allclose(indices(rng.normal(size=(count, 1, 3))), [3.0, 1.0, 3.0], rtol=0.002)
    np.testing.assert_allclose(indices(pair[..., :1].repeat(3, axis=2)), [1.0, 0.0, 1.0], atol=1e-5)
    constant = pair * np.array([1.0, 0.0])
    assert np.isnan(indices(constant)).all()


def test_mcse__is_that_of_the_influence_values(sample):
    """The jackknife over blocks of one replicate is the textbook MCSE of the mean squared error: sd(e²)/√R."""
    errors, target = sample
    weights = np.full(3, 1 / 3)
    result = performance(blocks_of(errors, target, len(errors)), weights, STATISTICS)
    influence = ((errors @ weights) ** 2).mean(axis=1)
    assert result.mcse["mse"] == pytest.approx(influence.std(ddof=1) / np.sqrt(len(errors)), rel=1e-10)


@pytest.mark.parametrize("level", [0.0, 1e9, 1e13])
def test_mcse_of_own_numbers__does_not_depend_on_their_level(level):
    """By leaving blocks out of sums, numbers of 1e13 lost half of the digits of their differences."""
    numbers = level + np.random.default_rng(2).integers(-9, 9, 4096).astype(float)
    blocks = empty(4096, np.zeros(0), 1, 1)._replace(n_defined=np.ones(4096, np.int64), statistic_sum=numbers[:, None])
    found = performance(blocks, np.ones(1), ("coverage",))
    expected = np.std(numbers - level, ddof=1) / 64.0
    assert found.mcse["coverage"] == pytest.approx(expected, rel=1e-12 + 1e-16 * level)


@pytest.mark.parametrize("n_heads", [1, 4])
def test_heads_that_are_one__count_as_one_and_a_single_one_has_no_pairs(n_heads):
    errors = np.random.default_rng(0).normal(size=(64, 2, 1)).repeat(n_heads, axis=2)
    result = performance(blocks_of(errors, np.zeros(2), 16), np.full(n_heads, 1 / n_heads), STATISTICS).estimate
    assert result["effective_heads"] == pytest.approx(1.0, abs=1e-12)
    assert result["correlation"] == pytest.approx(1.0 if n_heads > 1 else np.nan, abs=1e-12, nan_ok=True)
    assert np.isnan(result["mean_covariance"]) == (n_heads == 1)


def test_failed_replicates__are_counted_kept_and_left_out(sample):
    errors, target = sample
    broken = errors.copy()
    broken[[5, 300], 1, 2] = np.nan
    moments = blocks_of(broken, target, 16)
    assert moments.failed.tolist() == [5, 300]
    kept = np.delete(errors, [5, 300], axis=0)
    result = performance(moments, np.full(3, 1 / 3), STATISTICS)
    assert (result.n_replicates, result.n_failed) == (318, 2)
    assert result.estimate["mse"] == pytest.approx(((kept.mean(axis=2)) ** 2).mean(), rel=2e-3)


def test_unequal_blocks__stay_unbiased_with_the_right_error():
    """Failures leave blocks of unequal length: means of pseudo-values must not weigh them alike."""
    sizes, rng, results = [1] * 12 + [60] * 4, np.random.default_rng(8), []
    edges = np.concatenate([[0], np.cumsum(sizes)])
    for _ in range(N_STUDIES):
        errors = rng.exponential(size=(edges[-1], 1, 1)) - 0.7
        sums = np.add.reduceat(errors, edges[:-1]), np.add.reduceat(errors**2, edges[:-1])
        blocks = empty(len(sizes), np.zeros(1), 1, N_STATISTICS)
        blocks = blocks._replace(n_defined=np.array(sizes), error_sum=sums[0], product_sum=sums[1])
        results.append(performance(blocks, np.ones(1), STATISTICS))
    for name, truth in (("squared_bias", 0.09), ("ensemble_variance", 1.0), ("mse", 1.09)):
        values = np.array([float(result.estimate[name]) for result in results])
        assert abs(values.mean() - truth) < 4 * values.std() / np.sqrt(len(values)), name
        mcse = np.array([float(result.mcse[name]) for result in results])
        assert 0.8 < np.sqrt((mcse**2).mean()) / values.std() < 1.5, name


def test_quadratic_part_of_a_squared_bias__is_that_of_the_covariance_of_mean_errors(sample):
    """√(2 Σ S_qq'²)/Q over queries and √2·S_qq at each, S the covariance of the mean errors of blocks."""
    errors, target = sample
    weights = np.array([0.7, -0.2, 0.1])
    found = performance(blocks_of(errors, target, 32), weights, STATISTICS)
    by_block = (errors @ weights).reshape(32, 10, 2).mean(axis=1) + (weights.sum() - 1.0) * target
    covariance = np.cov(by_block.T) / 32
    together = np.sqrt(2 * (covariance**2).sum()) / 2
    assert found.remainder["squared_bias"] == pytest.approx(together)
    linear = np.linalg.norm(found.contribution["squared_bias"])
    assert found.mcse["squared_bias"] == pytest.approx(np.hypot(linear, together))
    mean = by_block.mean(axis=0)
    pseudo = 32 * mean**2 - 31 * ((32 * mean - by_block) / 31) ** 2
    by_query = np.hypot(stats.sem(pseudo), np.sqrt(2) * np.diag(covariance))
    assert found.mcse["squared_bias_by_query"] == pytest.approx(by_query)
    # Of heads by themselves, each with a value vector of its own length.
    lengths = np.array([1.0, 2.0, 3.0])
    of_heads = performance(blocks_of(errors, target, 32), weights, STATISTICS, np.diag(lengths**2))
    covariance = np.cov((errors * lengths).reshape(32, 10, -1).mean(axis=1).T) / 32
    assert of_heads.remainder["mean_squared_bias"] == pytest.approx(np.sqrt(2 * (covariance**2).sum()) / (2 * 3))


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
    expected = max(stats.sem(rates), np.sqrt(shrunk * (1 - shrunk) / 68))
    assert found.mcse["failure_rate"] == pytest.approx(expected)
    assert found.contribution["failure_rate"] == pytest.approx((rates - rates.mean()) / np.sqrt(240))


def test_too_few_blocks__are_refused():
    single = blocks_of(np.ones((4, 1, 1)), np.zeros(1), 1)
    with pytest.raises(ValueError, match="at least 2"):
        performance(single, np.ones(1), STATISTICS)
    with pytest.raises(ValueError, match="at least 2"):
        performance(empty(16, np.zeros(1), 2, N_STATISTICS), np.full(2, 0.5), STATISTICS)


N_REPLICATES = 512
MIXING = np.array([[1.0, 0.4], [0.2, 0.8]])
OFFSET = np.array([0.7, 0.3])
TRUTH_COVARIANCE = MIXING.T @ MIXING


def truths() -> dict[str, float]:
    ensemble, square = TRUTH_COVARIANCE.sum() / 4, OFFSET.mean() ** 2
    variance, covariance = np.trace(TRUTH_COVARIANCE) / 2, TRUTH_COVARIANCE[0, 1]
    return {
        "squared_bias": square, "mean_squared_bias": (OFFSET**2).mean(), "mean_variance": variance,
        "mean_covariance": covariance, "ensemble_variance": ensemble, "mse": square + ensemble,
        "ambiguity": (OFFSET**2).mean() - square + variance - ensemble, "effective_heads": variance / ensemble,
        "correlation": covariance / np.sqrt(TRUTH_COVARIANCE[0, 0] * TRUTH_COVARIANCE[1, 1]),
    }  # fmt: skip


def repeated_studies(offset: np.ndarray = OFFSET) -> list[np.ndarray]:
    rng = np.random.default_rng(11)
    return [(rng.exponential(size=(N_REPLICATES, 1, 2)) - 1.0) @ MIXING + offset for _ in range(N_STUDIES)]


def covers(estimate: float, mcse: float, truth: float, degrees: int) -> bool:
    return abs(estimate - truth) <= stats.t.ppf(0.975, degrees) * mcse


BAND = 4 * np.sqrt(0.95 * 0.05 / N_STUDIES)
"""Four standard errors of the share of studies that cover."""


def test_mcse__95_percent_intervals_cover_95_percent():
    """Nominal intervals from 32 blocks; skewed estimates may lose a little, as any interval at this size does."""
    hits = dict.fromkeys(truths(), 0)
    for errors in repeated_studies():
        result = performance(blocks_of(errors, np.zeros(1), 32), np.full(2, 0.5), STATISTICS)
        for name, truth in truths().items():
            hits[name] += covers(float(result.estimate[name]), float(result.mcse[name]), truth, 31)
    for name, count in hits.items():
        assert abs(count / N_STUDIES - 0.95) <= BAND + 0.015, f"{name}: {count / N_STUDIES}"


def test_squared_bias_near_zero__is_not_found_where_there_is_none():
    """The influence values of b̂² vanish with b̂ (the mean error has MCSE 0.03 here): the quadratic part must cover."""
    hits = linear_hits = 0
    for errors in repeated_studies(np.zeros(2)):
        result = performance(blocks_of(errors, np.zeros(1), 32), np.full(2, 0.5), STATISTICS)
        estimate, mcse = float(result.estimate["squared_bias"]), float(result.mcse["squared_bias"])
        hits += covers(estimate, mcse, 0.0, 31)
        linear = np.sqrt((result.contribution["squared_bias"] ** 2).sum())
        linear_hits += covers(estimate, linear, 0.0, 31)
    assert hits / N_STUDIES > 0.95 - BAND > linear_hits / N_STUDIES  # the control: influence values alone do not cover


def test_paired_contributions__give_the_error_of_a_difference():
    """Cells that share data: the error of a difference from the covariance of contributions, over repeated studies."""
    rng = np.random.default_rng(5)
    differences, errors_of_difference = [], []
    for _ in range(400):
        shared = rng.exponential(size=(256, 1, 2))
        cells = [shared @ MIXING, shared @ MIXING * 1.05 + 0.1 * rng.normal(size=(256, 1, 2))]
        first, second = (performance(blocks_of(e, np.zeros(1), 32), np.full(2, 0.5), STATISTICS) for e in cells)
        differences.append(float(first.estimate["mse"] - second.estimate["mse"]))
        paired = first.contribution["mse"] - second.contribution["mse"]
        errors_of_difference.append(np.sqrt((paired**2).sum()))
    spread = np.std(differences, ddof=1)
    ratio = np.sqrt(np.mean(np.square(errors_of_difference))) / spread
    assert ratio == pytest.approx(1.0, abs=4 / np.sqrt(2 * 400) + 0.05)
    unpaired = np.hypot(float(first.mcse["mse"]), float(second.mcse["mse"]))
    assert unpaired > 2 * spread  # the control: ignoring the pairing would be wrong by far


def test_gaps__are_zero_for_covariance_and_ambiguity_and_not_for_other_correlations(sample):
    errors, target = sample
    means = errors + target[:, None]
    direct = (errors.mean(axis=2) ** 2).mean(axis=1)
    statistics = np.zeros((len(errors), N_STATISTICS))
    statistics[:, -len(STATISTICS)] = direct
    statistics[:, -len(STATISTICS) + 1] = 0.25
    blank = empty(len(errors), target, 3, N_STATISTICS)
    moments = update(blank, range(len(errors)), 0, means, None, None, statistics)
    found = performance(moments, np.array([0.5, 0.3, 0.2]), STATISTICS).estimate
    assert found["decomposition_gap"] == pytest.approx(0.0, abs=1e-12)
    assert found["ambiguity_gap"] == pytest.approx(0.0, abs=1e-12)
    # By hand, of the uniform average whatever the weights; here variances of heads differ twofold and more.
    covariance = np.array([np.cov(means[:, q].T) for q in range(2)])
    variance = np.trace(covariance, axis1=1, axis2=2).mean() / 3
    squared_bias = (errors.mean(axis=(0, 2)) ** 2).mean()
    by_hand = (squared_bias + variance / 3 + 2 / 3 * 0.25 * variance) / direct.mean() - 1
    assert found["query_correlation_gap"] == pytest.approx(by_hand, abs=0.01)
    assert abs(found["correlation_gap"]) > 0.01 and abs(by_hand) > 0.05


def test_equivalent_heads__are_the_inverse_sum_of_squares_for_heads_alike():
    rng = np.random.default_rng(5)
    errors = rng.normal(size=(40_000, 1, 3)) + rng.normal(size=(40_000, 1, 1))
    moments = blocks_of(errors, np.zeros(1), 80)
    for weights in ([1 / 3] * 3, [0.6, 0.3, 0.1]):
        found = performance(moments, np.array(weights), STATISTICS)
        error = abs(found.estimate["equivalent_heads"] - 1 / np.sum(np.square(weights)))
        assert error < 4 * found.mcse["equivalent_heads"] + 1e-9
        assert found.mcse["equivalent_heads"] < 0.1


def test_printed_error__is_wider_where_few_blocks_hold_it_or_are_skewed_and_none_of_too_few():
    normal = np.random.default_rng(0).normal(size=4096)
    assert widening_of(normal) == pytest.approx(1.0, abs=0.005)
    signs = np.tile([1.0, -1.0], 32)  # no kurtosis at all: Student's t of 63
    assert widening_of(signs) == pytest.approx(stats.t.ppf(0.975, 63) / stats.norm.ppf(0.975))
    few = signs * np.where(np.arange(64) < 4, 10.0, 0.1)  # four blocks: 1/(4/16 - 1/64) degrees
    assert widening_of(few) == pytest.approx(stats.t.ppf(0.975, 1 / (0.25 - 1 / 64)) / stats.norm.ppf(0.975), rel=2e-3)
    skewed = np.random.default_rng(1).exponential(size=64) - 1.0
    assert widening_of(skewed) == pytest.approx(widening_of(-skewed)) and widening_of(skewed) > 1.15
    assert np.isnan(widening_of(signs[:31])) and np.isfinite(widening_of(signs[:32]))
