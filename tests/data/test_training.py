"""Data sets against the laws they are drawn from, and their independence of how they are drawn."""

import itertools
import math

import numpy as np
import pytest
from builders import minimal_cell
from scipy import stats

from simstudy.data.addresses import Role, normals
from simstudy.data.training import draw_keys, draw_noise, noise_variance

KEYS = {
    "identity": {"kind": "gaussian"},
    "equicorrelated": {"kind": "gaussian", "structure": "equicorrelated", "correlation": 0.4},
    "autoregressive": {"kind": "gaussian", "structure": "autoregressive", "correlation": 0.6},
    "sphere": {"kind": "sphere", "radius": 2.0},
    "student_t": {"kind": "student_t", "df": 9.0},
    "mixture": {"kind": "mixture", "n_components": 3, "separation": 2.0},
}
IN_TIME = {"in_time": {"kind": "autoregressive", "coefficient": 0.9}}
ALL_KEYS = KEYS | IN_TIME
D = 5
NOISE = {
    "gaussian": {"kind": "gaussian"},
    "student_t": {"kind": "student_t", "df": 10.0},
    "heteroscedastic": {"kind": "heteroscedastic", "strength": 2.0},
}


def make(keys="gaussian", n=50, d=D, **settings):
    base = {"noise_sd": 1.5, "n_heads": 1, "head_dim": 1, "arrangement": "aligned", "seed": 3}
    return minimal_cell(**base | {"key_distribution": keys, "n_keys": n, "n_features": d} | settings)


def covariance(name):
    j = np.arange(D)
    if name == "equicorrelated":
        return np.where(j[:, None] == j, 1.0, 0.4)
    if name == "autoregressive":
        return 0.6 ** np.abs(j[:, None] - j)
    if name == "sphere":
        return np.eye(D) * 2.0**2 / D
    if name == "mixture":
        centres = np.vstack([2.0 * np.eye(D)[:3]])
        centres -= centres.mean(0)
        return np.eye(D) + centres.T @ centres / 3
    return np.eye(D)


def moment_z_scores(x, expected):
    """Errors of the means and of the second moments of rows x, in units of their Monte Carlo errors."""
    upper = np.triu_indices(x.shape[1])
    products = x[:, upper[0]] * x[:, upper[1]]
    # The length of a point on the sphere is fixed, but no single product is.
    samples = np.hstack([x, products])
    wanted = np.concatenate([np.zeros(x.shape[1]), expected[upper]])
    return (samples.mean(0) - wanted) / (samples.std(0, ddof=1) / math.sqrt(len(x)))


def rows_of(keys):
    return np.swapaxes(keys, 1, 2).reshape(-1, keys.shape[1])


@pytest.mark.parametrize("name", KEYS)
def test_keys_have_mean_zero_and_the_covariance_of_their_law(name):
    x = rows_of(draw_keys(make(KEYS[name], n=100), 0, 400))
    assert np.max(np.abs(moment_z_scores(x, covariance(name)))) < 4.5
    mixed = x + 0.05 * x[:, [4]] * (np.arange(D) == 1)
    for wrong, expected in ((x, 1.05 * covariance(name)), (mixed, covariance(name)), (x + 0.05, covariance(name))):
        assert np.max(np.abs(moment_z_scores(wrong, expected))) > 4.5  # the controls


MARGINALS = {
    "identity": stats.norm.cdf,
    "equicorrelated": stats.norm.cdf,
    "autoregressive": stats.norm.cdf,
    # (x_j/radius)^2 of a uniform point is Beta(1/2, (d - 1)/2).
    "sphere": lambda x: 0.5 + 0.5 * np.sign(x) * stats.beta.cdf((x / 2.0) ** 2, 0.5, (D - 1) / 2),
    "student_t": lambda x: stats.t.cdf(x * math.sqrt(9 / 7), df=9),
    "mixture": lambda x: (stats.norm.cdf(x - 4 / 3) + 2 * stats.norm.cdf(x + 2 / 3)) / 3,
}


@pytest.mark.parametrize("name", MARGINALS)
def test_each_feature_has_the_marginal_of_its_law(name):
    x = rows_of(draw_keys(make(KEYS[name], n=100), 0, 200))
    features = range(3) if name == "mixture" else range(D)
    assert min(stats.kstest(x[:, j], MARGINALS[name]).pvalue for j in features) > 1e-3
    for other in set(MARGINALS) - {name, "identity", "equicorrelated", "autoregressive"}:
        assert stats.kstest(x[:, 0], MARGINALS[other]).pvalue < 1e-3


def test_student_keys_share_one_scale_over_features():
    # |x|^2/d of multivariate t, scaled to identity, is F(d, df) (df - 2)/df; independent t coordinates are not.
    def pvalue(x):
        return stats.kstest(np.sum(x**2, axis=1) / D * 9 / 7, stats.f(D, 9).cdf).pvalue

    x = rows_of(draw_keys(make(KEYS["student_t"], n=100), 0, 200))
    assert pvalue(x) > 1e-3
    independent = np.column_stack([np.roll(x[:, j], j) for j in range(D)])
    assert pvalue(independent) < 1e-3


