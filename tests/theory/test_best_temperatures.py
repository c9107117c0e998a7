"""Exact risk of a head against double integrals over two keys; the exponents of best temperatures."""

import itertools
import math

import numpy as np
import pytest
from scipy import special

from simstudy import temperatures
from simstudy.temperatures import Problem, best_sharpness, exact_risk, log_bessel

MIXTURE = Problem("unit", 5, 2.0, (0.5, 0.0, 0.5))
PROBLEMS = [
    Problem("unit", 3), Problem("unit", 2, 1.0, (0.0, 1.0)), MIXTURE, Problem("unit", 64, 0.25),
    Problem("gaussian", 1), Problem("gaussian", 16, 4.0, query=0.5),
]  # fmt: skip


def along(problem):
    """400 places of a key along the query with their probabilities, by a rule of Gauss that theory does not use."""
    if problem.keys == "gaussian":
        places, weights = np.polynomial.hermite_e.hermegauss(150)
    else:
        places, weights = special.roots_gegenbauer(150, max(problem.dimension / 2.0 - 1.0, 1e-9))
    return places, weights / weights.sum()


def polynomial(degree, dimension, u):
    """Legendre polynomial of a dimension by Rodrigues' sum over k: no recurrence, no special function."""
    if dimension == 2:
        return np.cos(degree * np.arccos(u))
    total = 0.0
    for k in range(degree // 2 + 1):
        size = (-1) ** k * math.gamma(degree - k + dimension / 2 - 1)
        size /= math.factorial(k) * math.factorial(degree - 2 * k)
        total = total + size * (2 * u) ** (degree - 2 * k)
    ones = special.binom(degree + dimension - 3, degree) * math.gamma(dimension / 2 - 1)
    return total / ones


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
@pytest.mark.parametrize("sharpness", [0.3, 2.0])
def test_risk_of_two_keys__is_a_double_integral(problem, sharpness):
    places, weights = along(problem)
    u, v = places[:, None], places[None]
    first = 1.0 / (1.0 + np.exp(sharpness * (v - u)))
    second, d = 1.0 - first, problem.dimension
    risk = first**2 + second**2
    if problem.keys == "gaussian":
        gap = first * u + second * v - problem.query * math.sqrt(d)
        risk = risk + problem.signal / d * (gap**2 + (d - 1) * (first**2 + second**2))
    else:
        for degree, share in enumerate(problem.shares, start=1):
            p, q = polynomial(degree, d, u), polynomial(degree, d, v)
            both = first**2 + second**2 + 2.0 * first * second * p * q
            risk = risk + problem.signal * share * (1.0 - 2.0 * (first * p + second * q) + both)
    expected = float(weights @ risk @ weights)
    assert exact_risk(problem, sharpness, 2) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("n_keys", [16, 1024, 2**24])
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_integrals_of_one__are_one_and_the_best_temperature_has_least_risk(problem, n_keys, monkeypatch):
    best = best_sharpness(problem, n_keys)
    monkeypatch.setattr(temperatures, "SELF_CHECK", 1e-7)
    for factor in (0.1, 1.0, 3.0):
        exact_risk.__wrapped__(problem, factor * best, n_keys)  # refuses integrals of 1 that are not 1
    near = [exact_risk(problem, factor * best, n_keys) for factor in (0.9, 1.0, 1.1)]
    assert near[1] < min(near[0], near[2])


def slope(problem, n_keys):
    """Slope of ln β* in ln n from n keys to 16 n."""
    return math.log(best_sharpness(problem, 16 * n_keys) / best_sharpness(problem, n_keys)) / math.log(16)


@pytest.mark.parametrize(("dimension", "degree", "signal"), [(3, 1, 1.0), (4, 1, 4.0), (4, 2, 1.0), (5, 1, 0.25)])
def test_exponent_on_the_sphere__tends_to_two_over_d_plus_three(dimension, degree, signal):
    shares = (0.0,) * (degree - 1) + (1.0,)
    gaps = [abs(slope(Problem("unit", dimension, signal, shares), n) - 2 / (dimension + 3)) for n in (2**12, 2**24)]
    assert gaps[1] < 0.006 and gaps[1] < gaps[0]


@pytest.mark.parametrize(("dimension", "n_keys"), [(3, 2**20), (4, 2**24)])
def test_best_sharpness__is_that_of_the_formula_for_many_keys(dimension, n_keys):
    d, laplace = dimension, dimension - 1  # l(l + d - 2) of degree 1
    c = 2.0 ** (2 - d) * math.sqrt(math.pi) / math.gamma(d / 2)
    formula = (n_keys * laplace**2 / (c * (d - 1))) ** (2 / (d + 3))
    assert best_sharpness(Problem("unit", d), n_keys) == pytest.approx(formula, rel=0.02)


def bessel_ratio(d, beta, degree=1):
    """A_l(β) = I_{d/2-1+l}(β)/I_{d/2-1}(β)."""
    return special.ive(d / 2 - 1 + degree, beta) / special.ive(d / 2 - 1, beta)


def concentration(d, beta):
    """M(2β)/M(β)² by quadrature."""
    mean = lambda b: along_integral(d, lambda u: np.exp(b * (u - 1)))  # noqa: E731
    return mean(2 * beta) / mean(beta) ** 2


def along_integral(d, function):
    u, w = special.roots_legendre(4000)
    density = w * (1 - u**2) ** ((d - 3) / 2)
    return float(density @ function(u) / density.sum())


@pytest.mark.parametrize(("dimension", "degree"), [(4, 1), (4, 2), (5, 3)])
def test_risk_of_many_keys__is_that_of_the_formula(dimension, degree):
    d, n, v, beta = dimension, 2**26, 0.5, 40.0
    here, twice = bessel_ratio(d, beta, degree), bessel_ratio(d, 2 * beta, degree)
    noise = concentration(d, beta) / n
    expected = v * (1 - here) ** 2 + noise * (1 + v * (1 - 2 * here * twice + here**2))
    problem = Problem("unit", d, v, (0.0,) * (degree - 1) + (1.0,))
    assert exact_risk(problem, beta, n) == pytest.approx(expected, rel=1e-5)
    ratio = noise * n / (2.0 ** (2 - d) * math.sqrt(math.pi) / math.gamma(d / 2) * beta ** ((d - 1) / 2))
    assert ratio == pytest.approx(1.0, abs=0.1)


def apparent_dimension(d, beta):
    """D = -2 d ln n_eff/d ln β by differences."""
    step = 1e-4
    sizes = [math.log(concentration(d, beta * math.exp(each))) for each in (-step, step)]
    return (sizes[1] - sizes[0]) / step


def test_apparent_dimension__tends_to_that_of_the_sphere_and_falls_short_of_it_before():
    assert apparent_dimension(4, 1e3) == pytest.approx(3.0, rel=1e-3)
    at_best = [apparent_dimension(d, best_sharpness(Problem("unit", d), 4096)) for d in (4, 16, 64)]
    assert at_best == pytest.approx([2.9, 10.2, 17.6], abs=0.06)


@pytest.mark.parametrize("dimension", [4, 32, 128])
def test_exponent_at_finite_n__is_nearly_that_of_slopes(dimension):
    d, problem, step = dimension, Problem("unit", dimension), 1e-4
    beta = best_sharpness(problem, 4096)
    gaps = [math.log(1 - bessel_ratio(d, beta * math.exp(each))) for each in (-step, step)]
    slopes = apparent_dimension(d, beta) / 2 + (gaps[0] - gaps[1]) / step
    assert apparent_dimension(d, beta) == pytest.approx(
        4 * beta * (bessel_ratio(d, 2 * beta) - bessel_ratio(d, beta)), rel=1e-5
    )
    exact = math.log(best_sharpness(problem, 8192) / best_sharpness(problem, 2048)) / math.log(4)
    assert 1 / slopes == pytest.approx(exact, abs=0.022)


def test_exponents__fall_with_the_dimension_and_stop_above_the_formula():
    found = [slope(Problem("unit", d), 4096) for d in (4, 8, 16, 32, 64, 128)]
    assert found == sorted(found, reverse=True)
    assert found[-1] > 6 * (2 / 131)


def test_gaussian_keys__have_a_square_root_law_with_an_offset():
    offsets = [
        math.sqrt(2 * math.log(n)) - best_sharpness(Problem("gaussian", 64), n) for n in (2**12, 2**16, 2**20, 2**24)
    ]
    assert min(offsets) > 1.45 and max(offsets) < 1.70
    temperature = math.sqrt(8) / best_sharpness(Problem("gaussian", 8), 2**24)
    assert temperature == pytest.approx(1.0, abs=0.01)  # many keys: no law of length


def test_best_factor__hardly_depends_on_the_signal():
    for d, limit in itertools.product((4, 16, 128), [0.09]):
        factors = [
            best_sharpness(Problem("unit", d, signal), 65_536) / best_sharpness(Problem("unit", d, signal), 4096)
            for signal in (0.25, 4.0)
        ]
        assert abs(factors[1] / factors[0] - 1) < limit


@pytest.mark.parametrize(("order", "x"), [(3.0, 2.0), (0.5, 40.0), (31.0, 1.0), (191.0, 1.0), (511.0, 30.0)])
def test_logarithm_of_bessel_functions__is_that_of_the_integral(order, x):
    """Poisson's integral (DLMF 10.32.2); the last two functions are below the smallest float or near it."""
    u, weights = special.roots_legendre(2000)
    logs = (order - 0.5) * np.log1p(-(u**2)) + x * (u - 1.0) + np.log(weights)
    expected = (
        order * math.log(x / 2) - 0.5 * math.log(math.pi) - special.gammaln(order + 0.5) + special.logsumexp(logs)
    )
    assert log_bessel(order, x) == pytest.approx(expected, rel=1e-10)


def test_strong_signals__have_their_optimum_inside_of_the_search():
    problem = Problem("unit", 2, 2e3)
    best = best_sharpness(problem, 1000)
    risks = [exact_risk(problem, best * factor, 1000) for factor in (0.9, 1.0, 1.1)]
    assert risks[1] < min(risks[0], risks[2])
