"""Exact moments, and those of Gaussian logits, against closed cases, quadrature, all samples of rows, and draws."""

import itertools

import numpy as np
import pytest
from builders import rare, refuses
from theory_oracle import directions, gaussian_grid, kernel_values, make_cell, regression_values, variance_values

from simstudy.design.settings import choices as s
from simstudy.design.settings.cell import Rows
from simstudy.theory import exact_moments, leading_order, logit_moments
from simstudy.theory.exact import equal_keys, integrals

LINEAR = s.Linear(kind="linear", coefficients=(1.0, -0.5))
WAVE = s.Ridge(kind="ridge", frequency=1.3, direction=(1.0, 2.0))
MIXED = s.Sum(kind="sum", terms=(LINEAR, s.Quadratic(kind="quadratic", coefficients=(0.3,)), WAVE))
UNEVEN = s.HeteroscedasticNoise(kind="heteroscedastic", strength=2.0)
CORRELATED = s.GaussianKeys(structure="equicorrelated", correlation=0.5)
QUERIES = np.array([[0.0, 0.0], [0.7, -0.4], [1.8, 2.4]])


def orthonormal(n_heads, d, p, seed=1):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(n_heads, d, p)))[0]


def predict(cell, heads, queries=QUERIES, others=None):
    prediction = exact_moments(cell, heads, heads if others is None else others, queries)
    assert prediction.reason == "" and prediction.self_check.max() < 1e-8
    return prediction


def off_by(prediction, mean, covariance):
    deviation = np.sqrt(np.diagonal(prediction.covariance, axis1=1, axis2=2))
    mean_error = np.abs(prediction.bias + prediction.target[:, None] - mean) / deviation
    products = deviation[:, :, None] * deviation[:, None, :]
    return max(mean_error.max(), (np.abs(prediction.covariance - covariance) / products).max())


def grid_moments(cell, query, heads):
    """Key grid (N, d), its weights, m and v, and kernels of the heads on it."""
    points, weights = gaussian_grid(np.eye(cell.data.n_features), extent=8.5, step=0.3)
    kernels = kernel_values(cell, heads, heads, query, points)
    return weights, regression_values(cell.data.regression, points), variance_values(cell.data, points), kernels


@pytest.mark.parametrize(("logits", "p", "n_keys"), [("distance", 1, 5), ("dot_product", 2, 40)])
def test_refinement_changes_less_than_the_stated_error(monkeypatch, logits, p, n_keys):
    cell = make_cell(n_keys, 3, 2, p, logits, 2.0, regression=LINEAR)
    heads, queries = orthonormal(2, 3, p), np.array([[0.4, -0.3, 0.5]])
    prediction = predict(cell, heads, queries)
    law = exact_moments.__globals__["ScalarLaw"].__init__
    monkeypatch.setattr(exact_moments.__globals__["ScalarLaw"], "__init__", lambda *a: law(*a[:-1], a[-1] / 2))
    finer = exact_moments(cell, heads, heads, queries)
    assert (np.abs(finer.bias - prediction.bias) <= prediction.bias_error).all()
    assert (np.abs(finer.covariance - prediction.covariance) <= prediction.covariance_error).all()
    assert prediction.covariance_error.max() < 1e-6 * prediction.covariance.max()


@pytest.mark.parametrize(("logits", "p"), [("distance", 1), ("dot_product", 1), ("dot_product", 2), ("distance", 2)])
def test_one_key_gives_its_response(logits, p):
    cell = make_cell(1, 2, 2, p, logits, 1.0, regression=MIXED, noise=UNEVEN, noise_sd=0.7)
    heads = orthonormal(2, 2, p)
    weights, m, v, _ = grid_moments(cell, QUERIES[1], heads)
    mean = weights @ m
    assert off_by(predict(cell, heads, QUERIES[1:2]), mean, weights @ (m**2 + v) - mean**2) < 1e-7


def of_two_keys(weights, m, v, kernels):
    """Means and covariances of heads, by sums over pairs of points."""
    shares = [k[:, None] / (k[:, None] + k) for k in kernels]
    smooth = [a * m[:, None] + (1 - a) * m for a in shares]
    mean = np.array([weights @ f @ weights for f in smooth])
    noise = [[2 * weights @ ((a * b) @ weights * v) for b in shares] for a in shares]
    signal = [[weights @ (f * g) @ weights for g in smooth] for f in smooth]
    return mean, np.array(noise) + np.array(signal) - np.outer(mean, mean)


