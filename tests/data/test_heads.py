"""Arrangements of heads against singular values, angles and indices against naive definitions, query points."""

import itertools
import math
from fractions import Fraction
from functools import partial

import naive
import numpy as np
import pytest
from builders import minimal_cell

from simstudy.data.geometry import GEOMETRIC_INDICES, diversity_indices, orthonormal_bases, principal_angles
from simstudy.data.heads import key_projections, query_points, query_projections
from simstudy.design.cells import impossibilities
from simstudy.design.settings.cell import Cell

make = partial(minimal_cell, n_features=20, seed=0, n_heads=4, arrangement="aligned")
ROTATION = np.linalg.qr(np.random.default_rng(3).standard_normal((4, 4)))[0]
haar = partial(make, n_features=7, head_dim=3, n_heads=2, arrangement="haar_redrawn")
ARRANGEMENTS = [
    ({"arrangement": "aligned"}, (0, 0, 0)),
    ({"arrangement": "orthogonal"}, (90, 90, 90)),
    ({"arrangement": "rotated", "angle": 0}, (0, 0, 0)),
    ({"arrangement": "rotated", "angle": 1e-6}, (1e-6, 1e-6, 1e-6)),
    ({"arrangement": "rotated", "angle": 37}, (37, 37, 37)),
    ({"arrangement": "rotated", "angle": 90}, (90, 90, 90)),
    ({"arrangement": "principal_angles", "principal_angles": (60, 0, 20)}, (0, 20, 60)),
    ({"arrangement": "principal_angles", "principal_angles": (0, 90, 45)}, (0, 45, 90)),
]


def named(projections, bandwidth=0.6):
    return dict(zip(GEOMETRIC_INDICES, diversity_indices(projections, bandwidth), strict=True))


@pytest.mark.parametrize("degrees", [(0, 90), (45, 45), (10, 20), (44.9, 45.1), (0, 0), (90, 90)])
def test_angles__are_those_constructed(degrees):
    angles = principal_angles(orthonormal_bases(naive.turned(np.radians(degrees), ROTATION)))
    np.testing.assert_allclose(np.degrees(angles[0, 1]), degrees, atol=1e-12)
    np.testing.assert_allclose(angles[1, 0], angles[0, 1], atol=1e-14)
    np.testing.assert_allclose(angles[[0, 1], [0, 1]], 0, atol=1e-14)


@pytest.mark.parametrize("radians", [1e-4, 1e-9, 1e-13])
def test_angles__keep_their_digits_when_tiny(radians):
    bases = orthonormal_bases(naive.turned([radians, math.pi / 3], ROTATION))
    np.testing.assert_allclose(principal_angles(bases)[0, 1], [radians, math.pi / 3], rtol=1e-9, atol=2e-15)
    # Negative control: the arc cosine alone loses them.
    cosines = np.linalg.svd(bases[0].T @ bases[1], compute_uv=False)
    assert abs(np.arccos(min(1.0, cosines[0])) - radians) > 2e-15 + 1e-9 * radians


