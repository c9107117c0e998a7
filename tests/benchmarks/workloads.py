"""The work that is measured: sizes, arrays, and the two jobs as this package does them.

W0 is the estimates of all heads, W1 their conditional means and weight Gram matrices; both begin with drawn keys and
include the projection.  The whole job also draws the data and sums the moments that performance measures need.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from builders import minimal_cell

from simstudy.design.settings.cell import N_BLOCKS, Cell
from simstudy.kernels import nw_moments, project
from simstudy.kernels.jit import aligned


@dataclass(frozen=True)
class Size:
    """Sizes of one workload; ``replicates`` are computed in one call: 1 MiB of keys, half of what `batch` hands on."""

    name: str
    keys: int
    features: int
    heads: int
    queries: int
    replicates: int
    p: int = 4
    dtype: str = "float32"
    logits: str = "distance"

    @property
    def bandwidth(self) -> float:
        return self.keys ** (-1.0 / (self.p + 4)) if self.logits == "distance" else self.p**0.5

    @property
    def drawn(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of keys and noise."""
        return (self.replicates, self.features, self.keys), (self.replicates, self.keys)


SIZES = (Size("S1", 1024, 32, 8, 64, 8), Size("S2", 4096, 64, 16, 64, 1), Size("S3", 256, 16, 4, 32, 64))
# Layers of transformers, at the temperature that they have.
LAYERS = (
    Size("layer", 1024, 768, 12, 64, 1, 64, logits="dot_product"),
    Size("layer, 16 queries", 1024, 512, 8, 16, 1, 64, logits="dot_product"),
    Size("layer, 32 dimensions", 1024, 384, 12, 64, 1, 32, logits="dot_product"),
)
TINY = Size("tiny", 48, 9, 3, 5, 2)
POPULATIONS = (
    (64, 2, 2, 1), (64, 4, 4, 16), (32, 4, 8, 128), (256, 1, 1, 1), (256, 4, 16, 4), (256, 4, 16, 64), (256, 8, 4, 256),
    (1024, 8, 4, 4), (1024, 4, 2, 64), (1024, 8, 64, 16), (4096, 2, 4, 4), (4096, 8, 16, 16),
)  # fmt: skip
"""Keys, heads, dimensions of a head, queries."""


@dataclass(frozen=True)
class Arrays:
    """Keys (R, d, n), values (R, n), projections (H, d, p), query points (Q, d), bandwidth, kind of logits."""

    keys: np.ndarray
    values: np.ndarray
    projections: np.ndarray
    points: np.ndarray
    bandwidth: float
    logits: str

    @cached_property
    def seen(self) -> tuple[np.ndarray, np.ndarray]:
        """Projections (H, d, p) and queries (Q, H, p); of few queries in dot products slopes (H, d, Q), and units."""
        points = np.einsum("qj,hjk->qhk", self.points, self.projections)
        if self.logits == "distance" or len(points) >= points.shape[2]:
            return self.projections, points
        units = np.repeat(np.eye(len(points), dtype=points.dtype)[:, None], len(self.projections), axis=1)
        return (points.swapaxes(0, 1) @ self.projections.mT).mT, units


def draw(size: Size, seed: int = 0) -> Arrays:
    rng = np.random.default_rng(seed)
    columns = np.linalg.qr(rng.standard_normal((size.heads, size.features, size.p)))[0].mT.copy().mT  # side by side
    keys = aligned((size.replicates, size.features, size.keys), size.dtype)  # from a cache line on, as in batches
    keys[:] = rng.standard_normal(keys.shape, dtype=np.float32)
    values = target(keys) + 0.5 * rng.standard_normal(keys[:, 0].shape)
    points = rng.standard_normal((size.queries, size.features))
    return Arrays(*(np.asarray(a, size.dtype) for a in (keys, values, columns, points)), size.bandwidth, size.logits)


def target(keys: np.ndarray) -> np.ndarray:
    """m(x) = 2 sin x_1 from keys (R, d, n); the same in `cell`."""
    return 2.0 * np.sin(keys[:, 0])


def by_us(arrays: Arrays, with_gram: bool) -> Any:
    """W0 by this package, (R, Q, H); or W1 for noise of variance 1, (R, Q, H) and (R, Q, H, H)."""
    (projections, queries), ones = arrays.seen, np.ones_like(arrays.values) if with_gram else None
    found = nw_moments(project(arrays.keys, projections), arrays.values, ones, queries, arrays.bandwidth, arrays.logits)
    return found[:2] if with_gram else found[0]


def cell(size: Size, treatment: str) -> Cell:
    """The cell whose batches are the whole job."""
    return minimal_cell(
        n_keys=size.keys, n_features=size.features, n_heads=size.heads, head_dim=size.p, arrangement="haar",
        bandwidth=size.bandwidth, regression={"kind": "ridge", "amplitude": 2.0, "direction": [1.0]},
        noise_sd=0.5, noise_treatment=treatment, dtype=size.dtype, queries={"kind": "gaussian", "count": size.queries},
        batch_size=N_BLOCKS * size.replicates,
    )  # fmt: skip


def attention_cell(n_queries: int = 4, head_dim: int = 64, **settings: Any) -> Cell:
    """A layer of a transformer at few queries, whose heads fill its features."""
    return minimal_cell(
        n_features=head_dim * settings["n_heads"], head_dim=head_dim, arrangement="orthogonal", bandwidth="attention",
        logits="dot_product", regression={"kind": "ridge", "amplitude": 2.0}, dtype="float32",
        queries={"kind": "gaussian", "count": n_queries}, **settings,
    )  # fmt: skip
