"""Head projections and query points of a cell, float64: what the estimator looks at, apart from the data.

Random draws are addressed under the study seed alone, so that cells which differ in their data-generating process have
the same; and where they are a population, the same in a batch of one number, of which those of batch 0 are the fixed.
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


# Of many dimensions they take longer than a short batch, which asks for them several times.
@functools.lru_cache(maxsize=8)
def _fixed(cell: Cell) -> np.ndarray:
    found = _divided(cell, _directions(cell, 0, 1))
    found.flags.writeable = False
    return found


def _directions(cell: Cell, first: int, count: int) -> np.ndarray:
    """Projections of heads of equal bandwidth."""
    chosen, d, p = cell.heads, cell.data.n_features, cell.heads.head_dim
    if chosen.arrangement == "file":
        return np.array(cell.file_projections)
    if chosen.arrangement not in ("haar", "haar_redrawn", "scattered", "own"):
        return _arranged(chosen, d)
    z = _random_matrices(cell, Role.PROJECTIONS, first, count)
    if chosen.heads_function is not None:
        return chosen.heads_function.call(z.shape, z)
    if chosen.arrangement == "scattered":
        # Around the span of e_1 .. e_p.
        z = np.eye(d, p) + (chosen.spread or 0.0) / math.sqrt(d) * z
    return orthonormal(z)


def query_projections(cell: Cell, first: int = 0, count: int = 1) -> np.ndarray:
    """Projections W_qh of query points: those of keys, opposite in every second head or Haar draws."""
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
    """Value (d,) nearest to 0 of each feature of keys (n, d) if all have one sign, else 0: no digits that all share."""
    return np.asarray(np.maximum(keys.min(axis=0), 0.0) + np.minimum(keys.max(axis=0), 0.0))


def key_offset(cell: Cell) -> np.ndarray:
    """Centre (d,) subtracted from keys and queries before projection; 0 unless keys are rows and distances all."""
    heads, estimator = cell.heads, cell.estimator
    seen = estimator.logits, estimator.key_scale, estimator.transformation.kind, heads.query_projections
    if cell.file_rows is None or seen != ("distance", "raw", "none", "same"):
        return np.zeros(cell.data.n_features)
    return common_part(cell.rows.keys)


@functools.lru_cache(maxsize=8)  # each batch asks several times
def query_points(cell: Cell) -> np.ndarray:
    """Query points ([draw,] Q, d), fixed over replicates of a batch and, for one seed, over the cells of a study."""
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
    """Independent standard normals ([replicate or draw,] head, row, column), of replicates where heads are redrawn."""
    stream, n_heads, once = _stream(cell, cell.heads.head_seed), cell.heads.n_heads, shape or not cell.heads.redrawn
    if once:
        first, count = cell.geometry if "heads" in cell.population else (0, 1)
    n_rows, n_columns = shape or (cell.data.n_features, cell.heads.head_dim)
    z = normals(stream, role, first, count, n_rows, n_heads * n_columns)
    z = z.reshape(-1, n_heads, n_columns, n_rows).swapaxes(-1, -2)
    return z[0] if once and count == 1 else z


def orthonormal(matrices: np.ndarray) -> np.ndarray:
    """Orthonormal factors of Gaussian matrices, uniform as the other factor has a positive diagonal (Mezzadri 2007)."""
    q, r = np.linalg.qr(matrices)
    q *= np.sign(np.diagonal(r, axis1=-2, axis2=-1))[..., None, :]
    return q


def _arranged(heads: Heads, d: int) -> np.ndarray:
    """Heads whose j-th directions meet under t_j: they share e_j, and each adds a coordinate of its own for t_j > 0."""
    p, n_heads = heads.head_dim, heads.n_heads
    angle = {"aligned": 0.0, "orthogonal": 90.0}.get(heads.arrangement, heads.angle or 0.0)
    angles = heads.principal_angles or (angle,) * p
    turned = [j for j in range(p) if angles[j] > 0.0]
    projections = np.zeros((n_heads, d, p))
    projections[:, range(p), range(p)] = 1.0
    for k, j in enumerate(turned):
        own = [p + h * len(turned) + k for h in range(n_heads - 1)]
        projections[:, [j, *own], j] = _equiangular(n_heads, angles[j])
    return projections


@functools.lru_cache(maxsize=64)
def _equiangular(n: int, degrees: float) -> np.ndarray:
    """Rows: n unit vectors at one angle in (0, 90] degrees, by a Cholesky factor that takes no difference."""
    # The complement makes the cosine of a right angle exactly 0.
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
    """Return Ω_hg = H² tr(A_h'A_g) / |Σ_h A_h|²_F (H, H), of mean 1 whatever the size of values; None for numbers.

    Value and output projections tie the errors of two heads by the maps A_h = W_V W_O.  Values are y_i = m(X_i) s + ε_i
    with E ss' = I and noise of equal variance in each component.  Then E e_h'e_g of what comes out of the projections
    is tr(A_h'A_g) times that of errors of numbers, in the bias, the signal and the noise alike, whatever the weights.
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
