"""Closed forms in principal angles against integrals, and what theory offers to users."""

import importlib
import inspect
import re

import numpy as np
import pytest
from theory_oracle import gaussian_grid, make_cell

from simstudy import theory
from simstudy.theory import closed_forms as cf
from simstudy.theory import leading_order

RNG = np.random.default_rng(7)
ANGLES = np.radians([[0.0, 0.0], [0.0, 90.0], [45.0, 45.0], [20.0, 70.0], [90.0, 90.0]])


def turned_pair(angles):
    p = len(angles)
    space = np.linalg.qr(RNG.normal(size=(2 * p + 1, 2 * p + 1)))[0]
    first, normal = space[:, :p], space[:, p : 2 * p]
    return np.stack([first, first * np.cos(angles) + normal * np.sin(angles)])


def scaled_noise(heads, queries, logits, bandwidth):
    cell = make_cell(10**7, heads.shape[1], 2, heads.shape[2], logits, bandwidth, noise_sd=3.0)
    prediction = leading_order(cell, heads, heads, queries)
    assert prediction.reason == ""
    return prediction.covariance * 10**7 / 9


@pytest.mark.parametrize("angles", ANGLES)
@pytest.mark.parametrize("bandwidth", [0.3, 1.0, 3.0])
def test_distance_forms_follow_from_the_general_formula(angles, bandwidth):
    heads = turned_pair(angles)
    queries = np.vstack([np.zeros(5), RNG.normal(size=(3, 5))])
    noise = scaled_noise(heads, queries, "distance", bandwidth)
    ratio = cf.noise_ratio(queries @ heads[0], queries @ heads[1], angles, bandwidth)
    np.testing.assert_allclose(ratio, noise[:, 0, 1], rtol=1e-10)
    correlation = noise[0, 0, 1] / noise[0, 0, 0]
    np.testing.assert_allclose(cf.origin_correlation(angles, bandwidth), correlation, rtol=1e-10)


@pytest.mark.parametrize("angles", ANGLES)
def test_dot_product_form_follows_from_the_general_formula(angles):
    heads, bandwidth = turned_pair(angles), 1.2
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


FOR_USERS = (
    "closed_forms", "compact_kernels", "exact.logits", "exact.moments", "informed", "leading", "measures",
    "weighting",
)  # fmt: skip


@pytest.mark.parametrize("name", FOR_USERS)
def test_public_functions__are_exported(name):
    module = importlib.import_module(f"simstudy.theory.{name}")
    own = {key: value for key, value in vars(module).items() if not key.startswith("_") and inspect.isfunction(value)}
    functions = {key for key, value in own.items() if value.__module__ == module.__name__}
    assert functions and functions <= set(theory.__all__)


def test_docstring__says_which_function_answers_what():
    taught = set(re.findall(r":func:`(\w+)`", theory.__doc__))
    functions = {name for name in theory.__all__ if inspect.isfunction(getattr(theory, name))}
    assert taught == functions
