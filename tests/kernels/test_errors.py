"""Projection, errors, compact kernels and functions under them against the formula; calls of kernels, and memory."""

import itertools
import math
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from builders import rare
from commands import python
from kernel_problems import WINDOWED, Problem, assert_solved, problem

from simstudy.kernels import elementary, few_queries, many_queries, project
from simstudy.kernels.elementary import wave
from simstudy.kernels.errors import add_errors, sum_blocks, sums_over_pairs
from simstudy.kernels.jit import kept_by_thread, kernel
from simstudy.kernels.lanes import EXP2 as EXP2_OF_LANES
from simstudy.kernels.vectors import lanes, load, spread, store_four

# (R, d, H, p, n): odd counts, one of everything, and n on either side of the tile of 256.
SHAPES = [(1, 1, 1, 1, 1), (2, 3, 1, 1, 5), (3, 4, 2, 2, 17), (2, 7, 3, 5, 255), (1, 9, 3, 3, 256), (2, 5, 2, 4, 257)]
EXP2 = {"float32": elementary.exp2_float32, "float64": elementary.exp2_float64}
PRECISIONS = pytest.mark.parametrize("precision", ["float32", "float64"])
# Precision: magic number, and the lowest exponent at which a power is not denormal.
RANGES = {"float32": (elementary.MAGIC_32, np.float32(-126.0)), "float64": (elementary.MAGIC_64, np.float64(-1022.0))}
ANGLES = np.random.default_rng(5).standard_normal(40_000) * np.repeat([1.0, 30.0, 1e4, 3e5], 10_000)
BY_LIBRARY = {"sin": math.sin, "cos": math.cos}


def draw(shape, precision, seed=0):
    n_replicates, d, n_heads, p, n = shape
    rng = np.random.default_rng(seed)
    keys = rng.standard_normal((n_replicates, d, n)).astype(precision)
    return keys, rng.standard_normal((n_replicates, n_heads, d, p)).astype(precision)


@PRECISIONS
@pytest.mark.parametrize("shape", [*SHAPES, (2, 40, 3, 4, 257)])
def test_project__is_the_formula(shape, precision):
    keys, projections = draw(shape, precision)
    projections[0, -1, 2:] = projections[1:, -1, 5:] = projections[:, 0, :1] = 0.0  # of many features they see few
    result = project(keys, projections)
    assert result.dtype == precision
    expected = np.einsum("rhjk,rji->rhki", projections.astype(np.longdouble), keys.astype(np.longdouble))
    np.testing.assert_allclose(result, expected, rtol=0, atol=8 * np.finfo(precision).eps * shape[1])


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_project__does_not_depend_on_grouping(precision):
    keys, projections = draw((5, 50, 3, 3, 300), precision)
    projections[:, 1, 3:-9] = projections[:, 2, :-9] = 0.0
    own, shared = project(keys, projections), project(keys, projections[0])
    for groups in ([1] * 5, [2, 3], [4, 1]):
        for a, b in itertools.pairwise(np.cumsum([0, *groups])):
            np.testing.assert_array_equal(project(keys[a:b], projections[a:b]), own[a:b])
            np.testing.assert_array_equal(project(keys[a:b], projections[0]), shared[a:b])
    np.testing.assert_array_equal(own[0], shared[0])


@pytest.mark.parametrize("shape", [(1, 1, 1), (70, 1, 1), (70, 1, 2), (3, 2, 1), (2, 5, 3), (4, 16, 8)])
@pytest.mark.parametrize("with_gram", [True, False])
def test_errors_and_their_products__are_added_one_replicate_after_another(shape, with_gram):
    rng = np.random.default_rng(0)
    rows, columns = np.triu_indices(shape[2])
    means, target, gram = (rng.standard_normal(size) for size in (shape, shape[1], (*shape, shape[2])))
    sums = np.zeros((1, *shape[1:])), np.zeros((1, shape[1], len(rows)))
    defined = add_errors(means, target, gram if with_gram else None, *sums)
    errors = means - target[:, None]
    products = errors[..., rows] * errors[..., columns]
    products = products + gram[..., rows, columns] if with_gram else products
    np.testing.assert_equal([each[0] for each in sums], [each.cumsum(axis=0)[-1] for each in (errors, products)])
    assert defined.all()


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_replicates_with_a_number_that_is_not_finite__are_undefined_and_left_out(wrong):
    means, gram = np.ones((4, 3, 2)), np.ones((4, 3, 2, 2))
    means[1, 2, 1] = gram[3, 0, 0, 1] = wrong
    sums = np.zeros((2, 3, 2)), np.zeros((2, 3, 3))
    np.testing.assert_array_equal(add_errors(means, np.zeros(3), gram, *sums), [True, False, True, False])
    np.testing.assert_equal(sums, (np.ones((2, 3, 2)), np.full((2, 3, 3), 2.0)))