def test_keys_in_time_are_the_recursion():
    x = draw_keys(make(IN_TIME["in_time"]), 3, 2)
    z = normals(make(IN_TIME["in_time"]).data_id, Role.KEYS, 3, 2, 50, D)
    expected = z[:, :, 0]
    np.testing.assert_allclose(x[:, :, 0], expected, rtol=1e-14)
    for i in range(1, 50):
        expected = 0.9 * expected + math.sqrt(1 - 0.9**2) * z[:, :, i]
        np.testing.assert_allclose(x[:, :, i], expected, rtol=1e-12, atol=1e-14)


NOISE_LAWS = {"gaussian": stats.norm, "student_t": stats.t(10, scale=math.sqrt(0.8)), "heteroscedastic": stats.norm}


@pytest.mark.parametrize("name", NOISE)
def test_noise_has_its_law_and_unit_variance(name):
    noise = draw_noise(make(noise=NOISE[name], n=100), 0, 500)
    assert noise.shape == (500, 100)
    e, law = noise.ravel(), NOISE_LAWS[name]
    assert stats.kstest(e, law.cdf).pvalue > 1e-3
    square = e * e
    error = square.std(ddof=1) / math.sqrt(square.size)
    assert abs(square.mean() - 1.0) < 4 * error
    assert abs((1.1 * e).var() - 1.0) > 4 * error
    assert stats.kstest(e, stats.t(5, scale=math.sqrt(0.6)).cdf).pvalue < 1e-3


def test_noise_variance_by_hand():
    x = draw_keys(make(), 0, 2)
    for name in ("gaussian", "student_t"):
        np.testing.assert_array_equal(noise_variance(make(noise=NOISE[name]), x), np.full((2, 50), 2.25))
    variance = noise_variance(make(noise=NOISE["heteroscedastic"]), x)
    for r, i in itertools.product(range(2), range(50)):
        assert variance[r, i] == pytest.approx(2.25 * (1 + 2 * x[r, 0, i] ** 2) / 3, rel=1e-14)
    single = noise_variance(make(noise=NOISE["heteroscedastic"], dtype="float32"), x.astype(np.float32))
    assert single.dtype == np.float32


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ALL_KEYS)
def test_keys_do_not_depend_on_their_grouping(name, dtype):
    cell = make(ALL_KEYS[name], n=37, dtype=dtype)
    whole = draw_keys(cell, 100, 20)
    assert whole.dtype == dtype
    assert whole.shape == (20, D, 37)
    assert whole.flags.c_contiguous
    parts = [draw_keys(cell, a, b - a) for a, b in itertools.pairwise([100, 101, 104, 120])]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("name", ALL_KEYS)
def test_fewer_keys_are_a_prefix(name):
    whole = draw_keys(make(ALL_KEYS[name], n=300), 0, 3)
    for n in (1, 5, 64, 127, 129, 299):
        np.testing.assert_array_equal(draw_keys(make(ALL_KEYS[name], n=n), 0, 3), whole[:, :, :n])


@pytest.mark.parametrize("name", [name for name in ALL_KEYS if name != "sphere"])
def test_fewer_features_are_a_prefix(name):
    whole = draw_keys(make(ALL_KEYS[name], d=9), 0, 3)
    for d in (3, 4, 8):
        np.testing.assert_array_equal(draw_keys(make(ALL_KEYS[name], d=d), 0, 3), whole[:, :d])


@pytest.mark.parametrize("name", NOISE)
def test_noise_does_not_depend_on_its_grouping_or_on_the_number_of_keys(name):
    whole = draw_noise(make(noise=NOISE[name], n=133), 0, 20)
    parts = [draw_noise(make(noise=NOISE[name], n=133), a, b - a) for a, b in itertools.pairwise([0, 1, 4, 20])]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    for n in (1, 3, 64, 131):
        np.testing.assert_array_equal(draw_noise(make(noise=NOISE[name], n=n), 0, 20), whole[:, :n])


@pytest.mark.parametrize("name", ALL_KEYS)
def test_single_precision_shows_the_same_data_rounded(name):
    double, single = (draw_keys(make(ALL_KEYS[name], dtype=t), 0, 3) for t in ("float64", "float32"))
    # Independent normals are computed in single precision.
    np.testing.assert_allclose(single, double.astype(np.float32), rtol=5e-7 if name == "identity" else 0.0)


@pytest.mark.parametrize(
    "change",
    [
        {"noise_sd": 0.1},
        {"noise": NOISE["heteroscedastic"]},
        {"regression": "linear"},
        {"bandwidth": 2.0, "logits": "dot_product"},
        {"n_heads": 4, "head_dim": 1, "arrangement": "haar"},
        {"batch_size": 16, "noise_treatment": "drawn"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_is_not_the_law_of_the_keys_leaves_the_data_alone(change):
    np.testing.assert_array_equal(draw_keys(make(**change), 0, 2), draw_keys(make(), 0, 2))
    np.testing.assert_array_equal(draw_noise(make(**change), 0, 2), draw_noise(make(), 0, 2))


@pytest.mark.parametrize("change", [{"seed": 4}, {"keys": KEYS["sphere"]}])
def test_another_seed_or_law_has_other_numbers(change):
    assert not np.any(draw_noise(make(**change), 0, 2) == draw_noise(make(), 0, 2))
