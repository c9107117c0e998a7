"""Mechanisms as designs compose them, attention as machine learning writes it, and masks, against loops and theory."""

import importlib.util
import itertools
import math
from functools import partial

import naive
import numpy as np
import pytest
from builders import RIDGE, arrays_of, estimated, loaded, minimal_cell, mistakes, solved, varied

from simstudy.attention import mechanism, members_of
from simstudy.attention import reference as reference_module
from simstudy.attention.normalisers import entmax
from simstudy.data.shared import SharedData
from simstudy.data.span import span_of
from simstudy.design.cells import impossibilities
from simstudy.design.files import contents
from simstudy.replicates.replay import replay
from simstudy.theory import exact_moments, leading_order, masked


@pytest.mark.parametrize("power", [1, 2, 3, 10, 100])
@pytest.mark.parametrize("scale", [1e-6, 0.3, 2.0, 50.0])
def test_entmax__is_the_bisection(power, scale):
    z = scale * np.random.default_rng(0).standard_normal((5, 40))
    np.testing.assert_allclose(entmax(z, power), [naive.entmax(row, power) for row in z], atol=1e-12)


def test_entmax_and_attention__of_one_key_equal_logits_and_large_numbers():
    queries, keys = np.full((1, 1, 1, 1), 1e3), np.array([[[[-1e3, 1e3]]]])
    assert reference_module.attention(queries, keys, np.array([[5.0, 7.0]]), 1.0).item() == 7.0
    assert entmax(np.array([7.0]), 3) == 1.0
    np.testing.assert_allclose(entmax(np.zeros(8), 2), 1 / 8)
    assert np.isnan(entmax(np.array([1.0, np.nan]), 2)).all()
    np.testing.assert_array_equal(entmax(np.array([1e30, -1e30, 1e30]), 2), [0.5, 0.0, 0.5])


QUERIES = {"kind": "points", "points": [[0.0], [0.5, -1.0], [0.3, 0.6, -0.2, 0.9]]}
DOT, SIX_QUERIES = {"logits": "dot_product"}, {"kind": "gaussian", "count": 6}
MECHANISMS = {
    "epanechnikov": {"normaliser": {"kind": "compact", "power": 1, "window": 2.5}},
    "entmax": {"normaliser": {"kind": "entmax", "power": 2}},
    "entmax of products": {"normaliser": {"kind": "entmax", "power": 3}, **DOT},
    "sparsemax": {"normaliser": {"kind": "sparsemax"}, **DOT},
    "the largest three": {"normaliser": {"kind": "top_k", "k": 3}},
    "the largest five products": {"normaliser": {"kind": "top_k", "k": 5}, **DOT},
    "local linear": {"normaliser": {"kind": "local_linear"}},
    "local linear of products": {"normaliser": {"kind": "local_linear", "ridge": 0.3}, **DOT},
    "relu": {"normaliser": {"kind": "relu", "threshold": -3.0}},
    "merge": {"transformation": {"kind": "merge", "stride": 3}},
    "merge, sparse": {"transformation": {"kind": "merge", "stride": 4}, "normaliser": {"kind": "entmax", "power": 2}},
    **{f"low rank of {method}": {"transformation": {"kind": "low_rank", "rank": 1, "method": method}, **DOT}
       for method in ("scores", "keys", "stacked")},
    "product": {"combination": {"kind": "product", "logits": "sum"}},
    "pool of compact": {"combination": {"kind": "product", "logits": "mean"},
                        "normaliser": {"kind": "compact", "power": 2, "window": 3.0}},
}  # fmt: skip
cell_of = partial(minimal_cell, n_keys=22, regression=RIDGE, queries=QUERIES, noise_sd=0.5)
REDRAWN = {"arrangement": "haar_redrawn", "query_projections": "haar"}


