"""Leading order, of compact kernels too, and Gaussian expectations against quadrature, exact moments, Monte Carlo."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from builders import arrays_of, minimal_cell, planned
from theory_oracle import directions, discrepancy, make_cell

from simstudy.design.load import load_design
from simstudy.design.settings import choices as s
from simstudy.theory import compact_leading_order, empty_window_rate, exact_moments, leading_order, regression_function
from simstudy.theory.functions import expectation, next_term, square_expectation
from simstudy.theory.leading import NEXT_TERM_LIMIT
from simstudy.verdicts.predictions import predict

RNG = np.random.default_rng(20240607)
QUERIES = np.array([[0.0, 0.0], [0.7, -0.4], [-1.1, 0.9]])
REGRESSIONS = {
    "zero": s.Zero(kind="zero"),
    "linear": s.Linear(kind="linear", coefficients=(1.0, -0.5)),
    "quadratic": s.Quadratic(kind="quadratic"),
    "quadratic_each": s.Quadratic(kind="quadratic", coefficients=(0.5, -1.0)),
    "ridge": s.Ridge(kind="ridge", amplitude=2.0, frequency=1.3, direction=(1.0, 2.0)),
    "ridge_cos": s.Ridge(kind="ridge", wave="cos", frequency=2.0),
    "additive": s.Additive(kind="additive", decay="exponential", rate=0.7),
    "additive_cos": s.Additive(kind="additive", wave="cos", decay="power", rate=1.5, frequency=0.6),
    "interaction": s.Interaction(kind="interaction", amplitude=-1.5, coordinates=(2, 1)),
}
TERMS = [REGRESSIONS[name] for name in ("linear", "quadratic", "ridge", "additive", "interaction")]
REGRESSIONS["sum"] = s.Sum(kind="sum", terms=tuple(TERMS))
# Wide enough that no query condenses the softmax.
BANDWIDTHS = {"distance": 0.8, "dot_product": 1.3}
HETEROSCEDASTIC = s.HeteroscedasticNoise(kind="heteroscedastic", strength=2.0)
CORRELATED = s.GaussianKeys(structure="equicorrelated", correlation=0.5)
METHODS = leading_order, exact_moments
TARGETS = {
    "noise": (s.Zero(kind="zero"), 1.0),
    "linear": (s.Linear(kind="linear"), 0.0),
    "quadratic": (s.Quadratic(kind="quadratic", coefficients=(1.0,)), 0.0),
    "wave": (s.Ridge(kind="ridge", amplitude=2.0, frequency=2.0), 0.3),
}
DESIGN = Path(__file__).parents[2] / "designs" / "compact-kernels" / "design.toml"
COMPACT = {"kind": "compact", "power": 2, "window": 2.5}


@pytest.mark.parametrize("name, logits", [
    *itertools.product(REGRESSIONS, BANDWIDTHS), ("autoregressive", "distance"), ("equicorrelated", "dot_product"),
])  # fmt: skip
def test_every_regression_function_agrees_with_quadrature_and_in_three_dimensions_separate_projections(name, logits):
    settings = {"n_heads": 3, "bandwidth": BANDWIDTHS[logits], "noise": HETEROSCEDASTIC, "noise_sd": 0.7}
    settings |= {"regression": REGRESSIONS.get(name, REGRESSIONS["sum"]), "key_distribution": CORRELATED}
    arrays, grid = (directions(0, 35, 90), directions(0, 35, 90), QUERIES), {}
    if name not in REGRESSIONS:
        arrays, grid = (*0.6 * RNG.normal(size=(2, 2, 3, 2)), RNG.normal(size=(2, 3)) / 2), {"step": 0.2}
        keys = s.GaussianKeys(structure=name, correlation=0.6)
        settings |= {"n_features": 3, "n_heads": 2, "head_dim": 2, "bandwidth": 1.3, "key_distribution": keys}
    cell = make_cell(logits=logits, **settings)
    prediction = leading_order(cell, *arrays)
    assert prediction.reason == "" and discrepancy(prediction, cell, *arrays, **grid) < 1e-10


def against_exact(target, logits, bandwidth, query, n_keys):
    """(prediction, relative error of its variance, error of its mean over the exact standard deviation)."""
    regression, noise_sd = TARGETS[target]
    cell = make_cell(n_keys, 1, 1, 1, logits, bandwidth, regression=regression, noise_sd=noise_sd)
    head, queries = np.ones((1, 1, 1)), np.array([[query]])
    prediction = leading_order(cell, head, head, queries)
    exact = exact_moments(cell, head, head, queries)
    assert exact.reason == "" and exact.self_check < 1e-8
    variance = exact.covariance[0, 0, 0]
    errors = prediction.covariance[0, 0, 0] / variance - 1, (prediction.bias - exact.bias).item() / np.sqrt(variance)
    return prediction, *errors


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("logits, bandwidth, query, n_keys", [
    ("distance", 0.3, 0.0, 150),
    ("distance", 0.5, 2.0, 400),
    ("distance", 1.0, 3.0, 300),
    ("dot_product", 1.0, 1.0, 1500),
])  # fmt: skip
def test_next_term_is_the_error_of_the_leading_variance(target, logits, bandwidth, query, n_keys):
    prediction, variance_error, mean_error = against_exact(target, logits, bandwidth, query, n_keys)
    assert prediction.reason == "" and abs(variance_error) < 1.1 * NEXT_TERM_LIMIT
    assert abs(mean_error) < 0.02
    assert abs((1 + variance_error) * (1 + prediction.next_term[0, 0]) - 1) < 0.002 + 0.15 * abs(variance_error)


def test_only_invalid_queries_are_blank_the_reason_names_them_and_effective_size_alone_would_admit_large_errors():
    far = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 1.0], [60.0, 0.0]])
    heads = directions(0, 90)
    prediction = leading_order(make_cell(n_keys=2000, bandwidth=0.5, regression=REGRESSIONS["sum"]), heads, heads, far)
    blank = np.array([False, True, False, True])
    np.testing.assert_array_equal(np.isnan(prediction.bias).any(axis=1), blank)
    np.testing.assert_array_equal(np.isnan(prediction.covariance).all(axis=(1, 2)), blank)
    told = "2 of 4 queries", "query 3, head 0", "effective sample size"
    assert np.isfinite(prediction.target).all() and all(each in prediction.reason for each in told)
    cell = make_cell(n_keys=100, logits="dot_product", bandwidth=1.0)
    prediction = leading_order(cell, heads, heads, np.array([[2.0, 0.0], [0.1, 0.1]]))
    assert all(each in prediction.reason for each in ("1 of 2 queries", "condensed", "> ½ ln n = 2.3"))
    assert np.isnan(prediction.covariance[0]).all() and np.isfinite(prediction.covariance[1]).all()
    for target in ("linear", "quadratic"):
        prediction, variance_error, _ = against_exact(target, "dot_product", 1.0, 1.3, 400)
        assert np.isnan(variance_error) and prediction.next_term[0, 0] < -NEXT_TERM_LIMIT
        assert "next term" in prediction.reason


REDRAWN = make_cell().heads.model_copy(update={"arrangement": "haar_redrawn"})
OTHER_KEYS = s.SphereKeys(kind="sphere"), s.Student(kind="student_t", df=5.0), s.MixtureKeys(kind="mixture")


@pytest.mark.parametrize("method, cell, said", [
    # A matrix that rounding makes singular ended the run as a defect.
    (leading_order, make_cell(bandwidth=1e-9), "3 of 3 queries"),
    *((leading_order, make_cell(key_distribution=keys), keys.kind) for keys in OTHER_KEYS),
    *((each, make_cell().model_copy(update={"heads": REDRAWN}), "redrawn") for each in METHODS),
])  # fmt: skip
def test_cells_without_theory_are_blank_with_the_reason(method, cell, said):
    prediction = method(cell, directions(0, 90), directions(0, 90), QUERIES)
    assert prediction.bias.shape == (3, 2) and prediction.covariance.shape == (3, 2, 2)
    assert np.isnan(prediction.bias).all() and np.isnan(prediction.covariance).all()
    assert np.isfinite(prediction.target).all() and said in prediction.reason


@pytest.mark.parametrize("regression, said", [
    (s.Linear(kind="linear", coefficients=(1.0, 1.0, 1.0)), "3 coordinates"),
    # A list of that length would not fit in memory.
    (s.Additive(kind="additive", n_active=10**12), "n_active = 10{12};"),
    (s.Interaction(kind="interaction", coordinates=(1, 10**12)), r"coordinates = \(1, 10{12}\);"),
])  # fmt: skip
def test_functions_of_absent_features_are_refused(regression, said):
    heads = directions(0, 90)
    for method in METHODS:
        with pytest.raises(ValueError, match=f"{said}.* give at most n_features = 2"):
            method(make_cell(regression=regression), heads, heads, QUERIES)


@pytest.mark.parametrize("wave", ["sin", "cos"])
def test_waves_at_half_a_turn(wave):
    # There the tangent of the half angle has its pole.
    function = regression_function(s.Ridge(kind="ridge", wave=wave, frequency=np.pi), 1)
    means, nothing = np.array([[-1.0], [0.0], [1.0]]), np.zeros((1, 1))
    np.testing.assert_allclose(expectation(function, means, nothing), function(means), rtol=0.0, atol=1e-15)
    square = square_expectation(function, means, nothing)
    np.testing.assert_allclose(square, function(means) ** 2, rtol=0.0, atol=1e-15)


@pytest.mark.parametrize("drift", [0.0, 0.6, -0.6])
def test_next_term__is_that_of_the_variance_of_a_ratio_of_normal_averages(drift):
    """Var N/(1 + D) by quadrature: normal N and D have no third moments, so `third` is the leading variance."""
    n, ratio, leading = 1e4, 1.5, 1.0
    nodes, weights = np.polynomial.hermite_e.hermegauss(30)
    weights = np.outer(weights, weights) / (2 * np.pi)
    below = np.sqrt((ratio - 1) / n) * nodes[:, None]
    estimate = (drift / (ratio - 1) * below + np.sqrt((leading - drift**2 / (ratio - 1)) / n) * nodes) / (1 + below)
    variance = (weights * estimate**2).sum() - (weights * estimate).sum() ** 2
    found = next_term(np.array(ratio), np.array([leading]), np.array([leading]), np.array([drift]))
    assert found == pytest.approx(n * (n * variance / leading - 1), rel=0.005)


def compact(**settings):
    cell = minimal_cell(n_keys=500, n_features=4, **{"normaliser": COMPACT} | settings)
    arrays = arrays_of(cell)
    return cell, compact_leading_order(cell, *arrays), empty_window_rate(cell, *arrays[1:])


QUADRATIC = {"kind": "quadratic", "coefficients": [0.3]}


@pytest.mark.parametrize("settings", [
    {"regression": QUADRATIC}, {"regression": QUADRATIC, "arrangement": "aligned"}, {},
    {"queries": {"kind": "points", "points": [[0.7, -0.4, 0.3]]}}, {"head_dim": 1, "regression": QUADRATIC},
    {"normaliser": {"kind": "compact", "power": 10, "window": 5.0}, "regression": QUADRATIC},
])  # fmt: skip
def test_expansion__is_that_of_a_grid_of_keys(settings):
    cell, prediction, _ = compact(**settings)
    assert prediction.reason == ""
    assert discrepancy(prediction, cell, *arrays_of(cell), extent=5.1, step=0.3) < 1e-3


def test_empty_window_rate__is_the_share_of_samples_without_a_key_and_windows_apart_have_covariance_zero():
    settings = {"kind": "compact", "power": 3, "window": 1.0}
    cell, *_ = compact(normaliser=settings, n_heads=1, queries={"kind": "points", "points": [[1.5, 0.5]]})
    cell = cell.model_copy(update={"data": cell.data.model_copy(update={"n_keys": 6})})
    rate, reason = empty_window_rate(cell, *arrays_of(cell)[1:])
    keys = np.random.default_rng(2).standard_normal((50_000, 6, 2))
    empty = (((keys - [1.5, 0.5]) ** 2).sum(axis=2) >= 0.8**2).all(axis=1)
    error = np.sqrt(rate * (1 - rate) / len(empty))
    assert not reason and 0.1 < rate < 0.9
    assert abs(empty.mean() - rate) < 4 * error < abs(empty.mean() - 1.1 * rate)
    assert next(predict([planned(cell)]))["exact"].measures == {"failure_rate": rate}
    relu = cell.model_copy(update={"estimator": minimal_cell(normaliser={"kind": "relu", "threshold": -0.5}).estimator})
    assert empty_window_rate(relu, *arrays_of(relu)[1:])[0] == pytest.approx(rate)
    apart = {"arrangement": "aligned", "query_projections": "opposite", "head_dim": 1}
    points = {"kind": "points", "points": [[1.0]]}
    narrow = {"normaliser": {"kind": "compact", "power": 1, "window": 1.2}}
    _, prediction, _ = compact(queries=points, **apart, **narrow)
    assert prediction.covariance[0, 0, 1] == 0.0 < prediction.covariance[0, 0, 0]
    _, overlapping, _ = compact(queries=points, **apart)
    assert "overlap in part" in overlapping.reason and np.isnan(overlapping.covariance).all()


@pytest.mark.parametrize("settings, word", [
    ({"normaliser": {"kind": "entmax", "power": 2}}, "fixed bandwidth"),
    ({"normaliser": {"kind": "top_k", "k": 9}}, "fixed bandwidth"),
    *(({"normaliser": {"kind": "relu", "threshold": -0.5}} | other, "only for compact kernels") for other in (
        {"logits": "dot_product"}, {"key_scale": "normalised"}, {"combination": "product"},
        {"transformation": {"kind": "merge", "stride": 2}})),
    ({"regression": "linear"}, "m = c|x|²"),
    ({"arrangement": "haar"}, "aligned or orthogonal"),
    ({"key_distribution": "sphere"}, "standard normal"),
    ({"normaliser": {"kind": "compact", "power": 1, "window": 0.3}}, "effective sample size"),
])  # fmt: skip
def test_where_theory_does_not_apply__it_says_why(settings, word):
    _, prediction, _ = compact(**settings)
    assert word in prediction.reason and np.isnan(prediction.bias).all()
    _, _, (rate, reason) = compact(n_heads=2, queries={"kind": "gaussian", "count": 2})
    assert np.isnan(rate) and "one window" in reason


def test_windows_of_the_design__give_kernels_one_effective_sample_size():
    sizes = {}
    for each in load_design(DESIGN).cells:
        if each.grid == "equal-size" and not each.cell.estimator.plain:
            cell = minimal_cell(n_keys=1024, n_features=4, noise_sd=1.0, bandwidth=0.5, regression="zero",
                                queries="origin", normaliser=each.cell.estimator.normaliser)  # fmt: skip
            arrays = arrays_of(cell)
            sizes[cell.estimator.normaliser.power] = 1 / compact_leading_order(cell, *arrays).covariance[0, 0, 0]
    assert list(sizes) == [1, 2, 3, 10, 100]
    np.testing.assert_allclose(list(sizes.values()), 0.36 * 1024, rtol=1e-5)
