"""Attention as machine learning writes it, against the ensemble; masks: estimates and theory of keys that are seen."""

import importlib.util
import itertools

import numpy as np
import pytest
from builders import DESIGN, RIDGE, arrays_of, edited, estimated, loaded, minimal_cell, mistakes, solved

from simstudy.attention import members_of
from simstudy.attention import reference as reference_module
from simstudy.data.shared import SharedData
from simstudy.design.settings.cell import contents
from simstudy.theory import exact_moments, leading_order, masked

SIX_QUERIES = {"kind": "gaussian", "count": 6}
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


def discrepancy(**settings) -> float:
    cell = minimal_cell(regression=RIDGE, queries=SIX_QUERIES, bandwidth="attention", n_heads=3, **settings)
    return float(estimated(cell).estimate["discrepancy"])


ALONE, LAYER, TORCH = ({"reference": f"{of}attention"} for of in ("", "multi_head_", "torch_multi_head_"))
WEIGHTED, DOT, SINGLE = {"combination": [0.5, -0.2, 0.9]}, {"logits": "dot_product"}, {"dtype": "float32"}
TREATED = [{"noise_treatment": each, "query_projections": other} for each, other in itertools.product(
    ("integrated", "drawn"), ("same", "opposite", "haar")
)]  # fmt: skip
COMBINED = [WEIGHTED, *({"combination": each} for each in ("uniform", "sum", "fibonacci"))]


@pytest.mark.parametrize(
    ("settings", "least", "most"),
    [
        *((ALONE | DOT | each, 0.0, 1e-13) for each in TREATED),
        (ALONE | {"key_scale": "normalised"}, 0.0, 1e-13), (ALONE | {"key_scale": "raw"}, 0.05, np.inf),
        *((LAYER | DOT | each, 0.0, 1e-13) for each in COMBINED), *((LAYER | each, 0.05, np.inf) for each in COMBINED),
        *(pytest.param(TORCH | WEIGHTED | DOT | {"head_dim": p}, 0.0, 1e-12, marks=needs_torch) for p in (1, 2)),
        (LAYER | DOT | SINGLE, 1e-9, 1e-5),  # compared with a layer in double precision
        pytest.param(TORCH | DOT | SINGLE, 1e-9, 1e-5, marks=needs_torch),
    ],
)  # fmt: skip
def test_ensemble__is_attention_with_dot_products_or_normalised_keys_and_otherwise_not(settings, least, most):
    assert least <= discrepancy(**settings) < most


def test_attention__does_not_overflow():
    queries, keys = np.full((1, 1, 1, 1), 1e3), np.array([[[[-1e3, 1e3]]]])
    assert reference_module.attention(queries, keys, np.array([[5.0, 7.0]]), 1.0).item() == 7.0


@pytest.mark.parametrize("noise_treatment", ["integrated", "drawn"])
def test_direct_mse__closes_the_decomposition(noise_treatment):
    cell = minimal_cell(regression=RIDGE, queries=SIX_QUERIES, noise_treatment=noise_treatment)
    found = estimated(cell).estimate
    variance, covariance, n_heads = found["mean_variance"], found["mean_covariance"], cell.heads.n_heads
    closed = found["squared_bias"] + variance / n_heads + (1 - 1 / n_heads) * covariance
    assert found["direct_mse"] == pytest.approx(closed, rel=1e-12)
    assert found["direct_mse"] != pytest.approx(closed - covariance, rel=1e-3)


def test_query_correlation__by_hand():
    settings = {"noise_treatment": "drawn", "batch_size": 16, "n_heads": 3}
    cell = minimal_cell(regression=RIDGE, queries=SIX_QUERIES, **settings)
    means = members_of(cell, SharedData(cell, 0, 16)).means
    pairs = np.triu_indices(3, 1)
    expected = np.mean([np.corrcoef(means[r].T)[pairs] for r in range(16)])
    assert estimated(cell).estimate["query_correlation"] == pytest.approx(expected)
    constant = minimal_cell(regression="zero", noise_sd=0.0, queries=SIX_QUERIES, **settings)
    assert np.isnan(estimated(constant).estimate["query_correlation"])  # without a warning


