"""One ensemble on the caller's own arrays: values, labels, and what each mistake is told."""

import re

import naive
import numpy as np
import pytest
import xarray as xr
from builders import refuses
from pages import bandwidth_of
from scipy.optimize import brentq
from scipy.special import softmax
from scipy.stats import norm

from simstudy import head_diversity, nw_ensemble, principal_angles, theory
from simstudy.data.geometry import GEOMETRIC_INDICES

N, D, H, P, Q = 30, 5, 3, 2, 4
SEEN = np.random.default_rng(9).random((Q, N)) < 0.5
SHAPES = {"keys": (N, D), "values": (N,), "queries": (Q, D), "projections": (H, D, P)}


def arguments():
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(shape) for name, shape in SHAPES.items()} | {"bandwidth": 0.8}


@pytest.mark.parametrize("logits", ["distance", "dot_product"])
@pytest.mark.parametrize("n_values", [None, 1, 4])
@pytest.mark.parametrize("plain", [True, False])
def test_ensemble__is_the_formula(plain, n_values, logits):
    given, rng = arguments(), np.random.default_rng(5)
    if n_values is not None:
        given["values"] = rng.standard_normal((N, n_values))
    own, factors, mask = rng.standard_normal((H, D, P)), np.array([0.5, 1.0, 3.0]), SEEN
    into, out = rng.standard_normal((H, n_values or 1, 2)), rng.standard_normal((H, 2, 5))
    attention = {"head_bandwidths": factors, "query_projections": own, "mask": mask}
    if plain:
        own, factors, mask, attention = given["projections"], np.ones(H), SEEN | True, {}
    attention["logits"] = logits
    found = nw_ensemble(**given, **attention, value_projections=into, output_projections=out)
    mapped = nw_ensemble(**given, **attention, value_projections=into)
    np.testing.assert_array_equal(mapped.head_estimate, found.head_estimate)
    heads, estimate = np.zeros((Q, H, n_values or 1)), np.zeros((Q, 5))
    for q, seen in enumerate(mask):
        w = [
            naive.weights(given["keys"][seen], given["queries"][q], given["projections"][h], own[h],
                          0.8 * factors[h], logits) for h in range(H)
        ]  # fmt: skip
        np.testing.assert_allclose(found.weight_gram[q], np.array(w) @ np.array(w).T, atol=1e-12)
        for h in range(H):
            heads[q, h] = w[h] @ given["values"].reshape(N, -1)[seen]
            np.testing.assert_allclose(found.head_estimate[q, h], heads[q, h] @ into[h], atol=1e-12)
            estimate[q] += heads[q, h] @ into[h] @ out[h]
    np.testing.assert_allclose(found.estimate, estimate, atol=1e-12)
    assert found.estimate.dims == ("query", "output") and found.head_estimate.dims == ("query", "head", "component")
    heads = heads if n_values else heads[..., 0]
    for combination in (None, [0.5, 0.3, 0.2], [1.0, -1.0, 2.0]):
        combined = nw_ensemble(**given, **attention, combination=combination)
        np.testing.assert_allclose(combined.head_estimate, heads, atol=1e-12)
        weights = combination or [1 / H] * H
        np.testing.assert_allclose(combined.estimate, np.einsum("qh...,h->q...", heads, weights), atol=1e-12)


B = 0.9
QUARTILE = brentq(lambda sd: norm.cdf(0.25 * B, scale=sd) - 0.75, 0.01, 10.0)  # of the kernel of ksmooth
KERNELS = {
    "statsmodels": lambda distance, keys: norm.pdf(distance / B),
    "kernelsmooth": lambda distance, keys: norm.pdf(distance / keys.std(ddof=1) / B),
    "ksmooth": lambda distance, keys: norm.pdf(distance, scale=QUARTILE),
    "locfit": lambda distance, keys: np.exp(-0.5 * (2.5 * distance / B) ** 2),
}


@pytest.mark.parametrize("library", KERNELS)
def test_bandwidths_of_other_libraries__are_converted_as_the_page_says(library):
    keys, values, queries = (np.ravel(arguments()[name])[:N] for name in ("keys", "values", "queries"))
    weights = KERNELS[library](np.abs(queries[:, None] - keys), keys)
    converted = bandwidth_of(library, B, keys.std(ddof=1))
    found = nw_ensemble(keys[:, None], values, queries[:, None], np.ones((1, 1)), converted).estimate
    np.testing.assert_allclose(found, weights @ values / weights.sum(axis=1), rtol=1e-7)


