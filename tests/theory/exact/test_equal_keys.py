"""Exact moments over rows of data: against all samples there are, quasi-Monte Carlo, and what is refused."""

import itertools

import numpy as np
import pytest
from theory_oracle import make_cell

from simstudy.design.settings import processes as s
from simstudy.design.settings.rows import Rows
from simstudy.theory import exact_moments, leading_order
from simstudy.theory.exact import equal_keys

RNG = np.random.default_rng(11)
HEADS = np.linalg.qr(RNG.normal(size=(3, 4, 2)))[0]
TABLE = RNG.normal(size=(8, 6))
TABLE[:6, 5] -= TABLE[:6, 5].mean()
FILE = s.FileKeys(kind="file", path="table.npy", response="y", held_out=2)
BY_ROW = s.FittedRegression(kind="fitted")


def cell_of(n_keys, table=TABLE, keys=FILE, logits="distance", bandwidth=0.7, **data):
    data = {"regression": BY_ROW, "noise_sd": 0.6, "key_distribution": keys} | data
    cell = make_cell(n_keys, 4, 3, 2, logits, bandwidth, **data)
    return cell.model_copy(update={"file_rows": Rows(table, 2)})


def all_samples(cell, means, variances, query):
    """Mean and covariance of the heads, by listing every sample of n rows."""
    rows, n = cell.rows, cell.data.n_keys
    first, second = np.zeros(3), np.zeros((3, 3))
    count = len(rows.keys) ** n
    for sample in itertools.product(range(len(rows.keys)), repeat=n):
        index = list(sample)
        gaps = (rows.keys[index] - query) @ HEADS
        logits = rows.keys[index] @ HEADS @ (query @ HEADS)[:, :, None]
        scores = -0.5 * (gaps**2).sum(axis=2) if cell.estimator.logits == "distance" else logits[:, :, 0]
        weights = np.exp(scores / cell.bandwidth**2)
        weights /= weights.sum(axis=1, keepdims=True)
        estimate = weights @ means[index]
        first += estimate / count
        second += (np.outer(estimate, estimate) + (weights * variances[index]) @ weights.T) / count
    return first, second - np.outer(first, first)


@pytest.mark.parametrize("logits", ["distance", "dot_product"])
@pytest.mark.parametrize(("n_keys", "bandwidth"), [(1, 0.7), (2, 0.1), (3, 0.7), (5, 2.0)])
def test_all_samples_of_six_rows(n_keys, logits, bandwidth):
    cell = cell_of(n_keys, logits=logits, bandwidth=bandwidth)
    points = cell.rows.points
    found = exact_moments(cell, HEADS, HEADS, points)
    assert found.reason == "" and found.self_check.max() < 1e-8
    np.testing.assert_array_equal(found.target, cell.rows.targets)
    for q, query in enumerate(points):
        mean, covariance = all_samples(cell, cell.rows.values, np.full(6, 0.36), query)
        scale = np.sqrt(np.diag(covariance))
        np.testing.assert_allclose(found.bias[q] + found.target[q], mean, atol=1e-8 * scale.max())
        assert np.abs((found.covariance[q] - covariance) / np.outer(scale, scale)).max() < 1e-8
        assert (np.abs(found.covariance[q] - covariance) <= found.covariance_error[q] + 1e-12).all()


def outcomes(name):
    values, residuals, x = TABLE[:6, 4], TABLE[:6, 5], TABLE[:6, :4]
    one = np.ones(6)
    return {
        "residuals": (values, 0.36 * residuals.var() * one, {"noise": s.ResidualNoise(kind="residuals")}),
        "paired": (
            values + 0.6 * residuals, 0.0 * one, {"noise": s.ResidualNoise(kind="residuals", paired=True)}
        ),
        "formula": (
            x @ [1.0, -0.5, 0.0, 0.0], 0.36 * (1 + 2 * x[:, 0] ** 2) / 3,
            {
                "regression": s.Linear(kind="linear", coefficients=(1.0, -0.5)),
                "noise": s.HeteroscedasticNoise(kind="heteroscedastic", strength=2.0),
            },
        ),
        "as they are": (values, 0.36 * one, {"regression": s.FileRegression(kind="file")}),
    }[name]  # fmt: skip


@pytest.mark.parametrize("name", ["residuals", "paired", "formula", "as they are"])
def test_outcomes_of_every_kind(name):
    means, variances, data = outcomes(name)
    cell = cell_of(3, **data)
    found = exact_moments(cell, HEADS, HEADS, cell.rows.points[:1])
    mean, covariance = all_samples(cell, means, variances, cell.rows.points[0])
    np.testing.assert_allclose(found.bias[0] + found.target[0], mean, atol=1e-8)
    np.testing.assert_allclose(found.covariance[0], covariance, atol=1e-8)


def test_responses_far_from_zero__lose_no_digits():
    far = TABLE.copy()
    far[:, 4] += 1e8
    near, moved = (exact_moments(c, HEADS, HEADS, c.rows.points) for c in (cell_of(4), cell_of(4, far)))
    np.testing.assert_allclose(moved.covariance, near.covariance, rtol=1e-6)
    np.testing.assert_allclose(moved.bias, near.bias, atol=1e-6)


@pytest.mark.parametrize(("n_keys", "bandwidth"), [(60, 0.1), pytest.param(300, 0.02, marks=pytest.mark.rare)])
def test_narrow_kernels_at_many_keys__keep_their_errors(n_keys, bandwidth):
    cell = cell_of(n_keys, bandwidth=bandwidth)
    found = exact_moments(cell, HEADS, HEADS, cell.rows.points)
    assert found.reason == "" and found.self_check.max() < 1e-8


def test_rows_without_replacement_and_large_tables__are_blank_with_the_reason(monkeypatch):
    without = cell_of(3, keys=FILE.model_copy(update={"sampling": "without"}))
    found = exact_moments(without, HEADS, HEADS, without.rows.points)
    assert np.isnan(found.covariance).all() and "without replacement depend on one another" in found.reason
    cell = cell_of(3)
    monkeypatch.setattr(equal_keys, "_NUMBERS", 100)
    found = exact_moments(cell, HEADS, HEADS, cell.rows.points)
    assert np.isnan(found.covariance).all() and "too many rows, or kernels too narrow" in found.reason
    first = leading_order(cell, HEADS, HEADS, cell.rows.points)
    assert np.isnan(first.covariance).all() and "derived for Gaussian keys" in first.reason
    np.testing.assert_array_equal(first.target, cell.rows.targets)