@pytest.mark.parametrize("bandwidth", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("shape", [(1, 5, 2), (2, 1, 1), (2, 5, 1), (3, 6, 2), (4, 8, 3), (5, 6, 4), (3, 4, 4)])
def test_indices__are_the_definitions(shape, bandwidth):
    projections = np.random.default_rng(0).standard_normal(shape)  # neither orthogonal nor of unit length
    alone = dict.fromkeys(GEOMETRIC_INDICES, math.nan) | dict.fromkeys(("participation", "entropy", "vendi"), 1.0)
    expected = alone if len(projections) == 1 else naive.diversity(projections, bandwidth)
    assert named(projections, bandwidth) == pytest.approx(expected, rel=1e-9, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("bandwidth", [1e-300, 1e-8, 1e-6, 1e-3, 0.7, 1e3, 1e155])
def test_logdet__keeps_its_digits_at_any_bandwidth(bandwidth):
    """One angle t: ½ log[1 + sin² t/(b²(b² + 2))], here in exact rational arithmetic."""
    b, sine2 = Fraction(bandwidth), Fraction(1, 4)
    ratio = sine2 / (b**2 * (b**2 + 2))
    log = math.log((1 + ratio).numerator) - math.log((1 + ratio).denominator) if ratio > 1e-3 else math.log1p(ratio)
    found = named(naive.turned([math.radians(30)], np.eye(2)), bandwidth)["logdet"]
    assert found == pytest.approx(log / 2, rel=1e-12, abs=1e-300)


@pytest.mark.parametrize("n_heads", [1, 2, 3, 4, 5])
@pytest.mark.parametrize(("setting", "wanted"), ARRANGEMENTS)
def test_any_two_heads_have_the_angles_asked_for_in_the_features_that_validation_demands(n_heads, setting, wanted):
    cell = make(n_heads=n_heads, head_dim=3, **setting)
    w = key_projections(cell)
    assert w.shape == (n_heads, 20, 3)
    np.testing.assert_allclose(np.swapaxes(w, 1, 2) @ w, np.broadcast_to(np.eye(3), (n_heads, 3, 3)), atol=1e-15)
    for h, g in itertools.combinations(range(n_heads), 2):
        np.testing.assert_allclose(np.degrees(principal_angles(w)[h, g]), wanted, rtol=1e-9, atol=1e-12)
    used = np.flatnonzero(np.any(w != 0, axis=(0, 2)))
    assert used.max() + 1 == used.size == cell.heads.features_needed
    tight = cell.model_copy(update={"data": cell.data.model_copy(update={"n_features": used.size})})
    np.testing.assert_array_equal(key_projections(tight), w[:, : used.size])


def moment_z_scores(draws):
    """Errors of moments of uniform p-frames in d dimensions, in units of their standard errors, with the angle.

    A column x has E x_1^2 = 1/d and E x_1^4 = 3/(d(d+2)); two independent frames have mean squared cosine p/d; a
    function of a rotated frame has the same mean.
    """
    d, p = draws.shape[2:]
    rotated = np.linalg.qr(np.random.default_rng(3).standard_normal((d, d)))[0] @ draws[:, 0]
    cosines = np.sum((np.swapaxes(draws[:, 0], 1, 2) @ draws[:, 1]) ** 2, axis=(1, 2)) / p
    statistics = {
        "mean": (draws[:, 0, :, :].reshape(len(draws), -1), 0.0),
        "square": (draws[:, 0].reshape(len(draws), -1) ** 2, 1 / d),
        "fourth power": (draws[:, 0].reshape(len(draws), -1) ** 4, 3 / (d * (d + 2))),
        "fourth power, rotated": (rotated.reshape(len(draws), -1) ** 4, 3 / (d * (d + 2))),
        "squared cosine": (cosines[:, None], p / d),
    }
    scores = [(x.mean(0) - mean) / (x.std(0, ddof=1) / math.sqrt(len(x))) for x, mean in statistics.values()]
    return np.concatenate(scores)


def test_haar_heads_are_orthonormal_and_uniform():
    w = key_projections(haar(), 0, 20_000)
    np.testing.assert_allclose(np.swapaxes(w, 2, 3) @ w, np.broadcast_to(np.eye(3), (20_000, 2, 3, 3)), atol=5e-15)
    # 85 scores: the largest of so many standard normals exceeds 4.5 with probability 6e-4.
    assert np.max(np.abs(moment_z_scores(w))) < 4.5
    # The controls: frames without the rule of signs, and a preferred axis.
    for wrong in (np.linalg.qr(w)[0], np.linalg.qr(w * np.where(np.arange(7) == 0, 1.05, 1.0)[:, None])[0]):
        assert np.max(np.abs(moment_z_scores(wrong))) > 4.5


@pytest.mark.parametrize("arrangement", ["haar", "haar_redrawn"])
def test_query_projections_same_opposite_and_their_own(arrangement):
    shared = {"n_heads": 3, "arrangement": arrangement}
    cell = {how: haar(query_projections=how, **shared) for how in ("same", "opposite", "haar")}
    w = key_projections(cell["same"], 3, 2)
    np.testing.assert_array_equal(query_projections(cell["same"], 3, 2), w)
    sign = np.array([1.0, -1.0, 1.0])[:, None, None]
    np.testing.assert_array_equal(query_projections(cell["opposite"], 3, 2), sign * w)
    np.testing.assert_array_equal(key_projections(cell["opposite"], 3, 2), w)
    own = query_projections(cell["haar"], 3, 2)
    assert own.shape == w.shape and not np.any(own == w)


def test_given_points_are_padded_with_zeros_and_gaussian_ones_fixed_nested_and_scaled():
    def points(count=400, scale=1.0, **cell):
        return query_points(make(**{"queries": {"kind": "gaussian", "count": count, "scale": scale}} | cell))

    assert points(n_features=3, queries="origin").tolist() == [[0, 0, 0]]
    given = {"kind": "points", "points": [[1, 2], [3], [4, 5, 6]]}
    assert points(n_features=3, queries=given).tolist() == [[1, 2, 0], [3, 0, 0], [4, 5, 6]]
    x = points()
    assert x.shape == (400, 20) and np.abs(np.mean(x**2) - 1) < 4 * math.sqrt(2 / x.size)
    assert np.abs(np.mean((1.1 * x) ** 2) - 1) > 4 * math.sqrt(2 / x.size)
    np.testing.assert_array_equal(points(scale=2.0), 2 * x)
    np.testing.assert_array_equal(points(count=7, n_features=5), x[:7, :5])
    np.testing.assert_array_equal(points(n_heads=2, key_distribution={"kind": "sphere"}), x)
    assert not np.any(points(seed=1) == x)


def test_scattered_heads__lie_between_aligned_and_haar():
    aligned = key_projections(make(arrangement="scattered", spread=0.0))
    np.testing.assert_array_equal(aligned, key_projections(make(arrangement="aligned")))
    overlaps = []
    for spread in (0.1, 0.5, 2.0, 1e6):
        w = [key_projections(make(arrangement="scattered", spread=spread, head_seed=s))[:2] for s in range(300)]
        np.testing.assert_allclose(w[0][0].T @ w[0][0], np.eye(2), atol=1e-12)
        overlaps.append(np.array([np.sum((a.T @ b) ** 2) / 2 for a, b in w]))
    means = [overlap.mean() for overlap in overlaps]
    assert means == sorted(means, reverse=True) and means[0] > 0.95
    assert means[-1] == pytest.approx(2 / 20, abs=4 * overlaps[-1].std() / np.sqrt(300))


def test_draws_of_heads__differ_by_their_number_and_seed_and_by_nothing_else():
    random = partial(make, arrangement="haar", queries={"kind": "gaussian", "count": 3})
    one, other, third, same = random(), random(head_seed=1), random(seed=1), random(key_distribution="sphere")
    assert not np.any(key_projections(one) == [key_projections(each) for each in (other, third)])
    np.testing.assert_array_equal(key_projections(same), key_projections(one))
    np.testing.assert_array_equal(query_points(other), query_points(one))


def test_dimension_budget__buys_heads():
    def of(**heads):
        heads = {"head_dim": 4, "arrangement": "orthogonal"} | heads
        heads = {name: value for name, value in heads.items() if value is not None}
        data = {"n_keys": 10, "n_features": 32}
        return Cell.model_validate({"data": data, "heads": heads, "estimator": {"bandwidth": 0.5}})

    bought, stated = of(total_dim=32), of(n_heads=8)
    assert bought.heads.n_heads == 8 and bought.coordinates["total_dim"] == 32
    assert bought.identity("e") == stated.identity("e") and impossibilities(bought) == []
    shared = of(total_dim=32, n_heads=8, head_dim=None)
    assert shared.heads.head_dim == 4 and shared.coordinates["total_dim"] == 32
    assert shared.identity("e") == stated.identity("e")
    for wrong in (of(total_dim=30), of(total_dim=32, n_heads=4), of(total_dim=30, n_heads=4, head_dim=None)):
        assert [setting for setting, _ in impossibilities(wrong)] == ["total_dim"]
