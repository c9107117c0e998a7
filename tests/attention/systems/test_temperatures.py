"""Heads at a temperature: risks given logits against averages over all that is random; pairs, sinks and shared keys."""

import math

import numpy as np
import pytest
from builders import minimal_cell
from scipy import special

from simstudy.attention.members import measure
from simstudy.data.shared import SharedData
from simstudy.temperatures import Problem, best_sharpness
from simstudy.theory.instances import instance_leading_order

ANGLES = 2.0 * np.pi * np.arange(64) / 64


def tempered(bandwidth, n_keys=4, head_dim=3, **parameters):
    instance = {"kind": "tempered_head", "tuned_at": n_keys} | parameters
    return minimal_cell(instance=instance, n_keys=n_keys, n_heads=1, head_dim=head_dim, bandwidth=bandwidth)


def numbers(cell, count):
    shared = SharedData(cell, 0, count)
    found = measure(cell, shared)
    return found["tempered_risk"], found["excess_risk"], shared.normals(cell.data.n_keys, 1)[:, 0]


def sphere_risk(cosines, weights, degree):
    """Risk for a random harmonic on the sphere of three dimensions: pairs of keys averaged over their longitudes."""
    risk = 1.0
    for i, u in enumerate(cosines):
        risk += weights[i] ** 2 - 2.0 * weights[i] * special.eval_legendre(degree, u)
        for j, v in enumerate(cosines):
            between = u * v + math.sqrt(1 - u * u) * math.sqrt(1 - v * v) * np.cos(ANGLES)
            both = 1.0 if i == j else special.eval_legendre(degree, between).mean()
            risk += weights[i] * weights[j] * both
    return risk


def gaussian_risk(places, weights, head_dim, query):
    """Risk for a random linear function: its coefficients and each coordinate of the keys are independent."""
    along = sum(w * z for w, z in zip(weights, places, strict=True)) - query * math.sqrt(head_dim)
    return sum(w * w for w in weights) * (1 + (head_dim - 1) / head_dim) + along**2 / head_dim


@pytest.mark.parametrize(
    "parameters", [{"shares": [0, 1.0]}, {"shares": [0, 0, 1.0]}, {"keys": "gaussian", "query": 0.5}]
)
def test_risk_given_logits__is_that_of_loops(parameters):
    risks, excess, normals = numbers(tempered(0.8, **parameters), 5)
    best, none, _ = numbers(tempered(1.0, **parameters), 5)
    gaussian = parameters.get("keys") == "gaussian"
    shares = tuple(parameters.get("shares", (1.0,)))
    sharpness = best_sharpness(Problem("gaussian" if gaussian else "unit", 3, 1.0, shares, 0.5 if gaussian else 1.0), 4)
    for r, drawn in enumerate(normals):
        # In three dimensions a cosine is uniform (Archimedes).
        places = drawn if gaussian else [math.erf(z / math.sqrt(2)) for z in drawn]
        for size, found in ((sharpness, best), (sharpness / 0.8**2, risks)):
            kernel = [math.exp(size * place) for place in places]
            weights = [each / sum(kernel) for each in kernel]
            expected = gaussian_risk(places, weights, 3, 0.5) if gaussian else sphere_risk(places, weights, len(shares))
            assert found[r] == pytest.approx(expected, abs=1e-5)
    assert not none.any() and np.ptp((risks - best) / excess) < 1e-12


def test_unit_of_the_excess__is_the_mean_risk_at_the_best_temperature():
    risks, excess, _ = numbers(tempered(0.8, head_dim=8, n_keys=64), 4000)
    best, _, _ = numbers(tempered(1.0, head_dim=8, n_keys=64), 4000)
    unit = 100.0 * ((risks - best) / excess)[0]
    assert abs(best.mean() - unit) < 4.0 * best.std() / math.sqrt(4000)


@pytest.mark.parametrize(
    ("rule", "factors"),
    [
        ({"kind": "yarn"}, [1.0, (0.1 * math.log(4) + 1) ** 2, 1.6314, 2.0047]),
        ({"kind": "log"}, [10 / 12, 14 / 12, 16 / 12, 18 / 12]),
        ({"kind": "log", "power": 2.0}, [100 / 144, 196 / 144, 256 / 144, 324 / 144]),
        ({"kind": "root_log"}, [(10 / 12) ** 0.5, (14 / 12) ** 0.5, (16 / 12) ** 0.5, 1.5**0.5]),
        (
            {"kind": "root_log", "offset": 1.55},
            [2.17330 / 2.52871, 2.85544 / 2.52871, 3.15964 / 2.52871, 3.44532 / 2.52871],
        ),
        ({"kind": "power"}, [4 ** (-2 / 11), 4 ** (2 / 11), 16 ** (2 / 11), 64 ** (2 / 11)]),
        ({"kind": "power", "add": -1.0}, [4 ** (-2 / 7), 4 ** (2 / 7), 16 ** (2 / 7), 64 ** (2 / 7)]),
    ],
    ids=str,
)
def test_factors_of_length__are_those_of_the_papers(rule, factors):
    for n_keys, factor in zip((1024, 16384, 65536, 262144), factors, strict=True):
        cell = tempered(rule | {"tuned_at": 4096, "value": 2.0}, n_keys=n_keys, head_dim=8)
        assert 4.0 / cell.bandwidth**2 == pytest.approx(factor, rel=1e-4)


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
    found = measure(cell, shared)
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
    found = measure(cell, SharedData(cell, 0, 400))
    for name, expected in instance_leading_order(cell.instance, cell).items():
        assert abs(found[name].mean() - expected) < 4 * found[name].std() / 20 + 0.01 * expected


@pytest.mark.parametrize(("groups", "p"), [(1, 3), (2, 3), (6, 3)])
def test_grouped_heads__are_heads_on_keys_that_are_drawn(groups, p):
    cell = cell_of("grouped_heads", n_keys=256, head_dim=p, heads=6, groups=groups)
    found = measure(cell, SharedData(cell, 0, 3000))["grouped_noise"]
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
