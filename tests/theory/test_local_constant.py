"""The local-constant expansion against quadrature, difference quotients and the leading order as b -> 0."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.special import gamma
from theory_oracle import make_cell

from simstudy import settings as s
from simstudy.theory import leading_order
from simstudy.theory.local_constant import compact_constants, gaussian_constants, local_constant

QUERIES = np.array([[0.2, -0.1, 0.5], [-0.8, 0.6, 0.3]])
HEADS = np.array([[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], [[1.0, 0.3], [0.5, -0.2], [0.0, 1.0]]])
CORRELATED = s.GaussianKeys(structure="equicorrelated", correlation=0.4)
UNEVEN = s.HeteroscedasticNoise(distribution="heteroscedastic", strength=2.0)
REGRESSIONS = {
    "polynomial": s.Sum(
        function="sum",
        terms=(
            s.Linear(function="linear", coefficients=(1.0, -0.5, 2.0)),
            s.Quadratic(function="quadratic", coefficients=(0.5, -1.0)),
            s.Interaction(function="interaction", coordinates=(1, 3)),
        ),
    ),
    "waves": s.Additive(function="additive", frequency=1.3),
    "bumps": s.Bumps(function="bumps", centres=((0.5,), (-1.0, 1.0, 0.4)), amplitudes=(1.0, -2.0), width=0.7),
}
REGRESSIONS["sum"] = s.Sum(function="sum", terms=(*REGRESSIONS["polynomial"].terms, *list(REGRESSIONS.values())[1:]))


def cell_at(bandwidth, regression, n_keys=10**14, **data):
    data = {"key_distribution": CORRELATED, "noise": UNEVEN, "noise_sd": 0.8} | data
    return make_cell(n_keys, 3, 2, 2, bandwidth=bandwidth, regression=regression, **data)


def relative_errors(bandwidth, regression, without_unseen=False):
    """Largest relative error of smoothing bias and of variance against the leading order in n."""
    cell = cell_at(bandwidth, regression)
    limit = local_constant(cell, HEADS, HEADS, QUERIES)
    full = leading_order(cell, HEADS, HEADS, QUERIES)
    assert limit.reason == full.reason == ""
    variance = limit.variance
    if without_unseen:
        variance = (
            variance - local_constant(cell_at(bandwidth, regression, noise_sd=0.0), HEADS, HEADS, QUERIES).variance
        )
    bias_error = limit.smoothing_bias / (full.bias - limit.projection_bias) - 1
    variance_error = variance / np.diagonal(full.covariance, axis1=1, axis2=2) - 1
    return np.abs(bias_error).max(), np.abs(variance_error).max()


@pytest.mark.parametrize("name", REGRESSIONS)
def test_leading_order_tends_to_it_at_rate_bandwidth_squared(name):
    wide, narrow = (relative_errors(b, REGRESSIONS[name]) for b in (0.04, 0.02))
    for coarse, fine in zip(wide, narrow, strict=True):
        assert fine < 0.011
        # A wrong term, however small, would leave an error that does not fall fourfold.
        assert coarse / fine == pytest.approx(4, rel=0.05)


def test_what_a_head_does_not_see_is_noise_to_it():
    assert relative_errors(0.02, REGRESSIONS["sum"], without_unseen=True)[1] > 0.5


def test_bias_of_a_linear_target_comes_from_the_density_alone():
    # Under a kernel of bandwidth b a standard normal key is N(z / B, .), B = 1 + b^2: the bias is z / B - z.
    cell = make_cell(bandwidth=0.1, regression=s.Linear(function="linear"))
    heads, query = np.eye(2)[:, :, None], np.array([[1.5, 0.0]])
    limit = local_constant(cell, heads, heads, query)
    np.testing.assert_allclose(limit.smoothing_bias, [[-0.01 * 1.5, 0]])
    assert limit.smoothing_bias[0, 0] == pytest.approx(1.5 / 1.01 - 1.5, rel=0.011)
    # The second head sees nothing of x_1: it is wrong by all of it, and has its variance as noise.
    np.testing.assert_allclose(limit.projection_bias, [[0, -1.5]])
    scale = 1 / (np.sqrt(4 * np.pi) * cell.data.n_keys * 0.1)
    density = np.exp(-0.5 * np.array([1.5**2, 0])) / np.sqrt(2 * np.pi)
    np.testing.assert_allclose(limit.variance, [scale * np.array([1, 2]) / density])


def test_the_whole_space_may_be_rotated_and_queries_may_have_their_own_projection():
    cell = make_cell(10**14, 3, 2, 2, bandwidth=0.1, regression=s.Quadratic(function="quadratic"))
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    base = local_constant(cell, HEADS, HEADS, QUERIES)
    turned = local_constant(cell, turn @ HEADS, turn @ HEADS, QUERIES @ turn.T)
    for one, other in zip(base[:3], turned[:3], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-15)
    opposite = local_constant(cell, HEADS, -HEADS, QUERIES)
    mirrored = local_constant(cell, HEADS, HEADS, -QUERIES)
    np.testing.assert_allclose(opposite.smoothing_bias, mirrored.smoothing_bias)
    np.testing.assert_allclose(opposite.variance, mirrored.variance)


@pytest.mark.parametrize("p", [1, 2, 5])
def test_best_squared_error_falls_at_the_rate_of_a_p_dimensional_regression(p):
    head, query = np.eye(5)[None, :, :p], np.full((1, 5), 0.3)

    def best(n_keys):
        def error(b):
            cell = make_cell(n_keys, 5, 1, p, bandwidth=b, regression=s.Quadratic(function="quadratic"))
            limit = local_constant(cell, head, head, query)
            return limit.smoothing_bias[0, 0] ** 2 + limit.variance[0, 0]

        return minimize_scalar(lambda t: np.log(error(np.exp(t))), bounds=(-8, 1), method="bounded").fun

    slope = (best(10**10) - best(10**6)) / np.log(10**4)
    assert slope == pytest.approx(-4 / (4 + p), rel=1e-6)


@pytest.mark.parametrize("p", [1, 2, 4, 8])
@pytest.mark.parametrize("power", [1, 2, 3])
def test_constants_of_compact_kernels_are_their_integrals(p, power):
    surface = 2 * np.pi ** (p / 2) / gamma(p / 2)

    def integral(exponent, moment):
        return surface * quad(lambda u: (1 - u**2) ** exponent * u ** (p - 1 + moment), 0, 1)[0]

    constants, mass = compact_constants(p, power), integral(power, 0)
    assert constants.second_moment == pytest.approx(integral(power, 2) / p / mass, rel=1e-10)
    assert constants.roughness == pytest.approx(integral(2 * power, 0) / mass**2, rel=1e-10)


@pytest.mark.parametrize(("p", "ratio"), [(1, 1.041), (2, 1.082), (4, 1.155), (8, 1.265)])
def test_gaussian_kernel_costs_what_is_published_against_epanechnikov(p, ratio):
    def best(constants):
        return (constants.roughness**4 * constants.second_moment ** (2 * p)) ** (1 / (p + 4))

    assert best(gaussian_constants(p)) / best(compact_constants(p, 1)) == pytest.approx(ratio, abs=5e-4)


def test_a_gaussian_kernel_is_the_limit_of_compact_ones():
    # (1 - |u|^2)^r with u = v / sqrt(2r) tends to exp(-|v|^2 / 2).
    power, p = 10**5, 3
    compact, gaussian = compact_constants(p, power), gaussian_constants(p)
    assert 2 * power * compact.second_moment == pytest.approx(gaussian.second_moment, rel=1e-4)
    assert compact.roughness / (2 * power) ** (p / 2) == pytest.approx(gaussian.roughness, rel=1e-4)


@pytest.mark.parametrize(
    ("cell", "word"),
    [
        (make_cell(logits="dot_product"), "localise"),
        (make_cell(key_distribution=s.SphereKeys(distribution="sphere")), "sphere"),
        (
            make_cell().model_copy(update={"heads": s.Heads(n_heads=2, head_dim=1, arrangement="haar_redrawn")}),
            "redrawn",
        ),
    ],
)
def test_where_there_is_no_expansion_it_says_so(cell, word):
    heads = np.eye(2)[:, :, None]
    limit = local_constant(cell, heads, heads, np.zeros((3, 2)))
    assert limit.variance.shape == (3, 2)
    assert np.isnan(limit.variance).all()
    assert word in limit.reason


def test_kernel_constants_enter_by_their_place():
    regression, compact = REGRESSIONS["sum"], compact_constants(2, 1)
    args = cell_at(0.1, regression), HEADS, HEADS, QUERIES
    gaussian, epanechnikov = local_constant(*args), local_constant(*args, kernel=compact)
    np.testing.assert_allclose(epanechnikov.smoothing_bias, gaussian.smoothing_bias / 6)
    np.testing.assert_allclose(epanechnikov.variance / gaussian.variance, compact.roughness * 4 * np.pi)
