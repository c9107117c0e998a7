"""Exact moments by quasi-Monte Carlo and against simulation; their errors, also of measures; what is refused."""

import numpy as np
import pytest
from builders import arrays_of, estimated, minimal_cell, rare
from scipy import stats
from test_moments import predict
from theory_oracle import make_cell

from simstudy.design.settings import choices as s
from simstudy.theory import ExactPrediction, exact_moments, measures
from simstudy.theory.exact import equal_keys, moments

HEADS = np.linalg.qr(np.random.default_rng(4).normal(size=(2, 3, 2)))[0]
QUERY = np.array([[0.6, -0.3, 0.8]])
RIDGE = s.Ridge(kind="ridge", direction=(1.0, -1.0, 0.5))
SPHERE = s.SphereKeys(kind="sphere", radius=1.7)
STUDENT = s.Student(kind="student_t", df=5.0)
MIXTURE = s.MixtureKeys(kind="mixture", n_components=3, separation=2.5)
AUTOREGRESSIVE = s.GaussianKeys(structure="autoregressive", correlation=0.6)
UNEVEN, QUADRATIC = s.HeteroscedasticNoise(kind="heteroscedastic"), s.Quadratic(kind="quadratic")


@pytest.fixture(autouse=True)
def fewer_points(monkeypatch):
    monkeypatch.setattr(equal_keys, "_LOG2_MOST", 12)


@pytest.fixture
def few_points(monkeypatch):
    monkeypatch.setattr(equal_keys, "_LOG2_FEWEST", 8)
    monkeypatch.setattr(equal_keys, "_LOG2_MOST", 8)
    monkeypatch.setattr(moments, "RANDOM_ERROR_LIMIT", 0.05)


@pytest.mark.parametrize(("n_keys", "p", "bandwidth"), [rare(3, 1, 0.3), (40, 1, 0.3), rare(8, 2, 0.9)])
def test_errors_stated_are_those_of_independent_scramblings(monkeypatch, few_points, n_keys, p, bandwidth):
    cell = make_cell(n_keys, 3, 2, p, "distance", bandwidth, regression=RIDGE, key_distribution=AUTOREGRESSIVE)
    heads = HEADS[:, :, :p]
    known = predict(cell, heads, QUERY)
    assert known.covariance_error.max() < 1e-7
    for law in (moments.ScalarLaw, moments.MellinLaw):
        monkeypatch.setattr(law, "too_large", lambda _: "not used")
    z = []
    for seed in range(20, 52):
        monkeypatch.setattr(equal_keys, "_SEED", seed)
        found = predict(cell, heads, QUERY)
        bias, covariance = found.bias - known.bias, found.covariance - known.covariance
        bias, covariance = bias / found.bias_error, covariance / found.covariance_error
        z.append([bias[0, 0], covariance[0, 0, 0], covariance[0, 0, 1]])
    # Errors from 16 randomisations have 15 degrees of freedom.
    normal = stats.norm.ppf(stats.t.cdf(np.array(z), equal_keys.N_RANDOMISATIONS - 1))
    low, high = stats.chi2.ppf([0.001, 0.999], len(z))
    squares = np.sum(normal**2, axis=0)
    assert (low < squares).all() and (squares < high).all()
    assert not ((low < squares / 4) & (squares / 4 < high)).all()
    assert not ((low < squares * 4) & (squares * 4 < high)).all()


def test_kernels_too_narrow_for_quadrature_have_errors_and_neither_noise_nor_signal_zero_variance(few_points):
    cell = make_cell(5, 3, 2, 2, "distance", 0.3, regression=RIDGE)
    assert 1e-6 < predict(cell, HEADS, QUERY).covariance_error.max() < 0.01
    for p in (1, 2):
        heads = HEADS[:, :, :p]
        prediction = exact_moments(make_cell(5, 3, 2, p, noise_sd=0.0), heads, heads, QUERY)
        assert prediction.reason == "" and not prediction.covariance.any()


def test_dot_products_with_keys_on_a_sphere_are_distances():
    """For all features in view |q - k|^2 = |q|^2 + r^2 - 2 q'k, so that both logits differ by a constant."""
    heads = np.linalg.qr(np.random.default_rng(6).normal(size=(2, 3, 3)))[0]
    cells = [make_cell(6, 3, 2, 3, logits, 0.7, regression=RIDGE, key_distribution=SPHERE)
             for logits in ("distance", "dot_product")]  # fmt: skip
    by_distance, by_product = (predict(cell, heads, QUERY) for cell in cells)
    other = predict(make_cell(6, 3, 2, 3, "dot_product", 0.6, regression=RIDGE, key_distribution=SPHERE), heads, QUERY)
    for name in ("bias", "covariance"):
        error = 4 * getattr(by_distance, f"{name}_error")
        assert (np.abs(getattr(by_product, name) - getattr(by_distance, name)) < error).all()
        assert (np.abs(getattr(other, name) - getattr(by_distance, name)) > 2 * error).all()


