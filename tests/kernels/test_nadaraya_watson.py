"""The compiled estimates and moments against the naive ones, at ordinary and at extreme settings."""

import itertools
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from kernel_problems import assert_solved, naive_moments, problem, rounding

from simstudy.kernels import few_queries, many_queries, nw_moments

LOGITS = pytest.mark.parametrize("logits", ["distance", "dot_product"])
PRECISIONS = pytest.mark.parametrize("precision", ["float32", "float64"])
# (R, Q, H, p, n): one of everything, odd counts, p on either side of 4 and 8, n on either side of the tile of 1024.
SHAPES = [
    (1, 1, 1, 1, 1), (2, 3, 1, 1, 7), (2, 2, 3, 2, 33), (1, 3, 5, 3, 130), (2, 2, 2, 4, 64), (1, 2, 4, 7, 97),
    (2, 1, 3, 8, 100), (1, 2, 2, 2, 1023), (1, 2, 2, 1, 1024), (1, 2, 3, 4, 1025), (1, 1, 2, 2, 2500),
]  # fmt: skip


@pytest.fixture(autouse=True, params=[100.0, 0.0], ids=["vectors of keys", "vectors of queries"])
def _both_ways(request, monkeypatch):
    monkeypatch.setattr(many_queries, "BUSY_LANES", request.param)


def near_and_far(*kind):
    """More queries than lanes, every third of them far away: those have no shift beforehand; little noise first."""
    given = problem((2, 37, 5, 9, 150), *kind)
    given.variances[:, 0] = 1e-30
    given.queries[::3] *= given.queries.dtype.type(40)
    return given


def even(*kind):
    return replace(given := near_and_far(*kind), variances=np.full_like(given.variances, 0.7))


def hollow(logits, precision):
    """Keys on a sphere, queries near its centre: no query is far from the mean key, but every key is far from all."""
    given = problem((2, 4, 3, 3, 700), logits, precision, bandwidth={"float32": 0.18, "float64": 0.06}[precision])
    keys = 3.0 * given.keys / np.linalg.norm(given.keys, axis=2, keepdims=True)
    return replace(given, keys=keys.astype(precision), queries=given.queries * given.queries.dtype.type(0.05))


def far_from_the_origin(*kind):
    given = problem((2, 4, 2, 3, 200), *kind)
    return replace(given, **{name: getattr(given, name) + given.keys.dtype.type(1e3) for name in ("keys", "queries")})


@PRECISIONS
@LOGITS
@pytest.mark.parametrize("make", [
    *(partial(problem, shape) for shape in SHAPES), partial(problem, (3, 2, 3, 2, 50), own_queries=True),
    *(partial(problem, (2, 6, 2, 4, 1100), spread=spread) for spread in (3.0, 10.0, 100.0)),
    *(partial(problem, (2, 2, 2, 3, 1300), bandwidth=bandwidth) for bandwidth in (1e6, 1e200)),
    near_and_far, even, hollow, far_from_the_origin,
    partial(problem, (1, 6, 2, 1, 1100), bandwidth=0.002),  # slopes would round exponents by their size
])  # fmt: skip
def test_moments__are_the_formula(make, logits, precision):
    assert_solved(make(logits, precision))


@PRECISIONS
@LOGITS
@pytest.mark.parametrize("spread", [1.0, 10.0])
@pytest.mark.parametrize("shape", [(2, 37, 5, 3, 150), (2, 40, 3, 9, 1100)])
def test_masked_queries__attend_to_what_they_see_as_if_there_were_no_other_keys(shape, spread, logits, precision):
    """Bands whose strips of keys are hidden, seen or both, before any key is seen and after; the nearest key hidden."""
    given, (_, n_queries, _, _, n_keys) = problem(shape, logits, precision, spread=spread), shape
    visible = np.abs(np.arange(n_queries)[:, None] * (n_keys / n_queries) - np.arange(n_keys)) < 0.2 * n_keys
    visible[3], visible[4] = np.arange(n_keys) == n_keys - 1, np.random.default_rng(1).random(n_keys) < 0.5
    arguments = given.queries, given.bandwidth, logits, True, visible
    found = nw_moments(given.keys, given.values, given.variances, *arguments)
    estimates = nw_moments(given.keys, given.values, None, *arguments)[0]
    for q, seen in enumerate(visible):
        keys, values, variances = given.keys[..., seen], given.values[:, seen], given.variances[:, seen]
        alone = replace(given, keys=keys, values=values, variances=variances, queries=given.queries[q : q + 1])
        tolerance = 2 * rounding(alone) * max(1.0, np.abs(given.values).max(), given.variances.max())
        for one, expected in zip((*found, estimates), (*naive_moments(alone), naive_moments(alone)[0]), strict=True):
            np.testing.assert_allclose(one[:, q : q + 1], expected, rtol=0, atol=tolerance)