def test_heads_of_either_sign__have_no_correlation_blocks_no_undefined_replicates_and_threads_their_memory():
    products = np.array([[[2.0, 0.5, -1.0]], [[-2.0, 0.5, -1.0]]])
    correlation = sums_over_pairs(np.zeros((2, 1, 2)), products, np.ones((2, 2))).correlation
    np.testing.assert_allclose(correlation, [[np.nan], [2 * 0.5 / np.sqrt(2.0)]])
    numbers, defined = np.arange(12.0).reshape(6, 1, 2), np.array([True, False, True, True, False, False])
    numbers[~defined] = np.nan
    np.testing.assert_array_equal(sum_blocks(numbers, defined, 2), [[[4.0, 6.0]], [[6.0, 7.0]]])
    made = kept_by_thread(np.zeros)
    with ThreadPoolExecutor(1) as pool:
        assert made(3) is made(3) is not pool.submit(made, 3).result()


WIDTH = lanes(8)


@pytest.mark.parametrize(("n_queries", "in_lanes"), [(1, False), (WIDTH, True), (WIDTH + 1, False), (4 * WIDTH, True)])
def test_queries_that_fill_lanes__are_computed_in_lanes(n_queries, in_lanes, monkeypatch):
    given, called = problem((2, n_queries, 2, 2, 40)), []
    for module in (few_queries, many_queries):

        def spy(*arguments, module=module, original=module.MOMENTS[given.keys.dtype]):
            called.append(module)
            return original(*arguments)

        monkeypatch.setattr(module, "MOMENTS", {given.keys.dtype: spy})
    given.moments()
    given.estimates()
    assert called == 2 * [many_queries if in_lanes else few_queries]


