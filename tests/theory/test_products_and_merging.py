"""Theory of products of kernels and of merged keys: against what sampled keys give, written out anew."""

import numpy as np
import pytest
from builders import minimal_cell

from simstudy.data.heads import key_projections, query_points, query_projections
from simstudy.design.document import PlannedCell, Precision
from simstudy.replicates.batch import simulate_batch
from simstudy.replicates.moments import stack
from simstudy.theory import exact_moments, merged_leading_order, product_head
from simstudy.verdicts.predictions import predict

QUERIES = {"kind": "points", "points": [[0.3, -0.5, 0.8], [-1.1]]}
AT = {"kind": "points", "points": [[0.8]]}
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


def autoregressive(coefficient):
    return {"kind": "autoregressive", "coefficient": coefficient}


MERGED = [
    {"key_distribution": autoregressive(0.8), "stride": 3}, {"key_distribution": autoregressive(-0.4), "stride": 2},
    {"stride": 4}, {"key_distribution": autoregressive(0.5), "stride": 1},
    # Keys of one chunk follow its mean in very different measure.
    {"key_distribution": autoregressive(-0.7), "stride": 3},
]  # fmt: skip


def sampled_merging(cell, coefficient, stride, n_chunks=400_000):
    """E[K m̄]/E K − m and its error for one head that sees the first two of three features, chunk by chunk."""
    rng = np.random.default_rng(8)
    keys = [rng.standard_normal((n_chunks, 3))]
    for _ in range(stride - 1):
        keys.append(coefficient * keys[-1] + np.sqrt(1 - coefficient**2) * rng.standard_normal((n_chunks, 3)))
    direction = np.array([1.0, 0.6]) / np.hypot(1.0, 0.6)
    m = np.mean([np.sin(1.3 * (x[:, :2] @ direction)) for x in keys], axis=0)
    means, (w,) = np.mean(keys, axis=0), key_projections(cell)
    bias, error = [], []
    for x in query_points(cell):
        k = np.exp(-((((means - x) @ w) ** 2).sum(axis=1)) / (2 * cell.bandwidth**2))
        ratio = (k * m).mean() / k.mean()
        bias.append(ratio - np.sin(1.3 * (x[:2] @ direction)))
        error.append((k * (m - ratio)).std() / k.mean() / np.sqrt(n_chunks))
    return np.array(bias), np.array(error)


@pytest.mark.parametrize("case", MERGED, ids=str)
def test_merged_keys__have_the_bias_of_sampled_chunks(case):
    many = {"n_keys": 3_000_000, "n_features": 3, "n_heads": 1}
    settings = {**many, "regression": RIDGE, "queries": QUERIES, "bandwidth": 0.5}
    keys = {name: case[name] for name in ("key_distribution",) if name in case}
    cell = minimal_cell(**settings, **keys, transformation={"kind": "merge", "stride": case["stride"]})
    arrays = key_projections(cell), query_projections(cell), query_points(cell)
    prediction = merged_leading_order(cell, *arrays)
    coefficient = case.get("key_distribution", {}).get("coefficient", 0.0)
    bias, error = sampled_merging(cell, coefficient, case["stride"])
    assert (np.abs(prediction.bias[:, 0] - bias) < 4 * error).all()
    # The control: another stride, or another correlation.
    other = minimal_cell(**settings, **keys, transformation={"kind": "merge", "stride": case["stride"] + 1})
    assert (np.abs(merged_leading_order(other, *arrays).bias[:, 0] - bias) > 8 * error).any()
    (found,) = predict([planned(cell, False)])
    assert found["leading"].measures["squared_bias"] == pytest.approx((prediction.bias**2).mean())
    assert np.isnan(found["leading"].measures["mse"]) and "variance" in found["leading"].reason


FEW = {"n_features": 1, "n_heads": 1, "head_dim": 1, "bandwidth": 0.5, "noise_sd": 0.0, "batch_size": 4096}


@pytest.mark.parametrize("n_keys, keys", [(161, "gaussian"), (240, autoregressive(0.6)), (163, autoregressive(0.4))])
def test_merged_keys__few_chunks_have_the_bias_of_simulation(n_keys, keys):
    """The term of order 1/n counts, and so does a last chunk of one key, whose mean has four times the variance."""
    settings = FEW | {"key_distribution": keys, "transformation": {"kind": "merge", "stride": 4}}
    cell = minimal_cell(n_keys=n_keys, regression=RIDGE | {"direction": [1.0]}, queries=AT, **settings)
    arrays = key_projections(cell), query_projections(cell), query_points(cell)
    prediction = merged_leading_order(cell, *arrays)
    blocks = stack([simulate_batch([cell], batch)[0] for batch in range(4)])
    errors = blocks.error_sum[:, 0, 0] / blocks.n_defined
    mcse = errors.std(ddof=1) / np.sqrt(len(errors))
    assert abs(prediction.bias[0, 0] - errors.mean()) < 4 * mcse
    # The control: infinitely many keys.
    many = cell.model_copy(update={"data": cell.data.model_copy(update={"n_keys": 4_000_000})})
    assert abs(merged_leading_order(many, *arrays).bias[0, 0] - errors.mean()) > 6 * mcse


def test_merged_keys__too_few_chunks_have_no_theory():
    settings = FEW | {"regression": "linear", "queries": AT, "transformation": {"kind": "merge", "stride": 4}}
    (found,) = predict([planned(minimal_cell(n_keys=23, **settings), False)])
    assert np.isnan(found["leading"].measures["squared_bias"])
    assert "the kernels of 6 chunks have a sum of relative variance 0.13 (at most 0.05" in found["leading"].reason


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"key_distribution": {"kind": "sphere"}}, "autoregressive"), ({"logits": "dot_product"}, "distances"),
        ({"normaliser": "sparsemax"}, "distances"), ({"arrangement": "haar_redrawn"}, "orthonormal"),
    ],
)  # fmt: skip
def test_merged_keys__have_no_theory_elsewhere(settings, text):
    cell = minimal_cell(transformation={"kind": "merge", "stride": 2}, **settings)
    (found,) = predict([planned(cell, False)])
    assert np.isnan(found["leading"].measures.get("squared_bias", np.nan))
    assert text in found["leading"].reason or "redrawn" in found["leading"].reason


def test_merged_keys__have_no_theory_under_other_projections_than_orthonormal():
    cell = minimal_cell(n_keys=4000, transformation={"kind": "merge", "stride": 2}, regression=RIDGE)
    key, query, points = key_projections(cell), query_projections(cell), query_points(cell)
    assert np.isfinite(merged_leading_order(cell, key, query, points).bias).all()
    skew = key + 0.1 * key[:, :, ::-1]
    for wrong in (1.1 * key, skew):
        prediction = merged_leading_order(cell, wrong, query, points)
        assert np.isnan(prediction.bias).all() and "orthonormal" in prediction.reason