@pytest.mark.parametrize("scales", [(1.0, 1.0), (1.0, 0.5), (1.0, -1.0)])
def test_two_keys_on_one_line_by_direct_quadrature(scales):
    """Both heads see the same number: their kernels are functions of one another."""
    cell = make_cell(2, 1, 2, 1, "distance", 0.7, regression=LINEAR.model_copy(update={"coefficients": (1.0,)}))
    keys, others = np.array([[[1.0]], [[abs(scales[1])]]]), np.array(scales).reshape(2, 1, 1)
    points, weights = gaussian_grid(np.eye(1), step=0.02)
    kernels = kernel_values(cell, keys, others, np.array([0.8]), points)
    moments = of_two_keys(weights, points[:, 0], np.ones(len(points)), kernels)
    assert off_by(predict(cell, keys, np.array([[0.8]]), others), *moments) < 1e-8


@pytest.mark.parametrize("logits", ["distance", "dot_product"])
def test_two_keys_by_direct_quadrature(monkeypatch, logits):
    cell = make_cell(2, 2, 2, 1, logits, 1.1, regression=MIXED, noise=UNEVEN, noise_sd=0.7)
    heads = directions(10, 65)
    mean, covariance = of_two_keys(*grid_moments(cell, QUERIES[1], heads))
    assert off_by(predict(cell, heads, QUERIES[1:2]), mean, covariance) < 1e-8
    # The term of two different keys is small, as moments are taken about the means: its absence must be seen here.
    monkeypatch.setattr(integrals, "_second", lambda own, cross, lost, n: n * own * integrals.power(lost, 1))
    assert off_by(exact_moments(cell, heads, heads, QUERIES[1:2]), mean, covariance) > 1e-3


def test_coincident_heads_are_recognised_in_any_basis_and_nearly_aligned_ones_approach_them():
    cell = make_cell(3, 4, 2, 2, "distance", 1.0)
    head = orthonormal(1, 4, 2)[0]
    turned = np.stack([head, head @ np.linalg.qr(np.random.default_rng(20240611).normal(size=(2, 2)))[0]])
    prediction = predict(cell, turned, np.ones((1, 4)))
    assert prediction.covariance[0, 0, 1] == prediction.covariance[0, 0, 0]
    opposite = predict(cell, turned, np.ones((1, 4)), turned * np.array([1, -1])[:, None, None])
    assert opposite.covariance[0, 0, 1] < 0.9 * opposite.covariance[0, 0, 0]
    cell, gaps = make_cell(10, bandwidth=1.0, regression=LINEAR), []
    for degrees in (0.3, 3.0):
        covariance = predict(cell, directions(30, 30 + degrees), QUERIES[1:2]).covariance[0]
        gaps.append((1 - covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])) / degrees**2)
    # The first angle is handled by another method than the last.
    np.testing.assert_allclose(gaps, gaps[0], rtol=0.02)


@pytest.mark.parametrize(("n_keys", "bandwidth", "degrees"), [(3, 1.0, 30.0), rare(1000, 0.5, 60.0)])
def test_mellin_transforms_agree_with_grids(monkeypatch, n_keys, bandwidth, degrees):
    data = {"regression": MIXED, "noise": UNEVEN, "key_distribution": CORRELATED, "noise_sd": 0.7}
    cell, heads = make_cell(n_keys, bandwidth=bandwidth, **data), directions(5, 5 + degrees)
    grids = predict(cell, heads, QUERIES[1:2])
    monkeypatch.setattr(exact_moments.__globals__["ScalarLaw"], "too_large", lambda self: "not used")
    mellin = predict(cell, heads, QUERIES[1:2])
    assert (mellin.covariance != grids.covariance).any()
    assert off_by(grids, mellin.bias + mellin.target[:, None], mellin.covariance) < 1e-7


