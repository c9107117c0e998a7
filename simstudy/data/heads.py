"""Projections of heads and query points of a cell, in float64.

Addresses of random draws contain the seed of the study and no other setting of the data, so that cells with different
data-generating processes have the same draws.  In a population, draws depend also on the number of the batch; batch 0
has the draws of cells without a population.
"""

import functools
import hashlib
import math

import numpy as np

from simstudy.data.addresses import Role, normals
from simstudy.design.settings.cell import Cell, Heads
from simstudy.design.settings.choices import GaussianQueries, GivenQueries, HeldOutQueries, RandomValueProjections


def key_projections(cell: Cell, first: int = 0, count: int = 1) -> np.ndarray:
    """Return W_h ([draw,] H, d, p), or (count, H, d, p) of redrawn heads, divided by the factors on bandwidths."""
    if cell.heads.redrawn:
        return _divided(cell, _directions(cell, first, count))
    return _fixed(cell if "heads" in cell.population else cell.in_batch(0))


# Cached, as in many dimensions they take longer than a short batch, which needs them several times.
@functools.lru_cache(maxsize=8)
def _fixed(cell: Cell) -> np.ndarray:
    found = _divided(cell, _directions(cell, 0, 1))
    found.flags.writeable = False
    return found


def _directions(cell: Cell, first: int, count: int) -> np.ndarray:
    """Return projections of heads before the division by factors on bandwidths."""
    chosen, d, p = cell.heads, cell.data.n_features, cell.heads.head_dim
    if chosen.arrangement == "file":
        return np.array(cell.file_projections)
    if chosen.arrangement not in ("haar", "haar_redrawn", "scattered", "own"):
        return _arranged(chosen, d)
    z = _random_matrices(cell, Role.PROJECTIONS, first, count)
    if chosen.heads_function is not None:
        return chosen.heads_function.call(z.shape, z)
    if chosen.arrangement == "scattered":
        # Scattered around the span of e_1 .. e_p.
        z = np.eye(d, p) + (chosen.spread or 0.0) / math.sqrt(d) * z
    return orthonormal(z)


def query_projections(cell: Cell, first: int = 0, count: int = 1) -> np.ndarray:
    """Return projections W_qh of query points: those of keys, with alternating signs over heads, or Haar draws."""
    if cell.heads.query_projections == "haar":
        return _divided(cell, orthonormal(_random_matrices(cell, Role.QUERY_PROJECTIONS, first, count)))
    projections = key_projections(cell, first, count)
    if cell.heads.query_projections == "opposite":
        return projections * np.where(np.arange(cell.heads.n_heads) % 2, -1.0, 1.0)[:, None, None]
    return projections


def _divided(cell: Cell, projections: np.ndarray) -> np.ndarray:
    factors = cell.estimator.head_bandwidths
    return projections if factors is None else projections / np.array(factors)[:, None, None]


def common_part(keys: np.ndarray) -> np.ndarray:
    """Return (d,) the value nearest to 0 of each feature of keys (n, d) if all have one sign, otherwise 0."""
    return np.asarray(np.maximum(keys.min(axis=0), 0.0) + np.minimum(keys.max(axis=0), 0.0))


def key_offset(cell: Cell) -> np.ndarray:
    """Return the offset (d,) that is subtracted from keys and queries; 0 unless only distances between rows matter."""
    heads, estimator = cell.heads, cell.estimator
    seen = estimator.logits, estimator.key_scale, estimator.transformation.kind, heads.query_projections
    if cell.file_rows is None or seen != ("distance", "raw", "none", "same"):
        return np.zeros(cell.data.n_features)
    return common_part(cell.rows.keys)


@functools.lru_cache(maxsize=8)  # each batch needs them several times
def query_points(cell: Cell) -> np.ndarray:
    """Return query points ([draw,] Q, d), equal in all replicates of a batch and in all cells with one seed."""
    queries, d = cell.queries.queries, cell.data.n_features
    if isinstance(queries, GaussianQueries):
        first, count = cell.geometry if "queries" in cell.population else (0, 1)
        z = normals(_stream(cell), Role.QUERIES, first, count, queries.count, d)
        found = queries.scale * (z if count > 1 else z[0]).swapaxes(-1, -2)
    elif isinstance(queries, HeldOutQueries):
        found = cell.rows.points[: queries.count]
    else:
        points = queries.points if isinstance(queries, GivenQueries) else ((),)
        found = np.array([np.pad(np.array(point, float), (0, d - len(point))) for point in points])
    found.flags.writeable = False
    return found