@PRECISIONS
@pytest.mark.parametrize("logit", [50.0, 80.0, 88.0, 100.0, 115.0, 125.0, 300.0, 350.0, 500.0, 690.0])
def test_large_logits__neither_overflow_nor_wrap(logit, precision):
    """Sixteen queries, as many as lanes, at which powers of 2 before the shift are beyond float32."""
    keys, values = np.array([[[[logit, 1.0]]]], precision), np.array([[3.0, 5.0]], precision)
    mean, gram, mass = nw_moments(keys, values, np.ones_like(values), np.ones((16, 1, 1)), 1.0, "dot_product", True)
    np.testing.assert_allclose([mean[0, :, 0], gram[0, :, 0, 0]], [[3.0] * 16, [1.0] * 16], rtol=1e-5)
    np.testing.assert_allclose(mass[0, :, 0], logit, rtol=1e-6)
    # Queries at right angles to the keys: long, but all weights are 1.
    keys, queries = np.array([[[[1.0, 0.0], [0.0, 0.0]]]], precision), np.zeros((16, 1, 2))
    queries[..., 1] = logit
    mean, gram, mass = nw_moments(keys, values, np.ones_like(values), queries, 1.0, "dot_product", True)
    np.testing.assert_allclose([mean[0, :, 0], gram[0, :, 0, 0]], [[4.0] * 16, [0.5] * 16], rtol=1e-5)
    np.testing.assert_allclose(mass[0, :, 0], np.log(2.0), rtol=1e-5)


@LOGITS
@pytest.mark.parametrize(("shape", "bandwidth"), [((2, 8, 4, 4, 2000), 0.7), ((1, 2, 2, 2, 65536), 3.0)])
def test_float32__is_within_1e_5_of_float64(shape, bandwidth, logits):
    single = problem(shape, logits, "float32", bandwidth=bandwidth)
    arrays = ("keys", "values", "variances", "queries")
    double = replace(single, **{name: getattr(single, name).astype(float) for name in arrays})
    pairs = zip((*single.moments(), single.estimates()), (*double.moments(), double.estimates()), strict=True)
    for rough, fine in pairs:
        assert np.abs(rough - fine).max() < 1e-5 * np.abs(fine).max()


@PRECISIONS
@LOGITS
@pytest.mark.parametrize("bandwidth", [1e-3, 1e-25, 1e-200])
def test_small_bandwidth__leaves_one_key(bandwidth, logits, precision):
    """Queries a little off one key of a grid (or beyond the last, for dot products): weights are 0 and 1."""
    n = 1500
    keys = np.arange(1.0, n + 1)[None, None, None].astype(precision)
    given = replace(problem((1, 2, 1, 1, n), logits, precision), keys=keys, bandwidth=bandwidth)
    given = replace(given, queries=np.array([3.25, 700.25], precision).reshape(2, 1, 1))
    chosen = [2, 699] if logits == "distance" else [n - 1, n - 1]
    mean, gram, _ = given.moments()
    np.testing.assert_array_equal(mean[0, :, 0], given.values[0, chosen])
    np.testing.assert_array_equal(given.estimates(), mean)
    np.testing.assert_allclose(gram[0, :, 0, 0], given.variances[0, chosen], rtol=2 * np.finfo(precision).eps)


@PRECISIONS
@LOGITS
@pytest.mark.parametrize("own_queries", [False, True])
def test_replicates__do_not_depend_on_grouping(own_queries, logits, precision):
    given = problem((5, 3, 3, 3, 1111), logits, precision, own_queries=own_queries)
    whole = (*given.moments(), given.estimates())
    for groups in ([1] * 5, [2, 3], [4, 1]):
        for a, b in itertools.pairwise(np.cumsum([0, *groups])):
            part = given.part(slice(a, b))
            np.testing.assert_equal([*part.moments(), part.estimates()], [each[a:b] for each in whole])


@PRECISIONS
@LOGITS
@pytest.mark.parametrize("place", [0, 500, 1023, 1024, 1499])
@pytest.mark.parametrize("nan", [np.nan, -np.nan, np.uint64(2**63 - 1).view(float)], ids=["NaN", "-NaN", "payload"])
def test_nan__stays_in_its_replicate_and_head(nan, place, logits, precision):
    given = problem((3, 2, 3, 2, 1500), logits, precision)
    given.keys[1, 2, 1, place] = nan
    assert np.isnan(assert_solved(given)[1]).sum() == 2 * 5  # products of the head at two queries


@PRECISIONS
@pytest.mark.parametrize("first", [1030, 0], ids=["some", "all"])
def test_infinite_key__has_no_weight_and_a_head_of_no_others_no_estimate(first, precision):
    given = problem((2, 2, 2, 2, 1500), "distance", precision)
    given.keys[0, 1, :, first:] = np.inf
    assert np.isnan(assert_solved(given)[1]).sum() == (0 if first else 2 * 3)


def test_kernels__are_compiled_once_for_each_precision():
    used = few_queries if many_queries.BUSY_LANES else many_queries
    if not hasattr(used.MOMENTS[np.dtype(float)], "signatures"):
        pytest.skip("compilation is disabled")
    for precision, logits in itertools.product(["float32", "float64"], ["distance", "dot_product"]):
        given = problem((2, 2, 2, 2, 9), logits, precision)
        given.keys.flags.writeable = given.values.flags.writeable = given.queries.flags.writeable = False
        values, variances = given.values.astype("float64"), given.variances.astype("float32")
        for keys, queries in ((given.keys, given.queries[::-1]), (given.keys[..., ::2], given.queries.astype(float))):
            n = keys.shape[-1]
            nw_moments(keys, values[:, :n], None, queries, 1, logits)
            nw_moments(keys, values[:, :n], variances[:, :n], queries, np.float32(1.0), logits)
    assert [len(one.signatures) for one in used.MOMENTS.values()] == [1, 1]