ROW_RNG = np.random.default_rng(11)
HEADS = np.linalg.qr(ROW_RNG.normal(size=(3, 4, 2)))[0]
TABLE = ROW_RNG.normal(size=(8, 6))
TABLE[:6, 5] -= TABLE[:6, 5].mean()
FILE = s.FileKeys(kind="file", path="table.npy", response="y", held_out=2)


def cell_of(n_keys, table=TABLE, keys=FILE, logits="distance", bandwidth=0.7, **data):
    data = {"regression": s.FittedRegression(kind="fitted"), "noise_sd": 0.6, "key_distribution": keys} | data
    cell = make_cell(n_keys, 4, 3, 2, logits, bandwidth, **data)
    rows = Rows(table[:-2, :4], table[:-2, 4], table[:-2, 5], table[-2:, :4], table[-2:, 4])
    return cell.model_copy(update={"file_rows": rows})


def all_samples(cell, means, variances, query):
    kernels, n = kernel_values(cell, HEADS, HEADS, query, cell.rows.keys), cell.data.n_keys
    first, second = np.zeros(3), np.zeros((3, 3))
    count = len(cell.rows.keys) ** n
    for index in map(list, itertools.product(range(len(cell.rows.keys)), repeat=n)):
        weights = kernels[:, index] / kernels[:, index].sum(axis=1, keepdims=True)
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


X, VALUES, RESIDUALS = TABLE[:6, :4], TABLE[:6, 4], TABLE[:6, 5]
OUTCOMES = {
    "residuals": (VALUES, np.full(6, 0.36 * RESIDUALS.var()), {"noise": s.ResidualNoise(kind="residuals")}),
    "paired": (VALUES + 0.6 * RESIDUALS, np.zeros(6), {"noise": s.ResidualNoise(kind="residuals", paired=True)}),
    "formula": (X @ [1.0, -0.5, 0, 0], 0.36 * (1 + 2 * X[:, 0] ** 2) / 3, {"regression": LINEAR, "noise": UNEVEN}),
    "as they are": (VALUES, np.full(6, 0.36), {"regression": s.FileRegression(kind="file")}),
}


@pytest.mark.parametrize(("means", "variances", "data"), OUTCOMES.values(), ids=OUTCOMES)
def test_outcomes_of_every_kind(means, variances, data):
    cell = cell_of(3, **data)
    found = exact_moments(cell, HEADS, HEADS, cell.rows.points[:1])
    mean, covariance = all_samples(cell, means, variances, cell.rows.points[0])
    np.testing.assert_allclose(found.bias[0] + found.target[0], mean, atol=1e-8)
    np.testing.assert_allclose(found.covariance[0], covariance, atol=1e-8)


@pytest.mark.parametrize(("n_keys", "bandwidth"), [(60, 0.1), rare(300, 0.02)])
def test_narrow_kernels_at_many_keys__keep_their_errors(n_keys, bandwidth):
    cell = cell_of(n_keys, bandwidth=bandwidth)
    found = exact_moments(cell, HEADS, HEADS, cell.rows.points)
    assert found.reason == "" and found.self_check.max() < 1e-8


def test_rows_without_replacement_and_large_tables__are_blank_and_far_responses_lose_no_digits(monkeypatch):
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
    far = TABLE.copy()
    far[:, 4] += 1e8
    near, moved = (exact_moments(c, HEADS, HEADS, c.rows.points) for c in (cell_of(4), cell_of(4, far)))
    np.testing.assert_allclose(moved.covariance, near.covariance, rtol=1e-6)
    np.testing.assert_allclose(moved.bias, near.bias, atol=1e-6)


def drawn_gram(covariance, n_keys, n_draws, rng, known=None):
    factor = np.linalg.cholesky(covariance + 1e-14 * np.trace(covariance) * np.eye(len(covariance)))
    logits = rng.standard_normal((n_draws, n_keys, len(covariance))) @ factor.T
    if known is not None:
        logits = np.concatenate([logits, np.broadcast_to(known.T, (n_draws, *known.T.shape))], axis=1)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    weights = powers / powers.sum(axis=1, keepdims=True)
    grams = np.einsum("rih,rig->rhg", weights, weights)
    return grams.mean(axis=0), grams.std(axis=0, ddof=1) / np.sqrt(n_draws)


