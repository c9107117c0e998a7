"""Principal angles and diversity indices: against naive definitions, known limits, and invariances."""

import math
from fractions import Fraction

import naive
import numpy as np
import pytest

from simstudy.data.geometry import GEOMETRIC_INDICES, diversity_indices, orthonormal_bases, principal_angles

PAIRED = ("chordal", "logdet", "volume", "min_angle")
SHAPES = [(2, 1, 1), (2, 5, 1), (3, 6, 2), (4, 8, 3), (5, 6, 4), (3, 4, 4)]


def heads(shape, seed=0):
    """General projections (H, d, p), columns neither orthogonal nor of unit length."""
    return np.random.default_rng(seed).standard_normal(shape)


def named(projections, bandwidth=0.6):
    return dict(zip(GEOMETRIC_INDICES, diversity_indices(projections, bandwidth), strict=True))


def turned(*degrees, rotation=None):
    """Two heads in 2p dimensions whose principal angles are the given ones."""
    p = len(degrees)
    angles = np.radians(degrees)
    first = np.vstack([np.eye(p), np.zeros((p, p))])
    second = np.vstack([np.diag(np.cos(angles)), np.diag(np.sin(angles))])
    pair = np.stack([first, second])
    return pair if rotation is None else rotation @ pair


def orthogonal_matrix(d, seed):
    return np.linalg.qr(heads((d, d), seed))[0]


def test_bases__of_a_rank_deficient_head_are_still_orthonormal():
    projections = heads((2, 6, 3))
    projections[1, :, 2] = projections[1, :, 0]
    bases = orthonormal_bases(projections)
    np.testing.assert_allclose(bases[1].T @ bases[1], np.eye(3), atol=1e-14)
    assert np.isfinite(principal_angles(projections)).all()


@pytest.mark.parametrize("degrees", [(0, 90), (45, 45), (10, 20), (44.9, 45.1), (0, 0), (90, 90)])
def test_angles__are_those_constructed(degrees):
    angles = principal_angles(turned(*degrees, rotation=orthogonal_matrix(4, 3)))
    np.testing.assert_allclose(np.degrees(angles[0, 1]), degrees, atol=1e-12)
    np.testing.assert_allclose(angles[1, 0], angles[0, 1], atol=1e-14)
    np.testing.assert_allclose(angles[[0, 1], [0, 1]], 0, atol=1e-14)


@pytest.mark.parametrize("radians", [1e-4, 1e-9, 1e-13])
def test_angles__keep_their_digits_when_tiny(radians):
    pair = turned(math.degrees(radians), 60, rotation=orthogonal_matrix(4, 3))
    found = principal_angles(pair)[0, 1]
    np.testing.assert_allclose(found, [radians, math.pi / 3], rtol=1e-9, atol=2e-15)
    # Negative control: the arc cosine alone loses them.
    bases = orthonormal_bases(pair)
    cosines = np.linalg.svd(bases[0].T @ bases[1], compute_uv=False)
    assert abs(np.arccos(min(1.0, cosines[0])) - radians) > 2e-15 + 1e-9 * radians


def test_angles__of_a_batch_are_those_of_its_members():
    batch = heads((2, 3, 4, 6, 2))
    angles, indices = principal_angles(batch), diversity_indices(batch, 0.5)
    assert angles.shape == (2, 3, 4, 4, 2) and indices.shape == (2, 3, len(GEOMETRIC_INDICES))
    np.testing.assert_allclose(angles[1, 2], principal_angles(batch[1, 2]), atol=1e-14)
    np.testing.assert_allclose(indices[1, 2], diversity_indices(batch[1, 2], 0.5), atol=1e-13)


@pytest.mark.parametrize("bandwidth", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("shape", SHAPES)
def test_indices__are_the_definitions(shape, bandwidth):
    projections = heads(shape)
    expected = naive.diversity(projections, bandwidth)
    for name, value in named(projections, bandwidth).items():
        # Equal subspaces (d = p) cost the naive cosines half of their digits.
        assert value == pytest.approx(expected[name], rel=1e-9, abs=1e-6 if shape[1] == shape[2] else 1e-9), name


@pytest.mark.parametrize("n_heads", [2, 3, 5])
def test_indices__of_aligned_and_orthogonal_heads(n_heads):
    p, b = 2, 0.6
    space = orthogonal_matrix(n_heads * p, 1)
    aligned = np.repeat(space[None, :, :p], n_heads, axis=0)
    orthogonal = np.moveaxis(space.reshape(-1, n_heads, p), 1, 0)
    kappa = 1 / (1 + b**2)
    floor = -0.5 * p * math.log(1 - kappa**2)
    lowest = dict.fromkeys(PAIRED, 0.0) | dict.fromkeys(("participation", "entropy", "vendi"), 1.0)
    highest = dict.fromkeys(PAIRED, 1.0) | dict.fromkeys(("participation", "entropy", "vendi"), n_heads)
    for projections, expected in ((aligned, lowest), (orthogonal, highest | {"logdet": floor})):
        for name, value in named(projections, b).items():
            assert value == pytest.approx(expected[name], abs=1e-12), name


def test_indices__of_a_single_head():
    found = named(heads((1, 5, 2)))
    for name in PAIRED:
        assert math.isnan(found[name])
    assert [found[name] for name in ("participation", "entropy", "vendi")] == pytest.approx([1, 1, 1], abs=1e-12)


@pytest.mark.parametrize("bandwidth", [1e-300, 1e-8, 1e-6, 1e-3, 0.7, 1e3, 1e155])
def test_logdet__keeps_its_digits_at_any_bandwidth(bandwidth):
    """One angle t: ½ log[1 + sin² t/(b²(b² + 2))], here in exact rational arithmetic."""
    b, sine2 = Fraction(bandwidth), Fraction(1, 4)
    ratio = sine2 / (b**2 * (b**2 + 2))
    logarithm = (
        math.log((1 + ratio).numerator) - math.log((1 + ratio).denominator) if ratio > 1e-3 else math.log1p(ratio)
    )
    assert named(turned(30), bandwidth)["logdet"] == pytest.approx(logarithm / 2, rel=1e-12, abs=1e-300)
