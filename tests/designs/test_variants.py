"""Pairs of heads, sinks and gates against loops over pairs of keys in three dimensions."""

import math
import runpy
from pathlib import Path

import numpy as np
import pytest
from builders import Draw
from scipy import special

STUDY = runpy.run_path(str(Path(__file__).parents[2] / "designs" / "variants" / "functions.py"))


@pytest.mark.parametrize(
    ("pair", "target", "others"),
    [
        ("λ = 0.5", "degree 3", {"gate": 0.6}),
        ("orthogonal, λ = 0.5", "degree 1", {"sink": 0.2}),
        ("cold head", "degree 1", {"signal": 4.0, "sink": 0.5}),
    ],
)
def test_pair__is_that_of_loops(pair, target, others):
    keys = np.random.default_rng(5).standard_normal((5, 3))
    keys /= np.linalg.norm(keys, axis=1, keepdims=True)
    u, v = keys[:, 0], keys[:, 1]
    found = STUDY["head_pair"](u[None], v[None], pair=pair, target=target, head_dim=3, **others)
    weight, first, second, query = STUDY["PAIRS"][pair]
    signal, degree = others.get("signal", 1.0), int(target[-1])
    heads = []
    for size, places in ((first, u), (second, v if query == "orthogonal" else u)):
        size *= STUDY["BEST"][target, signal]
        kernel = [math.exp(size * place) for place in places]
        # The mean of e^{βu} over a sphere of three dimensions is sinh(β)/β.
        null = others.get("sink", 0) * 5 * math.sinh(size) / size
        heads.append([each / (sum(kernel) + null) for each in kernel])
    w = [others.get("gate", 1.0) * (a - weight * b) / (1 - weight) for a, b in zip(*heads, strict=True)]
    risk = signal + sum(each**2 * (1 + signal) for each in w)
    for i in range(5):
        risk -= 2 * signal * w[i] * special.eval_legendre(degree, u[i])
        for j in set(range(5)) - {i}:
            both = u[i] * u[j] + v[i] * v[j]  # of a linear target: what lies across both queries averages out
            if query == "same":
                both = special.eval_legendre(degree, u[i]) * special.eval_legendre(degree, u[j])
            risk += signal * w[i] * w[j] * both
    assert found["pair_risk"] == pytest.approx([risk], rel=1e-6)
    assert found["pair_noise"] == pytest.approx([5 * sum(each**2 for each in w)])


@pytest.mark.parametrize("groups", [1, 4])
def test_noise_of_heads_that_share_keys__is_that_of_many_keys(groups):
    found = STUDY["average"](**STUDY["shared_keys"](Draw(400), 16, groups, n_keys=2048))["grouped_noise"]
    expected = STUDY["many_keys"](16, groups)["grouped_noise"]
    assert found.mean() == pytest.approx(expected, rel=0.02)
