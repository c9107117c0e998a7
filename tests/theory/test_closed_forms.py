"""Closed forms in principal angles and of waves against integrals and exact theory, and what theory offers to users."""

import importlib
import inspect
import re

import naive
import numpy as np
import pytest
from theory_oracle import gaussian_grid, make_cell

from simstudy import theory
from simstudy.theory import alignment_threshold, exact_moments, isotropic_bias, leading_order
from simstudy.theory import closed_forms as cf

RNG = np.random.default_rng(7)
ANGLES = np.radians([[0.0, 0.0], [0.0, 90.0], [45.0, 45.0], [20.0, 70.0], [90.0, 90.0]])


def scaled_noise(heads, queries, logits, bandwidth):
    cell = make_cell(10**7, heads.shape[1], 2, heads.shape[2], logits, bandwidth, noise_sd=3.0)
    prediction = leading_order(cell, heads, heads, queries)
    assert prediction.reason == ""
    return prediction.covariance * 10**7 / 9


@pytest.mark.parametrize("angles", ANGLES)
@pytest.mark.parametrize("bandwidth", [0.3, 1.0, 3.0])
def test_distance_forms_follow_from_the_general_formula(angles, bandwidth):
    heads = naive.turned(angles, np.linalg.qr(RNG.normal(size=(5, 5)))[0])
    queries = np.vstack([np.zeros(5), RNG.normal(size=(3, 5))])
    noise = scaled_noise(heads, queries, "distance", bandwidth)
    ratio = cf.noise_ratio(queries @ heads[0], queries @ heads[1], angles, bandwidth)
    np.testing.assert_allclose(ratio, noise[:, 0, 1], rtol=1e-10)
    correlation = noise[0, 0, 1] / noise[0, 0, 0]
    np.testing.assert_allclose(cf.origin_correlation(angles, bandwidth), correlation, rtol=1e-10)


@pytest.mark.parametrize("angles", ANGLES)
def test_dot_product_form_follows_from_the_general_formula(angles):
    heads, bandwidth = naive.turned(angles, np.linalg.qr(RNG.normal(size=(5, 5)))[0]), 1.2
    queries = RNG.normal(size=(3, 5))
    noise = scaled_noise(heads, queries, "dot_product", bandwidth)
    pulled = queries @ heads @ heads.mT / bandwidth**2
    expected = noise[:, 0, 1] / np.sqrt(noise[:, 0, 0] * noise[:, 1, 1])
    np.testing.assert_allclose(cf.dot_product_correlation(*pulled, np.eye(5)), expected, rtol=1e-10)


@pytest.mark.parametrize("degrees", [0.0, 40.0, 90.0])
@pytest.mark.parametrize("bandwidth", [0.5, 1.5])
def test_query_averages_are_the_integrals_they_claim(degrees, bandwidth):
    angle = np.radians([degrees])
    points, weights = gaussian_grid(np.eye(2), extent=20.0, step=0.1)
    head, other = points[:, :1], points @ np.array([[np.cos(angle[0])], [np.sin(angle[0])]])
    for scale in (1.0, 0.5):
        ratio = weights @ cf.noise_ratio(scale * head, scale * other, angle, bandwidth)
        np.testing.assert_allclose(cf.averaged_noise_ratio(angle, bandwidth, scale), ratio, rtol=1e-9)


@pytest.mark.parametrize("name", [
    "closed_forms", "compact_kernels", "exact.logits", "exact.moments", "informed", "leading", "measures",
    "weighting",
])  # fmt: skip
def test_public_functions__are_exported_and_the_docstring_says_which_answers_what(name):
    module = importlib.import_module(f"simstudy.theory.{name}")
    own = {key: value for key, value in vars(module).items() if not key.startswith("_") and inspect.isfunction(value)}
    functions = {key for key, value in own.items() if value.__module__ == module.__name__}
    assert functions and functions <= set(theory.__all__)
    taught = set(re.findall(r":func:`(\w+)`", theory.__doc__))
    assert taught == {name for name in theory.__all__ if inspect.isfunction(getattr(theory, name))}


