"""Exact moments by quasi-Monte Carlo against quadrature, closed cases, Monte Carlo; their errors; what is refused."""

import numpy as np
import pytest
from scipy import stats
from theory_oracle import drawn_estimates, largest_score, make_cell

from simstudy.design.settings import processes as s
from simstudy.theory import exact_moments
from simstudy.theory.exact import moments, quasi_monte_carlo
from simstudy.theory.exact.quasi_monte_carlo import keys_at, n_uniforms

HEADS = np.linalg.qr(np.random.default_rng(4).normal(size=(2, 3, 2)))[0]
QUERY = np.array([[0.6, -0.3, 0.8]])
RIDGE = s.Ridge(kind="ridge", direction=(1.0, -1.0, 0.5))
SPHERE = s.SphereKeys(kind="sphere", radius=1.7)
STUDENT = s.StudentKeys(kind="student_t", df=5.0)
MIXTURE = s.MixtureKeys(kind="mixture", n_components=3, separation=2.5)
AUTOREGRESSIVE = s.GaussianKeys(structure="autoregressive", correlation=0.6)
OTHERS = (SPHERE, STUDENT, MIXTURE)


def names(keys):
    return keys.kind


@pytest.fixture(autouse=True)
def fewer_points(monkeypatch):
    monkeypatch.setattr(quasi_monte_carlo, "_LOG2_MOST", 12)


@pytest.fixture
def few_points(monkeypatch):
    """So that errors are large, and soon computed."""
    monkeypatch.setattr(quasi_monte_carlo, "_LOG2_FEWEST", 8)
    monkeypatch.setattr(quasi_monte_carlo, "_LOG2_MOST", 8)
    monkeypatch.setattr(moments, "RANDOM_ERROR_LIMIT", 0.05)


def predict(cell, heads, queries=QUERY):
    prediction = exact_moments(cell, heads, heads, queries)
    assert prediction.reason == ""
    assert prediction.self_check.max() < 1e-8
    return prediction


def scores(prediction, mean, covariance):
    """Differences from known moments in units of the errors stated: of means, variances, covariance."""
    z = (prediction.bias + prediction.target[:, None] - mean) / prediction.bias_error
    other = (prediction.covariance - covariance) / prediction.covariance_error
    return [z[0, 0], other[0, 0, 0], other[0, 0, 1]]


@pytest.mark.parametrize(
    ("n_keys", "p", "bandwidth"),
    [pytest.param(3, 1, 0.3, marks=pytest.mark.rare), (40, 1, 0.3), pytest.param(8, 2, 0.9, marks=pytest.mark.rare)],
)
def test_errors_stated_are_those_of_independent_scramblings(monkeypatch, few_points, n_keys, p, bandwidth):
    cell = make_cell(n_keys, 3, 2, p, "distance", bandwidth, regression=RIDGE, key_distribution=AUTOREGRESSIVE)
    heads = HEADS[:, :, :p]
    known = predict(cell, heads)
    assert known.covariance_error.max() < 1e-7
    monkeypatch.setattr(moments, "_law", lambda *_: (None, "not used"))
    z = []
    for seed in range(20, 52):
        monkeypatch.setattr(quasi_monte_carlo, "_SEED", seed)
        z.append(scores(predict(cell, heads), known.bias + known.target[:, None], known.covariance))
    # Errors from 16 randomisations have 15 degrees of freedom.
    normal = stats.norm.ppf(stats.t.cdf(np.array(z), quasi_monte_carlo.N_RANDOMISATIONS - 1))
    low, high = stats.chi2.ppf([0.001, 0.999], len(z))
    squares = np.sum(normal**2, axis=0)
    assert (low < squares).all() and (squares < high).all()
    assert not ((low < squares / 4) & (squares / 4 < high)).all()
    assert not ((low < squares * 4) & (squares * 4 < high)).all()


def test_kernels_too_narrow_for_quadrature(few_points):
    cell = make_cell(5, 3, 2, 2, "distance", 0.3, regression=RIDGE)
    prediction = predict(cell, HEADS)
    assert 1e-6 < prediction.covariance_error.max() < 0.01


@pytest.mark.parametrize("keys", [*OTHERS, AUTOREGRESSIVE], ids=names)
def test_keys_have_their_distribution_along_any_direction(keys):
    uniforms = np.random.default_rng(1).uniform(size=(20_000, n_uniforms(keys, 3)))
    points = keys_at(keys, uniforms, HEADS[0])
    direction = np.array([2.0, -1.0, 0.5])
    values = points @ direction
    # Archimedes: on the sphere in three dimensions any coordinate is uniform.
    expected = {
        "sphere": stats.uniform(-1.7 * np.linalg.norm(direction), 2 * 1.7 * np.linalg.norm(direction)).cdf,
        "student_t": stats.t(5, scale=np.linalg.norm(direction) * np.sqrt(3 / 5)).cdf,
        "mixture": lambda x: np.mean(
            [stats.norm.cdf(x, 2.5 * (c - 0.5), np.linalg.norm(direction)) for c in direction], axis=0
        ),
        "gaussian": stats.norm(0, np.sqrt(4 + 1 + 0.25 - 4 * 0.6 + 2 * 0.36 - 1 * 0.6)).cdf,
    }
    assert stats.kstest(values, expected[keys.kind]).pvalue > 0.001
    assert stats.kstest(1.05 * values + 0.06, expected[keys.kind]).pvalue < 0.001