def _stream(cell: Cell, draw: int = 0) -> str:
    name = f"heads and queries of seed {cell.simulation.seed}" + (f", draw {draw}" if draw else "")
    return hashlib.blake2b(name.encode()).hexdigest()


def _random_matrices(
    cell: Cell, role: Role, first: int = 0, count: int = 1, shape: tuple[int, int] | None = None
) -> np.ndarray:
    """Return standard normals ([replicate or draw,] head, row, column); for each replicate if heads are redrawn."""
    stream, n_heads, once = _stream(cell, cell.heads.head_seed), cell.heads.n_heads, shape or not cell.heads.redrawn
    if once:
        first, count = cell.geometry if "heads" in cell.population else (0, 1)
    n_rows, n_columns = shape or (cell.data.n_features, cell.heads.head_dim)
    z = normals(stream, role, first, count, n_rows, n_heads * n_columns)
    z = z.reshape(-1, n_heads, n_columns, n_rows).swapaxes(-1, -2)
    return z[0] if once and count == 1 else z


def orthonormal(matrices: np.ndarray) -> np.ndarray:
    """Return Q of Gaussian matrices Q R, uniform as R has a positive diagonal (Mezzadri 2007)."""
    q, r = np.linalg.qr(matrices)
    q *= np.sign(np.diagonal(r, axis1=-2, axis2=-1))[..., None, :]
    return q


def _arranged(heads: Heads, d: int) -> np.ndarray:
    """Return heads whose j-th directions have the angle t_j: all contain e_j, and for t_j > 0 a separate coordinate."""
    p, n_heads = heads.head_dim, heads.n_heads
    angle = {"aligned": 0.0, "orthogonal": 90.0}.get(heads.arrangement, heads.angle or 0.0)
    angles = heads.principal_angles or (angle,) * p
    turned = [j for j in range(p) if angles[j] > 0.0]
    projections = np.zeros((n_heads, d, p))
    projections[:, range(p), range(p)] = 1.0
    for k, j in enumerate(turned):
        separate = [p + h * len(turned) + k for h in range(n_heads - 1)]
        projections[:, [j, *separate], j] = _equiangular(n_heads, angles[j])
    return projections


@functools.lru_cache(maxsize=64)
def _equiangular(n: int, degrees: float) -> np.ndarray:
    """Return n unit vectors, as rows, with one angle in (0, 90] degrees, by a Cholesky factor without differences."""
    # By the sine of the complement, the cosine of a right angle is exactly 0.
    c, s = math.sin(math.radians(90.0 - degrees)), math.sin(math.radians(degrees))
    gap = s * s / (1.0 + c)  # 1 - c
    factor = np.zeros((n, n))
    factor[:, 0] = c
    factor[0, 0] = 1.0
    for k in range(1, n):
        before = 1.0 + (k - 1) * c
        pivot = math.sqrt(gap * (before + c) / before)
        factor[k, k] = pivot
        factor[k + 1 :, k] = c * gap / (before * pivot)
    return factor


def overlap(cell: Cell) -> np.ndarray | None:
    """Return Ω_hg = H² tr(A_h'A_g) / |Σ_h A_h|²_F (H, H), of mean 1; None for scalar values.

    Values y_i = m(X_i) s + ε_i, E ss' = I, with noise of equal variance in each component, pass the maps A_h = W_V W_O.
    Then E e_h'e_g is tr(A_h'A_g) times that of scalar errors, for bias, signal and noise, and for any weights.
    """
    projections, found = cell.heads.value_projections, np.eye(cell.heads.n_heads)
    if projections.kind == "none":
        return None
    if isinstance(projections, RandomValueProjections):
        shape = projections.n_components, projections.value_dim
        roles = [Role.VALUE_PROJECTIONS] + [Role.OUTPUT_PROJECTIONS] * (projections.output != "transposed")
        maps = [orthonormal(_random_matrices(cell, role, shape=shape)) for role in roles]
        found = np.einsum("hva,gvb,hwa,gwb->hg", maps[0], maps[0], maps[-1], maps[-1], optimize=True)
    return np.asarray(found / found.mean())