@pytest.mark.parametrize("heads", [{}, REDRAWN], ids=["fixed", "redrawn"])
@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)
def test_mechanism__is_the_loop_over_its_formula(mechanism, heads):
    cell = cell_of(**mechanism, **heads)
    members = members_of(cell, SharedData(cell, 3, 4))
    for r in range(4):
        means, gram = solved(cell, mechanism, 3 + r)
        assert np.isfinite(means).all()
        np.testing.assert_allclose(members.means[r], means, atol=1e-10)
        np.testing.assert_allclose(members.gram[r], gram, atol=1e-10)
        assert np.abs(means - solved(cell, {}, 3 + r)[0]).max() > 1e-3  # the control: the piece matters


def test_queries_in_parts__change_no_bit(monkeypatch):
    cell = cell_of(**MECHANISMS["entmax"])
    whole = members_of(cell, SharedData(cell, 3, 4))
    monkeypatch.setattr(mechanism, "BLOCK_BYTES", 1)
    parts = members_of(cell, SharedData(cell, 3, 4))
    np.testing.assert_equal([parts.means, parts.gram], [whole.means, whole.gram])
    assert (whole.means[:, 0] != whole.means[:, 1]).any()  # or parts could be taken for one another


@pytest.mark.parametrize("logits", ["distance", "dot_product"])
@pytest.mark.parametrize("arrangement", ["orthogonal", "haar_redrawn"])
def test_heads_of_their_own_bandwidths__are_those_of_cells_of_these(arrangement, logits):
    settings = {"arrangement": arrangement, "logits": logits, "regression": "linear", "bandwidth": 0.6,
                "queries": QUERIES}  # fmt: skip
    own = minimal_cell(head_bandwidths=[1.0, 2.5], **settings)
    plain, wide = minimal_cell(**settings), minimal_cell(**settings | {"bandwidth": 1.5})
    shared = SharedData(plain, 0, 4)
    first, found, second = (members_of(cell, shared) for cell in (plain, own, wide))
    np.testing.assert_allclose(found.means[..., 0], first.means[..., 0], rtol=1e-10)
    np.testing.assert_allclose(found.means[..., 1], second.means[..., 1], rtol=1e-10)
    assert np.abs(found.means[..., 1] - first.means[..., 1]).max() > 1e-3
    np.testing.assert_allclose(found.gram[..., 1, 1], second.gram[..., 1, 1], rtol=1e-10)


DRAWN = {"noise_treatment": "drawn"}
FITTED = {"combination": {"kind": "fitted", "n_validation": 9}, **DRAWN}
SPARSE, MASKED, BANDS = {"normaliser": "sparsemax"}, {"mask": "causal"}, {"head_bandwidths": [1, 2]}
VECTORS = {"value_projections": "disjoint"}
ONE_OF_TWO = "change one of the two"