def test_ensemble__is_softmax_attention_at_its_bandwidth_and_has_the_value_of_a_key_at_a_query():
    given = arguments()
    at_keys = given | {"queries": given["keys"], "bandwidth": 1e-6}  # also under a mask and of a narrow head
    found = nw_ensemble(**at_keys, mask=np.tril(np.ones((N, N), bool)), head_bandwidths=[1.0, 0.1, 1e-3])
    np.testing.assert_array_equal(found.head_estimate, np.repeat(given["values"][:, None], H, axis=1))
    del given["bandwidth"]
    keys, values, queries, projections = given.values()
    scores = (queries @ projections) @ (keys @ projections).swapaxes(1, 2) / np.sqrt(P)
    attention = (softmax(scores, axis=-1) @ values).mean(axis=0)
    found = nw_ensemble(**given, bandwidth=bandwidth_of("attention", P**-0.5), logits="dot_product").estimate
    np.testing.assert_allclose(found, attention, rtol=1e-12)


def test_ensemble_and_geometry__are_labelled_and_indices_have_names():
    given = arguments()
    found, angles = nw_ensemble(**given), principal_angles(np.array([[[1.0], [0.0]], [[1.0], [1.0]]]))
    assert found.estimate.dims == ("query",) and found.head_estimate.dims == ("query", "head")
    assert found.weight_gram.dims == ("query", "head_i", "head_j") and angles.dims == ("head_i", "head_j", "angle")
    np.testing.assert_allclose(angles[..., 0], [[0, np.pi / 4], [np.pi / 4, 0]], atol=1e-15)
    for variable in (*found.data_vars.values(), angles, head_diversity(np.eye(3))):
        assert variable.dtype == np.float64
        assert all(variable.attrs[text] for text in ("long_name", "units", "formula"))
    indices = head_diversity(given["projections"], 0.8)
    assert tuple(indices.index.values) == GEOMETRIC_INDICES
    for name, value in naive.diversity(given["projections"], 0.8).items():
        assert float(indices.sel(index=name)) == pytest.approx(value, rel=1e-9)
    without = head_diversity(given["projections"])
    assert np.isnan(without.sel(index="logdet")) and np.isfinite(without.drop_sel(index="logdet")).all()


def test_ensemble__takes_lists_labelled_arrays_and_other_precisions_and_leaves_them_alone():
    given = arguments()
    expected, keys, queries = nw_ensemble(**given), given["keys"], given["queries"]
    for same in (
        {name: np.asarray(value).tolist() for name, value in given.items()},
        {"keys": xr.DataArray(keys, dims=("pair", "feature"))},
        {"keys": np.ma.asarray(keys)},  # of which nothing is masked
        {"keys": np.repeat(keys, 2, axis=0)[::2], "queries": np.asfortranarray(queries)},
    ):
        xr.testing.assert_identical(nw_ensemble(**given | same), expected)
    single = {name: np.asarray(value, np.float32) for name, value in given.items()}
    xr.testing.assert_allclose(nw_ensemble(**single), expected, atol=1e-5)
    for name, value in arguments().items():  # which are left alone
        np.testing.assert_array_equal(given[name], value)


@pytest.mark.parametrize(("shift", "outlier"), [(1.7e9, False), (1e14, True)])
def test_common_shift_of_keys_and_queries__takes_no_digit(shift, outlier):
    rng = np.random.default_rng(4)
    offset = np.array([shift, -shift, 0.0])
    numbers = np.round(rng.normal(size=(34, 3)), 1) + offset
    keys, queries = numbers[:30], numbers[30:]
    queries[0] *= -1.0 if outlier else 1.0
    exact = [keys - offset, queries - offset]
    projections, values = rng.normal(size=(4, 3, 2)), rng.normal(size=30)
    found, expected = (nw_ensemble(k, values, q, projections, 0.7) for k, q in ((keys, queries), exact))
    np.testing.assert_allclose(found.head_estimate[1:], expected.head_estimate[1:], rtol=1e-12)


GIVEN = arguments()