N, QUERIES = 21, {"kind": "gaussian", "count": 6}
SEEN = np.random.default_rng(7).random((6, N)) < 0.4
SEEN[3] = SEEN[0]
MASKS = {
    "causal": {"mask": "causal"},
    "banded": {"mask": {"kind": "banded", "width": 4}},
    "file": {"mask": {"kind": "file", "path": "mask.npy"}},
}
VISIBLE = {
    "causal": [[key < np.ceil((q + 1) * N / 6) for key in range(N)] for q in range(6)],
    "banded": [[np.ceil((q + 1) * N / 6) - 4 <= key < np.ceil((q + 1) * N / 6) for key in range(N)] for q in range(6)],
    "file": SEEN.tolist(),
}
MECHANISMS = {
    "softmax": {},
    "dot product": {"logits": "dot_product"},
    "entmax": {"normaliser": {"kind": "entmax", "power": 2}},
    "compact": {"normaliser": {"kind": "compact", "power": 1, "window": 9.0}},
    "product": {"combination": {"kind": "product", "logits": "sum"}},
}


def cell_of(mask, **settings):
    base = {"n_keys": N, "regression": "linear", "queries": QUERIES, "noise_sd": 0.5}
    cell = minimal_cell(**base | MASKS.get(mask, {}) | settings)
    contents = tuple("".join("01"[int(key)] for key in row) for row in SEEN) if mask == "file" else None
    return cell.model_copy(update={"file_mask": contents})


@pytest.mark.parametrize("mask", MASKS)
def test_mask__lets_each_query_see_the_keys_that_it_says(mask):
    np.testing.assert_array_equal(cell_of(mask).visible, VISIBLE[mask])
    assert cell_of(mask).identity("") != cell_of("none").identity("")


@pytest.mark.parametrize("noise_treatment", ["integrated", "drawn"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("mask", MASKS)
def test_masked_query__has_the_estimates_of_the_keys_that_it_sees(mask, mechanism, noise_treatment):
    cell = cell_of(mask, noise_treatment=noise_treatment, **MECHANISMS[mechanism])
    found = members_of(cell, SharedData(cell, 3, 2))
    for r in range(2):
        means, gram = solved(cell, MECHANISMS[mechanism], 3 + r)
        np.testing.assert_allclose(found.means[r], means, atol=1e-10)
        if noise_treatment == "integrated":
            np.testing.assert_allclose(found.gram[r], gram, atol=1e-10)


@pytest.mark.parametrize(
    "reference", ["attention", "multi_head_attention", pytest.param("torch_multi_head_attention", marks=needs_torch)]
)
@pytest.mark.parametrize("mask", MASKS)
def test_masked_heads__are_masked_attention(mask, reference):
    settings = {"reference": reference, "logits": "dot_product", "bandwidth": "attention"}
    assert estimated(cell_of(mask, **settings)).estimate["discrepancy"] < 1e-13


@pytest.mark.parametrize("method", [exact_moments, leading_order])
def test_theory__of_a_masked_query_is_that_of_as_many_keys(method):
    settings = {"bandwidth": {"kind": "rate", "constant": 6.0}, "head_dim": 1, "logits": "dot_product"}
    cell = cell_of("causal", **settings, n_keys=300)
    heads = arrays_of(cell)
    found = masked(method, cell, *heads)
    for q, n_seen in enumerate((50, 100, 150, 200, 250, 300)):
        alone = cell_of("none", **settings | {"bandwidth": cell.bandwidth}, n_keys=n_seen)
        expected = method(alone, *heads[:2], heads[2][q : q + 1])
        np.testing.assert_equal([found.covariance[q], found.bias[q]], [expected.covariance[0], expected.bias[0]])
    assert np.isfinite(found.bias).any()


def test_mask_from_a_file__travels_with_the_cell_and_identifies_it_by_its_contents(tmp_path):
    text = edited(DESIGN, "[grids.angles.factors]", '[grids.angles.settings]\nmask = { kind = "file", path = "a.npy" }'
                  "\n[grids.angles.factors]")  # fmt: skip
    seen, cells = np.arange(40)[None] % 3 == 0, []
    for name, array in (("a", seen), ("b", seen), ("c", ~seen)):
        np.save(tmp_path / f"{name}.npy", array)
        cells.append(loaded(tmp_path, text.replace("a.npy", f"{name}.npy")).cells[0].cell)
    cell, other, changed = cells
    np.testing.assert_array_equal(cell.visible, seen)
    assert other.identity("") == cell.identity("") != changed.identity("")
    assert contents([changed]).keys() != contents([cell]).keys() == contents([other]).keys()
    wrong = {"holds shape": seen[:, :-1], "booleans, not int64": seen.astype(int), "sees no key": seen & False}
    for message, array in wrong.items():
        np.save(tmp_path / "a.npy", array)
        assert message in mistakes(tmp_path, text)
