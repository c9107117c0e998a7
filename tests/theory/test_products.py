"""Theory of products of kernels: that of one head in all their dimensions, whose logits are the sum or the mean."""

import numpy as np
import pytest
from builders import minimal_cell

from simstudy.design.document import PlannedCell, Precision
from simstudy.verdicts.predictions import predict

QUERIES = {"kind": "points", "points": [[0.3, -0.5, 0.8], [-1.1]]}
CELL = {"n_keys": 400, "n_features": 4, "queries": QUERIES,
        "regression": {"kind": "ridge", "frequency": 1.3, "direction": [1.0, 0.6]}}  # fmt: skip


def told(*cells):
    planned = [PlannedCell(grid="g", cell=cell, precision=Precision(), by_query=False, exact=True) for cell in cells]
    return list(predict(planned))


@pytest.mark.parametrize(("logits", "widening"), [("sum", 1.0), ("mean", 2.0**0.5)])
def test_product__has_measures_of_one_estimate(logits, widening):
    product = minimal_cell(**CELL, combination={"kind": "product", "logits": logits})
    joint = minimal_cell(**CELL, n_heads=1, head_dim=4, bandwidth=widening * product.bandwidth)
    found, single = told(product, joint)
    for source in ("exact", "leading"):
        for name in ("mse", "squared_bias", "ensemble_variance"):
            value = found[source].measures[name]
            assert value == pytest.approx(single[source].measures[name], rel=1e-6) and np.isfinite(value)


def test_product__has_no_theory_under_another_normaliser():
    (refused,) = told(minimal_cell(combination="product", normaliser={"kind": "compact", "power": 1}))
    assert "softmax" in refused["exact"].reason and not refused["exact"].measures
