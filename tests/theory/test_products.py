"""Theory of products of kernels: against what sampled keys give, written out anew."""

import numpy as np
import pytest
from builders import minimal_cell

from simstudy.data.heads import key_projections, query_points, query_projections
from simstudy.design.document import PlannedCell, Precision
from simstudy.theory import exact_moments, product_head
from simstudy.verdicts.predictions import predict

QUERIES = {"kind": "points", "points": [[0.3, -0.5, 0.8], [-1.1]]}
RIDGE = {"kind": "ridge", "frequency": 1.3, "direction": [1.0, 0.6]}


def sampled_product(cell, logits, n_replicates=4000):
    """Bias and variance at each query of one estimate, whose logits are the sum or mean of those of heads."""
    rng = np.random.default_rng(3)
    n, b2 = cell.data.n_keys, cell.bandwidth**2
    keys = rng.standard_normal((n_replicates, n, cell.data.n_features))
    direction = np.array([1.0, 0.6]) / np.hypot(1.0, 0.6)
    m = np.sin(1.3 * (keys[..., :2] @ direction))
    found = []
    for x in query_points(cell):
        z = np.zeros((n_replicates, n))
        for w in key_projections(cell):
            z -= (((keys - x) @ w) ** 2).sum(axis=-1) / (
                2 * b2 * (len(key_projections(cell)) if logits == "mean" else 1)
            )
        k = np.exp(z - z.max(axis=1, keepdims=True))
        k /= k.sum(axis=1, keepdims=True)
        f, noise = (k * m).sum(axis=1), (k**2).sum(axis=1) * cell.data.noise_sd**2
        error = f - np.sin(1.3 * (x[:2] @ direction))
        square = (f - f.mean()) ** 2 + noise
        found.append(
            [error.mean(), f.std() / np.sqrt(n_replicates), square.mean(), square.std() / np.sqrt(n_replicates)]
        )
    return np.array(found).T


@pytest.mark.parametrize("logits", ["sum", "mean"])
def test_product_of_kernels__is_one_head(logits):
    cell = minimal_cell(
        n_keys=30, n_features=3, n_heads=3, head_dim=1, combination={"kind": "product", "logits": logits},
        regression=RIDGE, queries=QUERIES, noise_sd=0.6,
    )  # fmt: skip
    one, key, query = product_head(cell, key_projections(cell), query_projections(cell))
    exact = exact_moments(one, key, query, query_points(cell))
    bias, bias_error, variance, variance_error = sampled_product(cell, logits)
    assert (np.abs(exact.bias[:, 0] - bias) < 4 * bias_error).all()
    assert (np.abs(exact.covariance[:, 0, 0] - variance) < 4 * variance_error).all()
    # The control: the product of the other kind has another variance.
    wrong = sampled_product(cell, {"sum": "mean", "mean": "sum"}[logits], 1000)
    assert (np.abs(exact.covariance[:, 0, 0] - wrong[2]) > 8 * wrong[3]).all()


def planned(cell, exact):
    return PlannedCell(grid="g", cell=cell, precision=Precision(), by_query=False, exact=exact)


def test_product__has_measures_of_one_estimate_and_none_under_another_normaliser():
    cell = minimal_cell(n_keys=400, n_features=4, combination="product", regression=RIDGE, queries=QUERIES)
    joint = minimal_cell(n_keys=400, n_features=4, n_heads=1, head_dim=4, regression=RIDGE, queries=QUERIES)
    (found, single) = predict([planned(cell, True), planned(joint, True)])
    for source in ("exact", "leading"):
        for name in ("mse", "squared_bias", "ensemble_variance"):
            value = found[source].measures[name]
            assert value == pytest.approx(single[source].measures[name], rel=1e-6) and np.isfinite(value)
    sparse = minimal_cell(combination="product", normaliser={"kind": "compact", "power": 1})
    (refused,) = predict([planned(sparse, True)])
    assert "softmax" in refused["exact"].reason and not refused["exact"].measures
