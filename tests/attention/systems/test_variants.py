"""Pairs of heads, sinks and shared keys: against loops over keys, and against keys and queries that are drawn whole."""

from __future__ import annotations

import math

import numpy as np
import pytest
from builders import minimal_cell
from scipy import special

from simstudy.attention.members import measure
from simstudy.data.shared import SharedData
from simstudy.temperatures import Problem, best_sharpness
from simstudy.theory.instances import instance_leading_order

N = 5


def cell_of(kind, n_keys=N, head_dim=3, **parameters):
    return minimal_cell(instance={"kind": kind} | parameters, n_keys=n_keys, n_heads=1, head_dim=head_dim)


def normal(z):
    return (1 + math.erf(z / math.sqrt(2))) / 2


def covariance(degree, u, v, first, second):
    """Mean of a harmonic's covariance at two keys in three dimensions, over the coordinates that are free."""
    if degree == 1:
        return u[first] * u[second] + v[first] * v[second]
    legendre = special.eval_legendre(degree, [u[first], u[second]])
    return float(legendre[0] * legendre[1])


@pytest.mark.parametrize(
    "parameters",
    [
        {"shares": [0, 1.0], "weight": 0.4, "second": 0.3},
        {"weight": 0.4, "second": 0.7, "partner": "orthogonal", "sink": 0.2},
        {"shares": [0, 0, 1.0], "first": 1.5, "sink": 0.5, "gate": 0.6},
    ],
    ids=str,
)
def test_pair__is_that_of_loops(parameters):
    cell = cell_of("head_pair", **parameters)
    shared = SharedData(cell, 0, 4)
    found = measure(cell.instance, cell, shared)
    shares, orthogonal = tuple(parameters.get("shares", (1.0,))), "partner" in parameters
    best, degree, weight = best_sharpness(Problem("unit", 3, 1.0, shares), N), len(shares), parameters.get("weight", 0)
    for r, (one, two) in enumerate(shared.normals(N, 2)):
        u = [2 * normal(z) - 1 for z in one]
        v = [-math.sqrt(1 - c * c) * math.cos(math.pi * normal(z)) if orthogonal else 0.0
             for c, z in zip(u, two, strict=True)]  # fmt: skip
        heads = []
        for part, places in (("first", u), ("second", v if orthogonal else u)):
            size = parameters.get(part, 1.0) * best
            kernel = [math.exp(size * place) for place in places]
            # The mean of e^{βu} over a sphere of three dimensions is sinh(β)/β.
            null = parameters.get("sink", 0) * N * math.sinh(size) / size
            heads.append([each / (sum(kernel) + null) for each in kernel])
        w = [parameters.get("gate", 1.0) * (a - weight * b) / (1 - weight) for a, b in zip(*heads, strict=True)]
        risk = 1.0
        for i in range(N):
            risk += 2 * w[i] ** 2 - 2 * w[i] * special.eval_legendre(degree, u[i])
            risk += sum(w[i] * w[j] * covariance(degree, u, v, i, j) for j in range(N) if j != i)
        assert found["pair_risk"][r] == pytest.approx(risk, abs=1e-5)
        assert found["pair_noise"][r] == pytest.approx(N * sum(each**2 for each in w), abs=1e-5)


def test_leading_order_of_a_pair__is_near_at_many_keys():
    parameters = {"gate": 0.8, "weight": 0.5, "first": 0.6, "second": 0.15, "shares": [0.6, 0.3, 0.1]}
    cell = cell_of("head_pair", n_keys=4096, head_dim=8, **parameters)
    found = measure(cell.instance, cell, SharedData(cell, 0, 400))
    for name, expected in instance_leading_order(cell.instance, cell).items():
        assert abs(found[name].mean() - expected) < 4 * found[name].std() / 20 + 0.01 * expected


@pytest.mark.parametrize(("groups", "p"), [(1, 3), (2, 3), (6, 3)])
def test_grouped_heads__are_heads_on_keys_that_are_drawn(groups, p):
    cell = cell_of("grouped_heads", n_keys=256, head_dim=p, heads=6, groups=groups)
    found = measure(cell.instance, cell, SharedData(cell, 0, 3000))["grouped_noise"]
    rng, drawn = np.random.default_rng(groups), []
    for _ in range(3000):
        mean = np.zeros(256)
        for _ in range(groups):
            keys = rng.standard_normal((256, p))
            for query in rng.standard_normal((6 // groups, p)):
                kernel = np.exp(keys @ query / np.linalg.norm(query))
                mean += kernel / kernel.sum() / 6
        drawn.append(256 * mean @ mean)
    error = math.hypot(found.std(), np.std(drawn)) / math.sqrt(3000)
    assert abs(found.mean() - np.mean(drawn)) < 4 * error
    assert found.mean() == pytest.approx(instance_leading_order(cell.instance, cell)["grouped_noise"], rel=0.03)