@pytest.mark.parametrize("n_keys", [3, rare(30)])
@pytest.mark.parametrize("keys", [SPHERE, STUDENT, MIXTURE], ids=lambda keys: keys.kind)
def test_simulation_agrees_and_rejects_other_keys(keys, n_keys):
    settings = {"n_keys": n_keys, "n_features": 3, "arrangement": "haar", "regression": RIDGE, "batch_size": 4096}
    settings |= {"noise": "gaussian" if keys is STUDENT else UNEVEN, "queries": {"kind": "points", "points": QUERY}}
    found, far = estimated(minimal_cell(**settings, key_distribution=keys), 16), MIXTURE if keys is SPHERE else SPHERE
    for law, least, most in ((keys, 0.0, 4.0), (far, 6.0, np.inf)):
        cell = minimal_cell(**settings, key_distribution=law)
        given = exact_moments(cell, *arrays_of(cell)), cell.weights
        expected, errors = measures.predicted_measures(*given), measures.predicted_measure_errors(*given)
        z = [(found.estimate[name] - expected[name]) / np.hypot(found.mcse[name], errors[name])
             for name in ("squared_bias", "mean_squared_bias", "mean_variance", "mean_covariance", "mse")]  # fmt: skip
        assert least < np.abs(z).max() < most


@pytest.mark.parametrize("settings, limit, said", [
    ({"logits": "dot_product", "key_distribution": MIXTURE}, None, "rare"),
    ({"regression": QUADRATIC, "key_distribution": STUDENT}, None, "more than 8 degrees"),
    ({"noise": UNEVEN, "key_distribution": STUDENT.model_copy(update={"df": 3.5})}, None, "more than 4 degrees"),
    ({"n_heads": 40, "key_distribution": SPHERE}, None, "too many heads"),
    ({"key_distribution": SPHERE, "regression": RIDGE}, 1e-5, "4 of 4 queries"),
    ({"n_keys": 3, "head_dim": 2, "bandwidth": 0.05}, None, "narrow"),
    ({"n_keys": 3, "bandwidth": 1e-4}, None, "narrow"),
    ({"logits": "dot_product", "bandwidth": 1e-9}, None, "rare"),
    # All was simulated, and then the run ended as a defect.
    ({"key_distribution": s.AutoregressiveKeys(kind="autoregressive", coefficient=0.5)}, None, "keys in time"),
])  # fmt: skip
def test_what_is_beyond_it__is_blank_with_the_reason(settings, limit, said, monkeypatch, request):
    if limit:
        request.getfixturevalue("few_points")
        monkeypatch.setattr(moments, "RANDOM_ERROR_LIMIT", limit)
    cell = make_cell(**({"n_keys": 10, "n_features": 3} | settings))
    heads = np.linalg.qr(np.random.default_rng(5).normal(size=(cell.heads.n_heads, 3, cell.heads.head_dim)))[0]
    prediction = exact_moments(cell, heads, heads, np.zeros((4, 3)) + 0.1 * np.arange(3))
    assert np.isnan(prediction.covariance).all() and np.isnan(prediction.bias).all() and said in prediction.reason


def test_queries_without_convergence_are_blank():
    # Opposite queries on one line: kernels are functions of one another, too narrow for the largest tables.
    cell = make_cell(3, 1, 2, 1, "distance", 0.13)
    head = np.ones((2, 1, 1))
    prediction = exact_moments(cell, head, head * np.array([1.0, -1.0])[:, None, None], np.array([[0.0], [0.2]]))
    assert np.isfinite(prediction.covariance[0]).all() and np.isnan(prediction.covariance[1]).all()
    assert "1 of 2 queries" in prediction.reason


def test_error_bounds_hold_for_every_sign_are_attained_by_some_and_need_no_variance():
    n_queries, n_heads, rng = 3, 3, np.random.default_rng(20240612)
    roots = rng.normal(size=(n_queries, n_heads, n_heads + 2))
    covariance, scale = roots @ roots.mT, 1e-6
    errors = (scale * rng.uniform(size=shape) for shape in ((n_queries, n_heads), covariance.shape))
    means = rng.normal(size=(n_queries, n_heads))
    prediction = ExactPrediction(means, covariance, rng.normal(size=n_queries), *errors, np.zeros(n_queries), "")
    prediction = prediction._replace(covariance_error=prediction.covariance_error + prediction.covariance_error.mT)
    weights = np.array([0.5, 0.7, -0.4])
    given = prediction, weights
    base, bounds = measures.measures_by_query(*given), measures.measure_errors_by_query(*given)
    averages, average_bounds = measures.predicted_measures(*given), measures.predicted_measure_errors(*given)
    largest = dict.fromkeys(base, 0.0)
    for _ in range(400):
        signs = rng.choice([-1.0, 1.0], size=(n_queries, n_heads, n_heads))
        signs = np.triu(signs) + np.triu(signs, 1).mT
        moved = prediction.bias + signs[:, 0] * prediction.bias_error
        other = prediction._replace(bias=moved, covariance=covariance + signs * prediction.covariance_error)
        for name, values in measures.measures_by_query(other, weights).items():
            largest[name] = max(largest[name], (np.abs(values - base[name]) / bounds[name]).max())
        for name, value in measures.predicted_measures(other, weights).items():
            assert abs(value - averages[name]) <= (1 + 1e-4) * average_bounds[name]
    assert max(largest.values()) <= 1 + 1e-4 and min(largest.values()) > 0.3
    zero = np.zeros((1, 1))
    prediction = ExactPrediction(zero + 0.2, zero[..., None], zero[0], zero, zero[..., None], zero[0], "")
    errors = measures.measure_errors_by_query(prediction, (1.0,))  # a warning would be an error
    assert errors["mse"] == 0.0 and np.isnan(errors["correlation"]).all()
