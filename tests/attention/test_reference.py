"""Attention written as machine learning writes it, against the ensemble: equal where it must be, not elsewhere."""

import numpy as np
import pytest
from builders import estimated, minimal_cell, needs

from simstudy.attention import members_of
from simstudy.attention import reference as reference_module
from simstudy.data.shared import SharedData

RIDGE = {"kind": "ridge", "amplitude": 2.0, "direction": [1.0, -0.5]}
QUERIES = {"kind": "gaussian", "count": 6}
needs_torch = needs("torch")


def discrepancy(**settings) -> float:
    cell = minimal_cell(regression=RIDGE, queries=QUERIES, bandwidth="attention", n_heads=3, **settings)
    return float(estimated(cell).estimate["discrepancy"])


@pytest.mark.parametrize("noise_treatment", ["integrated", "drawn"])
@pytest.mark.parametrize("query_projections", ["same", "opposite", "haar"])
def test_dot_product_heads__are_attention(noise_treatment, query_projections):
    settings = {"noise_treatment": noise_treatment, "query_projections": query_projections, "logits": "dot_product"}
    assert discrepancy(reference="attention", **settings) < 1e-13


def test_distance_heads__are_attention_on_normalised_keys_and_on_no_others():
    assert discrepancy(reference="attention", key_scale="normalised") < 1e-13
    assert discrepancy(reference="attention", key_scale="raw") > 0.05


@pytest.mark.parametrize("combination", ["uniform", "sum", [0.5, -0.2, 0.9], "fibonacci"])
def test_layer__is_the_weighted_ensemble(combination):
    settings = {"combination": combination, "logits": "dot_product"}
    assert discrepancy(reference="multi_head_attention", **settings) < 1e-13
    assert discrepancy(reference="multi_head_attention", combination=combination, logits="distance") > 0.05


@needs_torch
@pytest.mark.parametrize("head_dim", [1, 2])
def test_layer_of_pytorch__is_the_weighted_ensemble(head_dim):
    settings = {"combination": [0.5, -0.2, 0.9], "logits": "dot_product", "head_dim": head_dim}
    assert discrepancy(reference="torch_multi_head_attention", **settings) < 1e-12


@pytest.mark.parametrize(
    "reference", ["multi_head_attention", pytest.param("torch_multi_head_attention", marks=needs_torch)]
)
def test_single_precision__is_compared_with_a_layer_in_double(reference):
    found = discrepancy(reference=reference, logits="dot_product", dtype="float32")
    assert 1e-9 < found < 1e-5


def test_attention__does_not_overflow():
    queries, keys = np.full((1, 1, 1, 1), 1e3), np.array([[[[-1e3, 1e3]]]])
    assert reference_module.attention(queries, keys, np.array([[5.0, 7.0]]), 1.0).item() == 7.0


def test_statistics__without_a_meaning_are_nan():
    found = estimated(minimal_cell(n_heads=2)).estimate
    assert "discrepancy" not in found and np.isnan(found["query_correlation"])


@pytest.mark.parametrize("noise_treatment", ["integrated", "drawn"])
def test_direct_mse__closes_the_decomposition(noise_treatment):
    cell = minimal_cell(regression=RIDGE, queries=QUERIES, noise_treatment=noise_treatment)
    found = estimated(cell).estimate
    variance, covariance, n_heads = found["mean_variance"], found["mean_covariance"], cell.heads.n_heads
    closed = found["squared_bias"] + variance / n_heads + (1 - 1 / n_heads) * covariance
    assert found["direct_mse"] == pytest.approx(closed, rel=1e-12)
    assert found["direct_mse"] != pytest.approx(closed - covariance, rel=1e-3)


def test_query_correlation__by_hand():
    cell = minimal_cell(regression=RIDGE, queries=QUERIES, noise_treatment="drawn", batch_size=16)
    means = members_of(cell, SharedData(cell, 0, 16)).means
    expected = np.mean([np.corrcoef(means[r].T)[0, 1] for r in range(16)])
    assert estimated(cell).estimate["query_correlation"] == pytest.approx(expected)