@pytest.mark.parametrize("settings, setting, said", [
    ({"normaliser": {"kind": "compact", "power": 1}, **DOT}, "normaliser", ""),
    ({"normaliser": {"kind": "compact", "power": 10}, "dtype": "float32"}, "normaliser", 'needs dtype = "float64"'),
    ({"transformation": {"kind": "low_rank", "rank": 3}, **DOT}, "transformation", ""),
    ({"transformation": {"kind": "low_rank", "rank": 1}}, "transformation", ""),
    (SPARSE | {"learner": "trained", **DRAWN}, "learner", ""),
    (SPARSE | {"reference": "attention"}, "reference", ""),
    (BANDS | {"head_bandwidths": [1.0, 2.0, 3.0]}, "head_bandwidths", "3 factors for n_heads = 2"),
    (BANDS | {"learner": "trained", **DRAWN}, "head_bandwidths", ONE_OF_TWO),
    (BANDS | {"key_scale": "normalised"}, "head_bandwidths", ONE_OF_TWO),
    ({"learner": "trained"}, "learner", ""),
    ({"learner": "trained", **DOT, **DRAWN}, "learner", ""),
    ({"learner": {"kind": "random_forest", "max_features": 99}, **DRAWN}, "learner", ""),
    ({"learner": "ant_colony", "reference": "attention", **DRAWN}, "reference", ""),
    ({"learner": "ant_colony", **FITTED}, "combination", ""),
    (MASKED | {"transformation": {"kind": "merge", "stride": 3}}, "mask", 'needs transformation = "none"'),
    (MASKED | {"learner": "trained", **DRAWN}, "mask", 'needs learner = "nadaraya_watson"'),
    (MASKED | FITTED, "mask", "needs weights that are not fitted"),
    (VECTORS | {"combination": "sum"}, "value_projections", 'needs combination = "uniform"'),
    (VECTORS | {"learner": "random_forest", **DRAWN}, "value_projections", 'needs learner = "nadaraya_watson"'),
    (VECTORS | {"reference": "attention"}, "value_projections", 'needs reference = "none"'),
    ({"value_projections": {"kind": "random", "n_components": 6, "value_dim": 7}}, "value_projections",
     "7 dimensions of a value, but n_components = 6"),
    ({"combination": {"kind": "optimal"}, "arrangement": "haar", "population": ["queries", "heads"]},
     "combination", ""),
])  # fmt: skip
def test_what_cannot_be_together__is_named(settings, setting, said):
    found = [text for name, text in impossibilities(cell_of(**{"queries": SIX_QUERIES} | settings)) if name == setting]
    assert found and said in found[0] and (not said.startswith("needs") or found[0].endswith(ONE_OF_TWO))
    possible = {"combination": {"kind": "optimal"}, "arrangement": "haar", "population": ["queries"]}
    for other in ({}, possible, MASKED, BANDS, VECTORS, SPARSE):  # the control: what can be together
        assert not impossibilities(cell_of(**{"queries": SIX_QUERIES} | other))


EQUICORRELATED = {"kind": "gaussian", "structure": "equicorrelated", "correlation": 0.6}
KEYS = ["gaussian", EQUICORRELATED, EQUICORRELATED | {"structure": "autoregressive"}]
KEYS += [{"kind": "student_t", "df": 5}, {"kind": "autoregressive", "coefficient": 0.5}]


@pytest.mark.parametrize(("keys", "d"), [*((keys, 10) for keys in KEYS), ("gaussian", 5)])
def test_queries_that_are_absorbed__have_the_estimates_of_keys_of_their_law(keys, d):
    settings = DOT | {"head_dim": 3 if d == 5 else 4, "arrangement": "haar", "query_projections": "haar"}
    settings |= {"n_features": d, "key_distribution": keys, "noise": {"kind": "heteroscedastic"}, "control": "none"}
    settings |= {"regression": {"kind": "ridge", "direction": [1.0, 2.0]}, "queries": {"kind": "gaussian", "count": 2}}
    cells = [minimal_cell(n_heads=2, n_keys=50, bandwidth=b, noise_sd=0.5, **settings) for b in (1.3, 2.6)]
    shared, span = SharedData(cells[0], 3, 1), span_of(cells[0])
    assert span.directions.shape == (d, 6 if d == 10 else 0)
    for cell in cells:
        found, members = replay(cell, 3), members_of(cell, shared)
        key, query = found["key_projections"].values, found["query_projections"].values
        inputs = found["keys"].values, found["values"].values, found["noise_variance"].values
        points = np.einsum("qj,hjk->qhk", found["query_points"].values, query)
        means, gram = solved(cell, {"logits": "dot_product"}, 3)
        for estimates in (members.means[0], found["head_estimate"]):
            np.testing.assert_allclose(estimates, means, rtol=1e-9)
        np.testing.assert_allclose(members.gram[0], gram, rtol=1e-9)
        np.testing.assert_array_equal(inputs[0], replay(cells[0], 3)["keys"])
        np.testing.assert_allclose(inputs[1], np.sin(np.array([1.0, 2.0]) / math.sqrt(5.0) @ inputs[0][:2]), atol=1e-9)
        np.testing.assert_allclose(inputs[2], 0.125 * (1.0 + inputs[0][0] ** 2), rtol=1e-9)
    if span.directions.size:
        drawn = np.cov(np.concatenate(SharedData(cells[0], 0, 200).keys(50, 6), axis=1))
        np.testing.assert_allclose(drawn, np.eye(6), atol=0.1)  # five standard errors
        sigma, gaps = np.eye(d), abs(np.subtract.outer(range(d), range(d)))
        if keys in KEYS[1:3]:
            sigma = 0.6 ** (gaps if keys["structure"] == "autoregressive" else np.sign(gaps))
        directions = np.concatenate([*np.einsum("qhk,hjk->hjq", points, key), np.eye(d, 2)], axis=1)
        seen = np.concatenate([*span.slopes, *span.features], axis=1)
        np.testing.assert_allclose(seen.T @ seen, directions.T @ sigma @ directions, atol=1e-12)


needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
ALONE, LAYER, TORCH = ({"reference": f"{of}attention"} for of in ("", "multi_head_", "torch_multi_head_"))
WEIGHTED, SINGLE = {"combination": [0.5, -0.2, 0.9]}, {"dtype": "float32"}
TREATED = [{"noise_treatment": each, "query_projections": other} for each, other in itertools.product(
    ("integrated", "drawn"), ("same", "opposite", "haar")
)]  # fmt: skip
COMBINED = [WEIGHTED, *({"combination": each} for each in ("uniform", "sum", "fibonacci"))]


@pytest.mark.parametrize("settings, least, most", [
    *((ALONE | DOT | each, 0.0, 1e-13) for each in TREATED),
    (ALONE | {"key_scale": "normalised"}, 0.0, 1e-13), (ALONE | {"key_scale": "raw"}, 0.05, np.inf),
    *((LAYER | DOT | each, 0.0, 1e-13) for each in COMBINED), *((LAYER | each, 0.05, np.inf) for each in COMBINED),
    *(pytest.param(TORCH | WEIGHTED | DOT | {"head_dim": p}, 0.0, 1e-12, marks=needs_torch) for p in (1, 2)),
    (LAYER | DOT | SINGLE, 1e-9, 1e-5),  # compared with a layer in double precision
    pytest.param(TORCH | DOT | SINGLE, 1e-9, 1e-5, marks=needs_torch),
])  # fmt: skip
def test_ensemble__is_attention_with_dot_products_or_normalised_keys_and_otherwise_not(settings, least, most):
    cell = minimal_cell(regression=RIDGE, queries=SIX_QUERIES, bandwidth="attention", n_heads=3, **settings)
    assert least <= estimated(cell).estimate["discrepancy"] < most


def test_direct_mse__closes_the_decomposition_and_query_correlation_is_that_by_hand():
    for noise_treatment in ("integrated", "drawn"):
        found = estimated(minimal_cell(regression=RIDGE, queries=SIX_QUERIES, noise_treatment=noise_treatment)).estimate
        closed = found["squared_bias"] + (found["mean_variance"] + found["mean_covariance"]) / 2
        assert found["direct_mse"] == pytest.approx(closed, rel=1e-12)
        assert found["direct_mse"] != pytest.approx(closed - found["mean_covariance"], rel=1e-3)
    settings = {"noise_treatment": "drawn", "batch_size": 16, "n_heads": 3}
    cell = minimal_cell(regression=RIDGE, queries=SIX_QUERIES, **settings)
    means = members_of(cell, SharedData(cell, 0, 16)).means
    expected = np.mean([np.corrcoef(means[r].T)[np.triu_indices(3, 1)] for r in range(16)])
    assert estimated(cell).estimate["query_correlation"] == pytest.approx(expected)
    constant = minimal_cell(regression="zero", noise_sd=0.0, queries=SIX_QUERIES, **settings)
    assert np.isnan(estimated(constant).estimate["query_correlation"])  # without a warning