# Two arrays of 20 MiB and one of 3: by itself glibc trims what is freed beyond twice the largest array.
_CODE = """
import resource
import numpy as np
import simstudy.kernels.memory

def faults_of_a_piece():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    arrays = [np.ones(size << 20, np.uint8) for size in (20, 20, 3)]
    del arrays
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print([faults_of_a_piece() for _ in range(5)][-1])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the allocator cannot be told")
def test_arrays_of_later_pieces__are_made_of_memory_that_earlier_ones_freed():
    assert int(python("-c", _CODE).stdout) < 100


@PRECISIONS
def test_exp2__is_accurate(precision):
    magic, lowest = RANGES[precision]
    points = np.random.default_rng(1).uniform(lowest, 80, 20_000).astype(precision)
    values = np.array([EXP2[precision](t, lowest, magic) for t in points])
    exact, bound = np.exp2(points.astype(np.longdouble)), {"float32": 2e-7, "float64": 4e-16}[precision]
    assert np.abs(values / exact - 1).max() < bound < 1e-3 * np.abs(np.exp(points[-2000:]) / exact[-2000:] - 1).max()


@kernel
def _powers(exp2, t, lowest, magic, width, out):
    for i in range(0, t.size, 4 * width):
        a, b, c, d = load(t, i), load(t, i + width), load(t, i + 2 * width), load(t, i + 3 * width)
        a, b, c, d = exp2(a, b, c, d, load(lowest, 0), load(magic, 0), spread(t.dtype.type(0)))
        store_four(out, i, width, a, b, c, d)


def powers(precision, points, shifts=0.0):
    """2^(t + s), t from -126 - s on, for numbers in whole vectors, of whose lanes each has a shift s of its own."""
    real, width = np.dtype(precision), lanes(np.dtype(precision).itemsize)
    t, shifts = np.resize(np.asarray(points, real), 4096), np.resize(np.asarray(shifts, real), width)
    out = np.empty_like(t)
    _powers(EXP2_OF_LANES[precision], t, -126 - shifts, RANGES[precision][0] + shifts, width, out)
    return t, np.resize(shifts, 4096), out


@PRECISIONS
@pytest.mark.parametrize("shifts", [0.0, 50.0, -78.0, -110.0, [0.0, 50.0, -78.0, -110.0, -1.0, 3.0, -40.0, 17.0]])
def test_powers__are_accurate(precision, shifts):
    rng = np.random.default_rng(1)
    lowest, highest = -126 - np.min(shifts), 120 - np.max(shifts)
    t, s, found = powers(precision, rng.uniform(lowest, highest, 4096), shifts)
    bound = {"float32": 2.5e-7, "float64": 4e-16}[precision]
    assert np.abs(found / np.exp2(t.astype(np.longdouble) + s) - 1).max() < bound
    # Negative control: the neighbouring function, of t a hundred thousandth away, is outside.
    assert np.abs(found / np.exp2(1.00001 * t.astype(np.longdouble) + s) - 1).max() > 10 * bound
    # Far below, powers are negligible; NaN stays.
    found = powers(precision, [-1e30, -np.inf, -3000.0, -127.5, np.nan, -np.nan])[-1]
    assert (found[:4] <= 2.0**-126).all() and (found[:4] >= 0).all() and np.isnan(found[4:6]).all()


@pytest.mark.parametrize("kind", BY_LIBRARY)
def test_wave__is_that_of_the_library_of_c_and_has_all_digits_beside_its_zeros(kind):
    zeros = np.arange(1, 600_000) * (0.5 * np.pi)
    expected, small = (np.array([BY_LIBRARY[kind](angle) for angle in each.tolist()]) for each in (ANGLES, zeros))
    assert np.abs(wave(kind, ANGLES) - expected).max() < 4e-16
    assert np.abs(wave(kind, zeros) / small - 1.0).max() < 1e-15
    far = np.array([1e7, -1e300, 0.0, 1e-320, np.nan, np.inf])
    with np.errstate(invalid="ignore"):
        assert np.array_equal(wave(kind, far), getattr(np, kind)(far), equal_nan=True)


# (R, Q, H, p, n): one of everything, odd counts, p on either side of 2, 4 and 6, n on either side of the tile of 512.
WINDOWED_SHAPES = [
    (1, 1, 1, 1, 1), (2, 3, 1, 1, 7), (2, 2, 3, 2, 33), (1, 3, 5, 3, 130), (2, 2, 2, 4, 64), (1, 2, 4, 5, 97),
    (1, 2, 2, 7, 97), (2, 1, 3, 8, 100), (1, 2, 2, 2, 511), (1, 2, 2, 1, 512), (1, 2, 3, 4, 513), (1, 1, 2, 2, 1300),
]  # fmt: skip
# Each is compiled by itself, for seconds: powers and precisions do not know of one another.
COMPILED = [
    (1, "float64"), (1, "float32"), (2, "float64"), (7, "float32"),
    rare(2, "float32"), rare(3, "float64"), rare(3, "float32"), rare(7, "float64"),
]  # fmt: skip


@pytest.mark.parametrize("shape", WINDOWED_SHAPES)
@pytest.mark.parametrize(("power", "precision"), COMPILED)
def test_moments_in_windows__are_the_formula(shape, power, precision):
    radius = 2.0 * np.sqrt(shape[3]) + 1.0
    given = problem(shape, precision=precision, spread=0.5, own_queries=shape[3] == 4, window=(radius, power))
    means, _ = assert_solved(given)
    if shape[4] > 7:
        wider = replace(given, window=(1.2 * radius, power)).estimates()
        assert np.abs(wider - means).max() > 10 * WINDOWED[precision]


def test_replicates_and_kernels_that_use_one_memory__do_not_depend_on_one_another():
    given = problem((5, 3, 2, 3, 700), spread=0.5, window=(3.0, 2))
    np.testing.assert_equal([each[2:3] for each in given.moments()], [*given.part(slice(2, 3)).moments()])
    np.testing.assert_equal(*[(replace(given, window=None).moments(), given.moments()) for _ in range(2)])


def test_window__holds_keys_nearer_than_its_radius_and_no_others():
    keys, values = np.array([[[[0.0, 0.999, 1.0, 1.001, -2.0]]]]), np.array([[1.0, 2.0, 4.0, 8.0, 16.0]])
    given = Problem(keys, values, np.ones((1, 5)), np.zeros((1, 1, 1)), window=(1.0, 1))
    mean, gram = given.moments()
    w = np.array([1.0, 1 - 0.999**2])
    assert mean.item() == pytest.approx(w @ [1.0, 2.0] / w.sum())
    assert gram.item() == pytest.approx((w**2).sum() / w.sum() ** 2)
    # A key beside the edge has all the weight if it is alone, however small that is.
    alone = replace(given, keys=keys[..., 1:], values=values[:, 1:], variances=given.variances[:, 1:]).moments()
    assert [each.item() for each in alone] == pytest.approx([2.0, 1.0])
    # Windows that do not meet have covariance 0 exactly.
    given = problem((3, 1, 2, 1, 400), window=(1.0, 2))
    given.keys[:, 1] = given.keys[:, 0]
    for offset, disjoint in ((1.01, True), (0.9, False)):
        _, grams = replace(given, queries=np.array([[[-offset], [offset]]])).moments()
        assert (grams[:, 0, 0, 1] == 0.0).all() == disjoint


@pytest.mark.parametrize("precision", WINDOWED)
def test_empty_window_and_nan_key__have_no_estimate(precision):
    given = problem((2, 2, 2, 2, 20), precision=precision, spread=0.5, window=(3.0, 1))
    given.queries[1], given.keys[1, 0, 0, 3] = 50.0, np.nan
    undefined = np.isnan(assert_solved(given)[0])
    assert undefined[:, 1].all() and undefined[:, 0].tolist() == [[False, False], [True, False]]