@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_moments__are_those_of_drawn_logits(seed, sinks):
    """Known tokens, as attention sinks: from far below the sum of all others to far above."""
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((int(rng.integers(2, 4)), int(rng.integers(1, 4))))
    covariance, n_keys = 10.0 ** rng.uniform(-1, 1.2) * root @ root.T / len(root), int(rng.integers(2, 80))
    known = rng.uniform(-2, 14, (len(covariance), int(rng.integers(1, 4)))) if sinks else None
    found = logit_moments(covariance, n_keys, known=known)
    mean, error = drawn_gram(covariance, n_keys, 20_000, rng, known)
    assert not found.reason
    assert np.abs((found.gram - mean) / (error + (1e-5 if sinks else 1e-9))).max() < 4
    assert (found.numerical_error <= 1e-4 * np.sqrt(np.outer(np.diag(found.gram), np.diag(found.gram)))).all()


def test_moments__beside_known_tokens_alone_or_others_that_are_negligible_and_known_values():
    covariance, known = np.array([[2.0, 0.5], [0.5, 1.0]]), np.random.default_rng(0).uniform(-2, 14, (2, 3))
    alone = logit_moments(covariance, 0, known=known).gram
    weights = np.exp(known) / np.exp(known).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(alone, weights @ weights.T)
    assert np.abs(logit_moments(1e-6 * covariance, 1, known=known - 40).gram - 1.0).max() < 1e-5
    covariance = np.array([[1.0, 0.6, 1.0, 0.0], [0.6, 2.0, 0.6, 0.0], [1.0, 0.6, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    found = logit_moments(covariance, 25)
    gram, error = found.gram, found.numerical_error + 1e-12
    assert abs(gram[0, 2] - gram[0, 0]) <= error[0, 2] + error[0, 0]  # one head twice
    assert (np.abs(gram[3] - 1 / 25) <= error[3]).all()  # uniform attention
    alone = logit_moments(covariance, 1)
    assert (np.abs(alone.gram - 1) <= alone.numerical_error).all()
    np.testing.assert_allclose(np.diag(found.correlation), 1.0, rtol=1e-12)
    # Independent heads have 1/n, whatever n.
    np.testing.assert_allclose(logit_moments(np.diag([3.0, 0.5]), 7).gram[0, 1], 1 / 7, rtol=1e-6)


@pytest.mark.parametrize("correlation", [0.98, 0.9949, 0.995, 0.99999, -0.9951])
def test_heads_that_are_nearly_aligned__have_moments_within_their_error(correlation):
    """The second logit is read along what the first leaves, or by its own density: both near the change of method."""
    found = logit_moments([[2.0, 2 * correlation], [2 * correlation, 2.0]], 30)
    mean, error = drawn_gram(np.array([[2.0, 2 * correlation], [2 * correlation, 2.0]]), 30, 40_000,
                             np.random.default_rng(3))  # fmt: skip
    assert not found.reason and abs(found.gram[0, 1] - mean[0, 1]) < 4 * error[0, 1]


def test_narrow_heads__are_blank_with_the_reason():
    found = logit_moments(np.diag([10_000.0, 1.0]), 20)
    assert "100" in found.reason and "narrow" in found.reason
    assert np.isnan(found.gram[0]).all() and np.isfinite(found.gram[1, 1])
    # As the documentation says: the distance of nodes is rounded, and so is the limit.
    assert [logit_moments([[float(slope**2)]], 20).reason == "" for slope in (78, 79)] == [True, False]


@pytest.mark.parametrize("covariance, n_keys, known, said", [
    ([[1.0, 2.0], [2.0, 1.0]], 5, None, "eigenvalue"),
    ([[1.0]], 0, None, "n_keys = 0"),
    ([[1.0]], 2.5, None, "n_keys = 2.5"),
    ([["a"]], 2, None, "dtype"),
    ([[1.0]], 2, [1.0], "known has shape"),
    ([[1.0]], 2, [[np.inf]], "finite"),
    ([[1.0]], 2, [[1.0], [2.0]], "H = 1"),
])  # fmt: skip
def test_mistakes__are_refused(covariance, n_keys, known, said):
    refuses(said, logit_moments, covariance, n_keys, known=known, error=ValueError)
