"""Risk of a head against double integrals and loops over pairs of keys; factors of length; best temperatures."""

import math
import runpy
from pathlib import Path

import numpy as np
import pytest
from builders import Draw, minimal_cell
from scipy import special

STUDY = runpy.run_path(str(Path(__file__).parents[2] / "designs" / "temperature" / "functions.py"))
VARIANTS = runpy.run_path(str(Path(__file__).parents[2] / "designs" / "variants" / "functions.py"))
RNG = np.random.default_rng(3)


def harmonic(problem, d, u):
    """Mean of the target at a key times that at another one, by shares: Legendre polynomials, written out."""
    shares = STUDY["PROBLEMS"][problem][1]
    polynomials = [u, None, ((d + 2) * u**3 - 3 * u) / (d - 1)]
    return [(share, p) for share, p in zip(shares, polynomials, strict=False) if share]


@pytest.mark.parametrize("problem", ["one length, degree 1", "one length, degree 3", "Gaussian keys"])
@pytest.mark.parametrize("sharpness", [0.3, 2.0])
def test_risk_of_two_keys__is_a_double_integral(problem, sharpness):
    d, gaussian = 5, problem == "Gaussian keys"
    rule = np.polynomial.hermite_e.hermegauss(150) if gaussian else special.roots_gegenbauer(150, d / 2 - 1)
    places, weights = rule[0], rule[1] / rule[1].sum()
    u, v = places[:, None], places[None]
    first = 1 / (1 + np.exp(sharpness * (v - u)))
    squares = first**2 + (1 - first) ** 2
    if gaussian:
        gap = first * u + (1 - first) * v - math.sqrt(d)
        risk = squares + (gap**2 + (d - 1) * squares) / d
    else:
        risk = squares
        for (share, p), (_, q) in zip(harmonic(problem, d, u), harmonic(problem, d, v), strict=True):
            sums = first * p + (1 - first) * q
            risk = risk + share * (1 - 2 * sums + squares + 2 * first * (1 - first) * p * q)
    assert STUDY["exact_risk"](problem, d, 2, sharpness) == pytest.approx(weights @ risk @ weights, rel=1e-5)


@pytest.mark.parametrize("degree", [1, 3])
def test_risk_given_logits__is_that_of_pairs_of_keys(degree):
    """In three dimensions: pairs averaged over their longitudes."""
    places, angles = RNG.uniform(-1, 1, (1, 4)), 2 * np.pi * np.arange(64) / 64
    w = np.exp(2.0 * places[0]) / np.exp(2.0 * places[0]).sum()
    risk = 1.0
    for i, u in enumerate(places[0]):
        risk += w[i] ** 2 - 2 * w[i] * special.eval_legendre(degree, u)
        for j, v in enumerate(places[0]):
            between = u * v + math.sqrt((1 - u * u) * (1 - v * v)) * np.cos(angles)
            risk += w[i] * w[j] * (1.0 if i == j else special.eval_legendre(degree, between).mean())
    found = STUDY["risk_given_logits"](places, 2.0, f"one length, degree {degree}", 3)
    assert found == pytest.approx([risk])


@pytest.mark.parametrize(("rule", "kind"), [("YaRN", "yarn"), ("ln n", "log"), ("√ln n", ""), ("s^(2/(d+3))", "")])
def test_factors_of_length__are_those_of_the_papers_here_and_in_the_package(rule, kind):
    factors = {
        "YaRN": [(0.1 * math.log(4) + 1) ** 2, 1.6314, 2.0047],
        "ln n": [14 / 12, 16 / 12, 18 / 12],
        "√ln n": [(14 / 12) ** 0.5, (16 / 12) ** 0.5, 1.5**0.5],
        "s^(2/(d+3))": [4 ** (2 / 11), 16 ** (2 / 11), 64 ** (2 / 11)],
    }[rule]
    for n_keys, factor in zip((16384, 65536, 262144), factors, strict=True):
        assert STUDY["RULES"][rule](n_keys, n_keys / 4096, 8) == pytest.approx(factor, rel=1e-4)
        if kind:
            settings = {"n_keys": n_keys, "head_dim": 8, "n_features": 16}
            cell = minimal_cell(bandwidth={"kind": kind, "tuned_at": 4096, "value": 2.0}, **settings)
            assert 4.0 / cell.bandwidth**2 == pytest.approx(factor, rel=1e-4)


def test_best_sharpness__is_that_of_the_formula_for_many_keys():
    c = 2.0**-1 * math.sqrt(math.pi) / math.gamma(1.5)
    formula = (2**20 * 4 / (2 * c)) ** (2 / 6)
    assert STUDY["best_sharpness"]("one length, degree 1", 3, 2**20) == pytest.approx(formula, rel=0.02)


def test_temperatures_of_variants__are_the_best_ones():
    for (target, signal), found in VARIANTS["BEST"].items():
        best = STUDY["best_sharpness"](f"one length, {target}", 8, 1024, signal)
        assert found == pytest.approx(best, rel=1e-4)


def off(values, expected):
    """Distance of a mean from what is expected, in standard errors."""
    return abs(values.mean() - expected) / values.std() * math.sqrt(len(values))


@pytest.mark.parametrize("problem", ["one length, degree 3", "Gaussian keys"])
def test_risks_of_drawn_keys__are_those_of_theory(problem):
    known = {"n_keys": 8, "head_dim": 5, "problem": problem}
    rule = {"tuned_at": 4, "rule": "unchanged", "bandwidth": 0.6}
    found = STUDY["tempered_head"](**STUDY["keys_along_the_query"](Draw(4000), **known), **known, **rule)
    for name, expected in STUDY["theory"](**known, **rule).items():
        assert off(found[name], expected) < 4.0
