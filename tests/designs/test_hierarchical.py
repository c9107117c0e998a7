"""Mixed scores and the estimator against loops over positions and levels, and the correction where it is known."""

import math
import runpy
from pathlib import Path

import numpy as np
import pytest
from builders import Draw
from scipy.special import i0

STUDY = runpy.run_path(str(Path(__file__).parents[2] / "designs" / "hierarchical" / "functions.py"))
RNG = np.random.default_rng(4)


def seen_at(x, level, i, causal):
    """What position i sees of the rows x at a level."""
    start = i // 2**level * 2**level
    if causal:
        return sum(x[max(j, 0)] for j in range(start - 2**level + 1, start + 1)) / 2**level
    chunk = x[start : start + 2**level]
    return sum(chunk) / len(chunk)


@pytest.mark.parametrize("downsampling", ["causal", "chunk"])
def test_mixed_scores__are_those_of_loops(downsampling):
    queries, keys = RNG.normal(size=(2, 21, 3))
    weights, causal = np.array([0.1, 0.2, 0.4, 0.3]), downsampling == "causal"
    expected = [
        [sum(w * seen_at(queries, k, i, causal) @ seen_at(keys, k, j, causal) for k, w in enumerate(weights))
         for j in range(21)]
        for i in range(21)
    ]  # fmt: skip
    found = STUDY["mixed_scores"](queries[None], keys[None], weights[None], downsampling)
    np.testing.assert_allclose(found[0], expected, atol=1e-12)


def test_estimator__is_that_of_loops():
    x, queries, b = RNG.normal(size=22), RNG.normal(size=3), 0.4
    total = 0.0
    for q in queries:
        distances = [sum((q - seen_at(x, level, i, False)) ** 2 for level in range(3)) / 3 for i in range(22)]
        kernel = np.exp(-np.array(distances) / (2.0 * b**2))
        weights = kernel / kernel.sum()
        total += (weights @ np.sin(2.0 * x) - math.sin(2.0 * q)) ** 2 + 0.3**2 * (weights**2).sum()
    found = STUDY["regress"](x[None], queries[None], 3, b, noise_sd=0.3)["squared_error"]
    assert found == pytest.approx(total / 3, rel=1e-10)


def test_correction__is_that_of_the_cumulants_of_a_circle():
    """There the mean of exp(√2 s cos) is I₀(√2 s): κ₂ = 1, κ₄ = −3/2, and what is left is near κ₆/720 = 1/72."""
    x = math.sqrt(2.0) * np.cos(2.0 * math.pi * RNG.random((60, 4096)))
    found = {name: values.mean() for name, values in STUDY["weigh_chunks"](x, 8).items()}
    gaussian = math.log(i0(math.sqrt(2))) - 8 * math.log(i0(math.sqrt(2) / 8)) - 7 / 16
    assert found["gaussian_gap"] == pytest.approx(gaussian, abs=0.003)
    assert found["corrected_gap"] == pytest.approx(gaussian + 1.5 * (1 - 8**-3) / 24, abs=0.003)


def test_theory_of_eigenvalues__is_silent_where_it_does_not_hold():
    assert STUDY["kernel_theory"](levels=4)["negative_eigenvalues"] == 16
    for wide in ({"head_dim": 5}, {"levels": 6}):
        assert "negative_eigenvalues" not in STUDY["kernel_theory"](**wide)


@pytest.mark.parametrize("levels", [1, 3])
def test_causal_layer__sees_no_later_token_and_is_ordinary_at_one_level(levels):
    given = {name: each[:5] for name, each in STUDY["sequence"](Draw(4000), levels=levels, n_keys=21).items()}
    found = STUDY["attend"](**given)
    assert found["future_effect"].max() == 0.0 and (found["attention_gap"] < 1e-12).all() == (levels == 1)
    assert STUDY["attend"](**given, downsampling="chunk")["future_effect"].max() > 1e-3 or levels == 1
