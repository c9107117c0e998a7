"""Addressed random numbers, data sets drawn from them and regression functions: known answers, laws, grouping."""

import itertools
import math

import numpy as np
import pytest
from builders import minimal_cell, refuses
from pydantic import TypeAdapter
from scipy import stats
from theory_oracle import covariance_matrix, regression_values

from simstudy.data.addresses import Role, normals, uniforms
from simstudy.data.regression import evaluate
from simstudy.data.training import draw_keys, draw_noise, noise_variance
from simstudy.design.settings.choices import Regression
from simstudy.kernels import philox

STREAM = "243f6a8885a308d313198a2e03707344"
ONES = 0xFFFFFFFF
KEYS = {
    "identity": {"kind": "gaussian"},
    "equicorrelated": {"kind": "gaussian", "structure": "equicorrelated", "correlation": 0.4},
    "autoregressive": {"kind": "gaussian", "structure": "autoregressive", "correlation": 0.6},
    "sphere": {"kind": "sphere", "radius": 2.0},
    "student_t": {"kind": "student_t", "df": 9.0},
    "mixture": {"kind": "mixture", "n_components": 3, "separation": 2.0},
}
ALL_KEYS = KEYS | {"in_time": {"kind": "autoregressive", "coefficient": 0.9}}
D = 5
NOISE = {
    "gaussian": {"kind": "gaussian"},
    "student_t": {"kind": "student_t", "df": 10.0},
    "heteroscedastic": {"kind": "heteroscedastic", "strength": 2.0},
}