def test_first_uniforms_move_keys_along_the_directions():
    uniforms = np.full((2, 3), 0.5)
    uniforms[1, 0] = 0.9
    points = keys_at(AUTOREGRESSIVE, uniforms, HEADS[0])
    assert abs((points[1] - points[0]) @ HEADS[0][:, 0]) > 0.5
    uniforms[1] = [0.5, 0.5, 0.9]
    points = keys_at(AUTOREGRESSIVE, uniforms, HEADS[0])
    np.testing.assert_allclose((points[1] - points[0]) @ HEADS[0], 0, atol=1e-12)


def test_independent_projections_have_covariance_one_over_n():
    # The components of the mixture differ in the first two features only; those of a Student-t share their scale.
    heads, query = np.eye(4)[[2, 3]][:, :, None], np.full((1, 4), 0.4)

    def distance(keys):
        prediction = predict(make_cell(7, 4, noise_sd=3.0, key_distribution=keys), heads, query)
        return abs(prediction.covariance[0, 0, 1] - 9 / 7) / prediction.covariance_error[0, 0, 1]

    assert distance(s.MixtureKeys(kind="mixture", separation=3.0)) < 4
    assert distance(STUDENT) > 10


def test_dot_products_with_keys_on_a_sphere_are_distances():
    """For all features in view |q - k|^2 = |q|^2 + r^2 - 2 q'k, so that both logits differ by a constant."""
    heads = np.linalg.qr(np.random.default_rng(6).normal(size=(2, 3, 3)))[0]
    cells = [make_cell(6, 3, 2, 3, logits, 0.7, regression=RIDGE, key_distribution=SPHERE)
             for logits in ("distance", "dot_product")]  # fmt: skip
    by_distance, by_product = (predict(cell, heads) for cell in cells)
    other = predict(make_cell(6, 3, 2, 3, "dot_product", 0.6, regression=RIDGE, key_distribution=SPHERE), heads)
    for name in ("bias", "covariance"):
        error = 4 * getattr(by_distance, f"{name}_error")
        assert (np.abs(getattr(by_product, name) - getattr(by_distance, name)) < error).all()
        assert (np.abs(getattr(other, name) - getattr(by_distance, name)) > 2 * error).all()


def drawn_keys(keys, rng, count):
    """Keys (count, 3) by other means than quantile functions."""
    z = rng.normal(size=(count, 3))
    if keys.kind == "sphere":
        return 1.7 * z / np.sqrt((z**2).sum(axis=1))[:, None]
    if keys.kind == "student_t":
        return z * np.sqrt(3 / rng.chisquare(5, size=count))[:, None]
    return z + 2.5 * (np.eye(3)[rng.integers(3, size=count)] - 1 / 3)


@pytest.mark.parametrize("n_keys", [3, pytest.param(30, marks=pytest.mark.rare)])
@pytest.mark.parametrize("keys", OTHERS, ids=names)
def test_monte_carlo_agrees_and_rejects_other_keys(keys, n_keys):
    rng = np.random.default_rng(7)
    noise = s.HeteroscedasticNoise(kind="heteroscedastic", strength=2.0)
    if keys is STUDENT:
        noise = s.GaussianNoise(kind="gaussian")
    cell = make_cell(n_keys, 3, 2, 2, "distance", 0.8, regression=RIDGE, key_distribution=keys, noise=noise)
    estimates = drawn_estimates(cell, HEADS, QUERY[0], drawn_keys(keys, rng, 60_000 * n_keys), rng)
    assert largest_score(estimates, predict(cell, HEADS)) < 4
    other = MIXTURE if keys is SPHERE else SPHERE
    wrong = cell.model_copy(update={"data": cell.data.model_copy(update={"key_distribution": other})})
    assert largest_score(estimates, predict(wrong, HEADS)) > 6


def refusal(**settings):
    cell = make_cell(**({"n_keys": 10, "n_features": 3} | settings))
    n_heads, p = cell.heads.n_heads, cell.heads.head_dim
    heads = np.linalg.qr(np.random.default_rng(5).normal(size=(n_heads, 3, p)))[0]
    prediction = exact_moments(cell, heads, heads, np.zeros((4, 3)) + 0.1 * np.arange(3))
    assert np.isnan(prediction.covariance).all()
    return prediction.reason


def test_heavy_tails_are_refused():
    assert "rare" in refusal(logits="dot_product", key_distribution=MIXTURE)
    quadratic = s.Quadratic(kind="quadratic")
    assert "more than 8 degrees" in refusal(regression=quadratic, key_distribution=STUDENT)
    uneven = s.HeteroscedasticNoise(kind="heteroscedastic")
    assert "more than 4 degrees" in refusal(noise=uneven, key_distribution=STUDENT.model_copy(update={"df": 3.5}))


def test_long_computations_are_refused():
    assert "too many heads" in refusal(n_heads=40, key_distribution=SPHERE)


def test_errors_too_large_leave_queries_blank(monkeypatch, few_points):
    monkeypatch.setattr(moments, "RANDOM_ERROR_LIMIT", 1e-5)
    assert "4 of 4 queries" in refusal(key_distribution=SPHERE, regression=RIDGE)