@pytest.mark.parametrize("wrong, message", [
    ({"keys": np.ones((N, D + 1))}, "keys has shape (30, 6); give (n, 5)"),
    ({"keys": np.ones((0, D)), "values": []}, "keys has shape (0, 5); give (n, 5), no length zero"),
    ({"keys": np.where(np.eye(N, D, 1), np.nan, GIVEN["keys"])}, "keys holds NaN or infinity"),
    ({"keys": GIVEN["keys"] + 0j}, "keys has dtype complex128; give real numbers"),
    ({"keys": [["a"] * D] * N}, "keys has dtype <U1; give real numbers"),
    ({"keys": [[1.0, 2.0], [1.0]]}, "keys is not an array"),
    (lambda: {"keys": pytest.importorskip("torch").ones(N, D, requires_grad=True)},
     "keys is not an array: Can't call numpy() on Tensor that"),
    ({"values": np.full(N, 1e51)}, "values holds 1e+51, beyond 1e+50; give it in another unit"),
    ({"values": np.ones(N + 1)}, "values has shape (31,); give (30,)"),
    ({"queries": np.ones((Q, 1))}, "queries has shape (4, 1); give (Q, 5)"),
    ({"projections": np.ones(D)}, "projections has shape (5,); give (H, d, p)"),
    ({"projections": np.ones((H, 2, 3))}, "projections have p = 3 columns in d = 2 features; give (H, d, p)"),
    ({"head_bandwidths": [1.0, 2.0]}, "head_bandwidths has shape (2,); give (3,), no length zero"),
    ({"head_bandwidths": [1.0, 0.0, 2.0]}, "head_bandwidths holds 0; give positive factors on the bandwidth"),
    ({"query_projections": np.ones((H, D, 1))}, "query_projections has shape (3, 5, 1); give (3, 5, 2)"),
    ({"mask": np.ones((Q, N))}, "mask is float64 of shape (4, 30); give booleans of shape (4, 30)"),
    ({"mask": np.eye(Q, N, -1) > 0}, "mask lets query 0 see no key; let each see one at least"),
    ({"mask": np.ma.masked_less(SEEN, 1)}, "mask has 72 masked values; remove or fill them, and give booleans"),
    ({"value_projections": np.ones((H, 2, 2))}, "value_projections has shape (3, 2, 2); give (3, 1, k)"),
    ({"output_projections": np.ones((H, 2, 2))}, "output_projections has shape (3, 2, 2); give (3, 1, c)"),
    ({"output_projections": np.ones((H, 1, 2)), "combination": [1.0, 0.0, 0.0]},
     "combination with output_projections, which combine heads themselves; give one of them"),
    ({"bandwidth": 0}, "bandwidth = 0; give one positive number"),
    ({"bandwidth": float("nan")}, "bandwidth = nan; give one positive number, 1e-50 to 1e+50"),
    ({"bandwidth": [0.5, 0.5]}, "bandwidth = [0.5, 0.5]; give one positive number"),
    ({"bandwidth": True}, "bandwidth = True has dtype bool; give real numbers, one positive number"),
    ({"bandwidth": np.ma.masked}, "bandwidth has 1 masked values; remove or fill them, and give one positive number"),
    ({"keys": np.ma.masked_greater(GIVEN["keys"], 0)}, "masked values; remove or fill them, and give shape (n, 5)"),
    ({"keys": np.broadcast_to(0.0, (10**9, D)), "values": np.broadcast_to(0.0, 10**9)},
     "keys has shape (1000000000, 5), more than 1073741824 numbers; give fewer, shape (n, 5)"),
    ({"logits": "cosine"}, "logits = 'cosine'; give one of distance, dot_product"),
    ({"combination": [0.5, 0.5]}, "combination has shape (2,); give (3,)"),
    ({"queries": np.full((Q, D), np.inf)}, "queries holds NaN or infinity"),
])  # fmt: skip
def test_mistakes__are_named_with_their_remedy(wrong, message):
    refuses(re.escape(message), nw_ensemble, **GIVEN | (wrong() if callable(wrong) else wrong), error=ValueError)


VAST, MASKED = np.broadcast_to(1.0, (10**9, 2)), np.ma.masked_less([0.5, 1.0], 0.7)
UNFIT = [(VAST, "shape (1000000000, 2), more than"), (MASKED, "1 masked values"), ([1j, 0], "dtype complex128"),
         (np.array([0.5, None]), "dtype object"), (["a", "b"], "dtype <U1")]  # fmt: skip
TAKE_ARRAYS = {
    "origin_correlation": lambda x: theory.origin_correlation(x, 1.0),
    "noise_ratio": lambda x: theory.noise_ratio([0.0, 0.0], x, [0.1, 0.2], 1.0),
    "averaged_noise_ratio": lambda x: theory.averaged_noise_ratio(x, 1.0),
    "dot_product_correlation": lambda x: theory.dot_product_correlation(x, [0.0, 0.0], np.eye(2)),
    "optimal_weights": theory.optimal_weights,
    "simplex_weights": lambda e: theory.optimal_weights(e, "simplex"),
    "front_greater_weights": lambda e: theory.optimal_weights(e, "front_greater"),
    "principal_angles": principal_angles,
    "head_diversity": head_diversity,
}


@pytest.mark.parametrize("function", TAKE_ARRAYS.values(), ids=TAKE_ARRAYS.keys())
def test_arrays_that_are_none_or_span_no_subspace__are_refused_by_theory_and_geometry_too(function):
    for array, message in UNFIT:
        refuses(re.escape(message), function, array, error=ValueError)
    if function in (principal_angles, head_diversity):
        projections = GIVEN["projections"].copy()
        projections[1, :, 1] = 2 * projections[1, :, 0]
        refuses("head 1 have rank 1 < p = 2; give p", function, projections, error=ValueError)


@pytest.mark.parametrize("bandwidth", [True, "1", 1j, [1.0, 2.0], np.ma.masked, 0, -1.0, 1e300, float("nan")])
def test_bandwidth_of_theory_and_of_indices__is_a_number(bandwidth):
    assert theory.origin_correlation(np.float16([0.5]), 1.0) == theory.origin_correlation([0.5], 1.0)
    for function in (theory.origin_correlation, theory.averaged_noise_ratio, lambda _, b: head_diversity(np.eye(3), b)):
        refuses("bandwidth", function, [0.5, 1.0], bandwidth, error=ValueError)