@pytest.mark.parametrize("counter, key, answer", [
    ((0,) * 4, (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES,) * 4, (ONES, ONES), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
     (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
])  # fmt: skip
def test_philox_gives_the_published_answers(counter, key, answer):
    words = philox.philox(*(np.uint64(c) for c in counter), *(np.uint64(k) for k in key))
    assert tuple(int(w) for w in words) == answer


def reference_pair(role, replicate, row, column):
    key = int(STREAM[:16], 16)
    counter = (column // 4, row, replicate & ONES, (role << 24) | (replicate >> 32))
    words = philox.philox(*map(np.uint64, (*counter, key & ONES, key >> 32)))
    at = column % 4 // 2 * 2
    return tuple((int(w) + 0.5) / 2**32 for w in words[at : at + 2])


@pytest.mark.parametrize("first", [0, 3, 2**32 - 1, 2**56 - 2])
def test_numbers_are_those_of_the_reference_at_every_address(first):
    role, n_rows, n_columns = Role.NOISE, 131, 7
    z = normals(STREAM, role, first, 2, n_rows, n_columns)
    u = uniforms(STREAM, role, first, 2, n_rows, n_columns)
    for r in range(2):
        for row in (0, 1, 127, 128, 130):
            for column in range(n_columns):
                pair, wave = reference_pair(role, first + r, row, column), math.sin if column % 2 else math.cos
                expected = math.sqrt(-2 * math.log(pair[0])) * wave(2 * math.pi * pair[1])
                assert z[r, column, row] == pytest.approx(expected, rel=0, abs=4e-15)
                assert u[r, column, row] == pair[column % 2]


def test_distinct_addresses_give_distinct_numbers():
    draws = [normals(stream, role, first, 2, 50, 8) for stream in (STREAM, "0" * 32, "1" + "0" * 31, "0" * 15 + "1")
             for role in Role for first in (0, 2**32, 2**55)]  # fmt: skip
    numbers = np.concatenate([d.ravel() for d in draws])
    # About N^2 / 2^65 = 1e-10 pairs of equal normals are expected among N = 57 600 by chance.
    assert np.unique(numbers).size == numbers.size


@pytest.mark.parametrize(("first", "count"), [(-1, 1), (2**56, 1), (2**56 - 1, 2)])
def test_replicates_beyond_the_address_space_are_refused(first, count):
    refuses("replicates", normals, STREAM, Role.KEYS, first, count, 1, 1, error=ValueError)


def make(keys="gaussian", n=50, d=D, **settings):
    base = {"noise_sd": 1.5, "n_heads": 1, "head_dim": 1, "arrangement": "aligned", "seed": 3}
    return minimal_cell(**base | {"key_distribution": keys, "n_keys": n, "n_features": d} | settings)


def farthest(x, expected):
    """Largest |z| of means of features and of their products, of which the sphere fixes none."""
    upper = np.triu_indices(D)
    samples = np.hstack([x, x[:, upper[0]] * x[:, upper[1]]])
    wanted = np.concatenate([np.zeros(D), expected[upper]])
    return np.abs((samples.mean(0) - wanted) / (samples.std(0, ddof=1) / math.sqrt(len(x)))).max()


def rows_of(name, count):
    return np.swapaxes(draw_keys(make(KEYS[name], n=100), 0, count), 1, 2).reshape(-1, D)


@pytest.mark.parametrize("name", KEYS)
def test_keys_have_mean_zero_and_the_covariance_of_their_law(name):
    x, expected = rows_of(name, 400), covariance_matrix(make(KEYS[name]).data.key_distribution, D)
    assert farthest(x, expected) < 4.5
    mixed = x + 0.05 * x[:, [4]] * (np.arange(D) == 1)
    assert min(farthest(x, 1.05 * expected), farthest(mixed, expected), farthest(x + 0.05, expected)) > 4.5


MARGINALS = dict.fromkeys(("identity", "equicorrelated", "autoregressive"), stats.norm.cdf) | {
    # (x_j/radius)^2 of a uniform point is Beta(1/2, (d - 1)/2).
    "sphere": lambda x: 0.5 + 0.5 * np.sign(x) * stats.beta.cdf((x / 2.0) ** 2, 0.5, (D - 1) / 2),
    "student_t": lambda x: stats.t.cdf(x * math.sqrt(9 / 7), df=9),
    "mixture": lambda x: (stats.norm.cdf(x - 4 / 3) + 2 * stats.norm.cdf(x + 2 / 3)) / 3,
}


@pytest.mark.parametrize("name", MARGINALS)
def test_each_feature_has_the_marginal_of_its_law(name):
    x = rows_of(name, 200)
    features = range(3) if name == "mixture" else range(D)
    assert min(stats.kstest(x[:, j], MARGINALS[name]).pvalue for j in features) > 1e-3
    for other in set(MARGINALS) - {name, "identity", "equicorrelated", "autoregressive"}:
        assert stats.kstest(x[:, 0], MARGINALS[other]).pvalue < 1e-3


def test_student_keys_share_one_scale_over_features():
    # |x|^2/d of multivariate t, scaled to identity, is F(d, df) (df - 2)/df; independent t coordinates are not.
    def pvalue(x):
        return stats.kstest(np.sum(x**2, axis=1) / D * 9 / 7, stats.f(D, 9).cdf).pvalue

    x = rows_of("student_t", 200)
    assert pvalue(x) > 1e-3
    assert pvalue(np.column_stack([np.roll(x[:, j], j) for j in range(D)])) < 1e-3


def test_keys_in_time_are_the_recursion():
    x = draw_keys(make(ALL_KEYS["in_time"]), 3, 2)
    z = normals(make(ALL_KEYS["in_time"]).data_id, Role.KEYS, 3, 2, 50, D)
    expected = z[:, :, 0]
    np.testing.assert_allclose(x[:, :, 0], expected, rtol=1e-14)
    for i in range(1, 50):
        expected = 0.9 * expected + math.sqrt(1 - 0.9**2) * z[:, :, i]
        np.testing.assert_allclose(x[:, :, i], expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", NOISE)
def test_noise_has_its_law_and_unit_variance(name):
    noise = draw_noise(make(noise=NOISE[name], n=100), 0, 500)
    assert noise.shape == (500, 100)
    e, law = noise.ravel(), stats.t(10, scale=math.sqrt(0.8)) if name == "student_t" else stats.norm
    assert stats.kstest(e, law.cdf).pvalue > 1e-3
    square = e * e
    error = square.std(ddof=1) / math.sqrt(square.size)
    assert abs(square.mean() - 1.0) < 4 * error and abs((1.1 * e).var() - 1.0) > 4 * error
    assert stats.kstest(e, stats.t(5, scale=math.sqrt(0.6)).cdf).pvalue < 1e-3
    if name == "student_t":  # and in two million draws
        square = draw_noise(make(noise=NOISE[name] | {"df": 5.0}, n=4000), 0, 500) ** 2
        assert abs(square.mean() - 1.0) < 3 * math.sqrt(8.0 / square.size)


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
def test_keys_and_noise_do_not_depend_on_their_grouping_and_fewer_keys_or_features_are_a_prefix(name, dtype):
    cell = make(ALL_KEYS[name], n=300, d=9, dtype=dtype)
    whole = draw_keys(cell, 100, 20)
    assert whole.dtype == dtype and whole.shape == (20, 9, 300) and whole.flags.c_contiguous
    parts = [draw_keys(cell, a, b - a) for a, b in itertools.pairwise([100, 101, 104, 120])]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    for n, d in ((1, 9), (5, 9), (64, 9), (127, 9), (129, 9), (299, 9), (300, 3), (300, 4), (300, 8)):
        if d == 9 or name != "sphere":
            fewer = draw_keys(make(ALL_KEYS[name], n=n, d=d, dtype=dtype), 100, 3)
            np.testing.assert_array_equal(fewer, whole[:3, :d, :n])
    for noise in NOISE.values():
        cell = make(noise=noise, n=133)
        whole = draw_noise(cell, 0, 20)
        parts = [draw_noise(cell, a, b - a) for a, b in itertools.pairwise([0, 1, 4, 20])]
        np.testing.assert_array_equal(np.concatenate(parts), whole)
        for n in (1, 3, 64, 131):
            np.testing.assert_array_equal(draw_noise(make(noise=noise, n=n), 0, 20), whole[:, :n])


@pytest.mark.parametrize("name", ALL_KEYS)
def test_single_precision_shows_the_same_data_rounded(name):
    double, single = (draw_keys(make(ALL_KEYS[name], n=250_000, dtype=t), 0, 3) for t in ("float64", "float32"))
    if name == "identity":  # independent normals are computed in single precision, small ones to their own rounding
        assert np.abs(single / double - 1).max() < 5e-7 and np.abs(double).min() < 1e-5
    else:
        np.testing.assert_array_equal(single, double.astype(np.float32))


@pytest.mark.parametrize("change", [
    {"noise_sd": 0.1},
    {"noise": NOISE["heteroscedastic"]},
    {"regression": "linear"},
    {"bandwidth": 2.0, "logits": "dot_product"},
    {"n_heads": 4, "head_dim": 1, "arrangement": "haar"},
    {"batch_size": 16, "noise_treatment": "drawn"},
], ids=" ".join)  # fmt: skip
def test_data_are_those_of_seed_and_law_of_the_keys_and_of_nothing_else(change):
    np.testing.assert_array_equal(draw_keys(make(**change), 0, 2), draw_keys(make(), 0, 2))
    np.testing.assert_array_equal(draw_noise(make(**change), 0, 2), draw_noise(make(), 0, 2))
    for other in ({"seed": 4}, {"keys": KEYS["sphere"]}):
        assert not np.any(draw_noise(make(**change | other), 0, 2) == draw_noise(make(), 0, 2))


FUNCTIONS = [
    {"kind": "zero"},
    {"kind": "linear", "coefficients": [1.0, 0.0, -2.5]},
    {"kind": "quadratic", "coefficients": [0.25]},
    {"kind": "quadratic", "coefficients": [1.0, -0.5]},
    {"kind": "ridge", "wave": "sin", "amplitude": 2.0, "frequency": 1.5, "direction": [1.0, 2.0]},
    {"kind": "ridge", "wave": "cos", "amplitude": -1.0, "frequency": 0.5, "direction": [0.0, 0.0, 3.0]},
    {"kind": "additive", "wave": "sin", "frequency": 2.0},
    {"kind": "additive", "wave": "cos", "amplitude": 1.5, "decay": "exponential", "rate": 0.7},
    {"kind": "additive", "wave": "sin", "decay": "power", "rate": 1.5, "n_active": 3},
    {"kind": "interaction", "amplitude": 3.0, "coordinates": [2, 4]},
]
FUNCTIONS.append({"kind": "sum", "terms": [FUNCTIONS[1], FUNCTIONS[4], FUNCTIONS[9]]})


@pytest.mark.parametrize(("dtype", "rtol", "atol"), [("float64", 1e-13, 1e-14), ("float32", 1e-5, 4e-6)])
@pytest.mark.parametrize("m", TypeAdapter(list[Regression]).validate_python(FUNCTIONS), ids=lambda m: m.kind)
def test_values_are_those_of_the_definition_and_have_the_same_bits_in_any_array(m, dtype, rtol, atol):
    x = np.random.default_rng(5).standard_normal((3, 4, 41)).astype(dtype)
    before, found = x.copy(), evaluate(m, x)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, [regression_values(m, p.T) for p in x.astype(float)], rtol=rtol, atol=atol)
    np.testing.assert_array_equal(x, before)
    # A wild neighbour must not push a library's vectors onto another path either.
    x[1, :, ::5] *= 1e6
    whole = evaluate(m, x)
    for r in range(3):
        np.testing.assert_array_equal(evaluate(m, x[r]), whole[r])
    for n in range(1, 41):
        np.testing.assert_array_equal(evaluate(m, x[..., :n]), whole[:, :n])
        np.testing.assert_array_equal(evaluate(m, np.ascontiguousarray(x[1:, :, 41 - n :])), whole[1:, 41 - n :])
    np.testing.assert_array_equal(evaluate(m, np.asfortranarray(x)), whole)