@pytest.mark.parametrize("degrees, n_features", [([50.0], 2), ([0.0, 35.0], 4), ([20.0, 80.0], 5), ([0.0, 90.0], 3)])
@pytest.mark.parametrize("bandwidth, frequency_sd, scale", [(0.5, 1.0, 1.0), (1.2, 0.4, 0.5)])
def test_isotropic_bias__is_that_of_random_waves(degrees, n_features, bandwidth, frequency_sd, scale):
    angles, width, p, draws = np.radians(degrees), 1 + bandwidth**2, len(degrees), 100_000
    normals = p - 1 + np.cumsum(angles > 0)  # one for each angle that is not 0
    heads = naive.turned(angles, np.eye(n_features)[:, [*range(p), *normals]])
    waves, queries = frequency_sd * RNG.normal(size=(draws, n_features)), scale * RNG.normal(size=(draws, n_features))
    average = np.zeros(draws, complex)
    for head in heads:
        seen, place = waves @ head, np.sum((waves @ head) * (queries @ head), axis=1) / width
        average += 0.5 * np.exp(1j * place - 0.5 * (np.sum(waves**2, axis=1) - np.sum(seen**2, axis=1) / width))
    squares = abs(average - np.exp(1j * np.sum(waves * queries, axis=1))) ** 2
    found = isotropic_bias(angles, bandwidth, frequency_sd, 2, n_features, scale)
    assert abs(squares.mean() - found) < 4 * squares.std() / draws**0.5


def test_isotropic_bias__of_more_heads_rises_in_no_angle_and_the_threshold_has_known_limits():
    """Of wide kernels 1/H, of narrow ones (2H - 1)/H²."""
    angles = np.radians(np.stack(np.meshgrid(*[np.arange(0, 91, 15)] * 2, indexing="ij"), axis=-1))
    for n_heads, frequency_sd in ((2, 0.3), (4, 1.0), (8, 3.0)):
        found = isotropic_bias(angles, 0.7, np.full(angles.shape[:-1], frequency_sd), n_heads, 8)
        assert (np.diff(found, axis=0) < 0).all() and (np.diff(found, axis=1) < 0).all()
        assert alignment_threshold(n_heads, 3, 1e3) == pytest.approx(1 / n_heads, rel=1e-5)
        assert alignment_threshold(n_heads, 3, 1e-3) == pytest.approx((2 * n_heads - 1) / n_heads**2, rel=1e-5)


def exact_error(n_keys, arrangement, gradient, noise_sd, bandwidth, scale):
    linear = {"kind": "linear", "coefficients": gradient}
    cell = make_cell(n_keys, bandwidth=bandwidth, regression=linear, noise_sd=noise_sd)
    nodes, masses = np.polynomial.hermite_e.hermegauss(4)
    queries = scale * np.array(np.meshgrid(nodes, nodes[2:])).reshape(2, -1).T  # errors are even in the query
    heads = np.eye(2)[:, :, None] if arrangement == "orthogonal" else np.eye(2)[[0, 0]][:, :, None]
    exact = exact_moments(cell, heads, heads, queries)
    assert not exact.reason
    errors = exact.bias.mean(axis=1) ** 2 + exact.covariance.mean(axis=(1, 2))
    return 2 * errors @ np.outer(masses[2:], masses).ravel() / masses.sum() ** 2


@pytest.mark.parametrize("noise_sd, bandwidth, scale", [(1.5, 1.0, 0.5), (1.0, 0.7, 0.7)])
def test_alignment_threshold__is_that_of_exact_theory_but_for_the_next_order(noise_sd, bandwidth, scale):
    gaps = {}
    for n in (100, 400):
        setting = noise_sd, bandwidth, scale
        unseen, seen = (exact_error(n, "aligned", gradient, *setting) for gradient in ([0.0, 1.0], [1.0, 0.0]))
        apart = exact_error(n, "orthogonal", [0.6, 0.8], *setting)
        found = alignment_threshold(2, 1, bandwidth, n, noise_sd, scale)
        gaps[n] = (unseen - apart) / (unseen - seen) - found
        limit = alignment_threshold(2, 1, bandwidth, query_scale=scale)
        assert abs(gaps[n]) < 0.25 * abs(found - limit)  # the control: what noise and n add is seen
    assert abs(gaps[400]) < abs(gaps[100]) / 8  # n^-2