N = 21
SEEN = np.random.default_rng(7).random((6, N)) < 0.4
SEEN[3] = SEEN[0]
KEY, END = np.arange(N), np.ceil(np.arange(1, 7) * N / 6)[:, None]
MASKS = {"causal": "causal", "banded": {"kind": "banded", "width": 4}, "file": {"kind": "file", "path": "mask.npy"}}
VISIBLE = {"causal": KEY < END, "banded": (END - 4 <= KEY) & (KEY < END), "file": SEEN}
UNDER_MASKS = {name: MECHANISMS[name] for name in ("entmax", "product")} | {"softmax": {}, "dot product": DOT}
UNDER_MASKS["compact"] = {"normaliser": {"kind": "compact", "power": 1, "window": 9.0}}


def masked_cell(mask, **settings):
    base = {"n_keys": N, "regression": "linear", "queries": SIX_QUERIES, "noise_sd": 0.5}
    cell = minimal_cell(**base | {"mask": MASKS.get(mask, "none")} | settings)
    contents = tuple("".join("01"[int(key)] for key in row) for row in SEEN) if mask == "file" else None
    return cell.model_copy(update={"file_mask": contents})


@pytest.mark.parametrize("noise_treatment", ["integrated", "drawn"])
@pytest.mark.parametrize("mechanism", UNDER_MASKS)
@pytest.mark.parametrize("mask", MASKS)
def test_masked_query__sees_the_keys_that_the_mask_says_and_has_their_estimates(mask, mechanism, noise_treatment):
    cell = masked_cell(mask, noise_treatment=noise_treatment, **UNDER_MASKS[mechanism])
    np.testing.assert_array_equal(cell.visible, VISIBLE[mask])
    assert masked_cell(mask).identity("") != masked_cell("none").identity("")
    found = members_of(cell, SharedData(cell, 3, 2))
    for r in range(2):
        means, gram = solved(cell, UNDER_MASKS[mechanism], 3 + r)
        np.testing.assert_allclose(found.means[r], means, atol=1e-10)
        if noise_treatment == "integrated":
            np.testing.assert_allclose(found.gram[r], gram, atol=1e-10)


@pytest.mark.parametrize("reference", [ALONE, LAYER, pytest.param(TORCH, marks=needs_torch)])
@pytest.mark.parametrize("mask", MASKS)
def test_masked_heads__are_masked_attention(mask, reference):
    assert estimated(masked_cell(mask, **reference, **DOT, bandwidth="attention")).estimate["discrepancy"] < 1e-13


@pytest.mark.parametrize("method", [exact_moments, leading_order])
def test_theory__of_a_masked_query_is_that_of_as_many_keys(method):
    settings = {"bandwidth": {"kind": "rate", "constant": 6.0}, "head_dim": 1, "logits": "dot_product"}
    cell = masked_cell("causal", **settings, n_keys=300)
    heads = arrays_of(cell)
    found = masked(method, cell, *heads)
    for q, n_seen in enumerate((50, 100, 150, 200, 250, 300)):
        alone = masked_cell("none", **settings | {"bandwidth": cell.bandwidth}, n_keys=n_seen)
        expected = method(alone, *heads[:2], heads[2][q : q + 1])
        np.testing.assert_equal([found.covariance[q], found.bias[q]], [expected.covariance[0], expected.bias[0]])
    assert np.isfinite(found.bias).any()


def test_mask_from_a_file__travels_with_the_cell_and_identifies_it_by_its_contents(tmp_path):
    seen, cells = np.arange(40)[None] % 3 == 0, []
    for name, array in (("a", seen), ("b", seen), ("c", ~seen)):
        np.save(tmp_path / f"{name}.npy", array)
        cells.append(loaded(tmp_path, varied(mask={"kind": "file", "path": f"{name}.npy"})).cells[0].cell)
    cell, other, changed = cells
    np.testing.assert_array_equal(cell.visible, seen)
    assert other.identity("") == cell.identity("") != changed.identity("")
    assert contents([changed]).keys() != contents([cell]).keys() == contents([other]).keys()
    wrong = {"holds shape": seen[:, :-1], "booleans, not int64": seen.astype(int), "sees no key": seen & False}
    for message, array in wrong.items():
        np.save(tmp_path / "a.npy", array)
        assert message in mistakes(tmp_path, varied(mask={"kind": "file", "path": "a.npy"}))
