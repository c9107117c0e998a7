"""From cells and a batch number to moments: the one composition of data, heads and kernels.

Imports NumPy, cells, datasets, regression, heads, geometry, kernels and moments.  Pure: no I/O, no scheduler, no
clock, so that every executor submits this very function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from simstudy import datasets, heads, regression
from simstudy.cells import N_BLOCKS, Cell
from simstudy.geometry import GEOMETRIC_INDICES, diversity_indices
from simstudy.kernels import nw_estimates, nw_moments, project
from simstudy.moments import Array, Moments, empty, update

PIECE_BYTES = 16 << 20
"""Largest array held at once; bounds a worker's memory whatever the size of a batch."""
NUMERICAL_FAILURES = (np.linalg.LinAlgError, ArithmeticError)
"""What a replicate may raise and be counted as failed; anything else is a defect of the program and stops it."""


def shares_data(cell: Cell) -> tuple[Any, ...]:
    """Return what two cells must have in common for one drawing of the data to serve both.

    The number of keys may differ: fewer keys are a prefix of more.  But the pieces in which replicates are summed
    must not, or the company of a cell would show in its rounding.
    """
    simulation = cell.simulation
    return cell.data_id, cell.data.n_features, simulation.batch_size, simulation.dtype, _piece_length(cell)


def _piece_length(cell: Cell) -> int:
    """Return the number of replicates that are held at once: within a block and within `PIECE_BYTES`."""
    n_heads, itemsize = cell.heads.n_heads, np.dtype(cell.simulation.dtype).itemsize
    keys = cell.data.n_keys * max(cell.data.n_features, n_heads * cell.heads.head_dim) * itemsize
    gram = cell.n_queries * n_heads**2 * np.dtype(np.float64).itemsize
    return min(cell.simulation.batch_size // N_BLOCKS, max(1, PIECE_BYTES // max(keys, gram)))


def simulate_batch(cells: Sequence[Cell], batch: int) -> list[Moments]:
    """Evaluate one batch of replicates for cells that share their data.

    Parameters
    ----------
    cells
        Cells with equal `shares_data`.
    batch
        Number of the batch: its replicates are batch·batch_size, …, (batch + 1)·batch_size − 1.

    Returns
    -------
    list of Moments
        One for each cell; the same to the bit whichever other cells are evaluated with it.
    """
    evaluations = [Evaluation(cell) for cell in cells]
    largest = max(cells, key=lambda cell: cell.data.n_keys)
    for block, first, count in _pieces(largest, batch):
        shared = SharedData(largest, first, count)
        for evaluation in evaluations:
            _add(evaluation, shared, block)
    return [evaluation.moments for evaluation in evaluations]


def _pieces(cell: Cell, batch: int) -> Iterator[tuple[int, int, int]]:
    """Yield (block, first replicate, number of replicates), none across a block."""
    per_block = cell.simulation.batch_size // N_BLOCKS
    step = _piece_length(cell)
    for block in range(N_BLOCKS):
        start = batch * cell.simulation.batch_size + block * per_block
        for offset in range(0, per_block, step):
            yield block, start + offset, min(step, per_block - offset)


def _add(evaluation: Evaluation, shared: SharedData, block: int) -> None:
    """Add replicates; if one of them raises, each by itself, so that only that one is counted as failed."""
    try:
        evaluation.add(shared, block)
    except NUMERICAL_FAILURES:
        if shared.count == 1:
            evaluation.fail(shared.first)
        else:
            for single in shared.singles():
                _add(evaluation, single, block)


class SharedData:
    """Data of a few replicates, each part drawn or computed once for all cells that use it."""

    def __init__(self, cell: Cell, first: int, count: int) -> None:
        self.first, self.count = first, count
        self._cell = cell
        self._known: dict[tuple[Any, ...], Any] = {}
        self._keys = datasets.draw_keys(cell, first, count)

    def _once(self, address: tuple[Any, ...], compute: Callable[[], Any]) -> Any:
        if address not in self._known:
            self._known[address] = compute()
        return self._known[address]

    def singles(self) -> Iterator[SharedData]:
        """Yield the data of each replicate by itself."""
        for replicate in range(self.first, self.first + self.count):
            yield SharedData(self._cell, replicate, 1)

    def keys(self, n_keys: int) -> np.ndarray:
        """X: (replicate, feature, key)."""
        return self._once(("keys", n_keys), lambda: np.ascontiguousarray(self._keys[:, :, :n_keys]))

    def values(self, cell: Cell) -> np.ndarray:
        """m(X): (replicate, key)."""
        n, m = cell.data.n_keys, cell.data.regression
        return self._once(("values", n, m), lambda: regression.evaluate(m, self.keys(n)))

    def variances(self, cell: Cell) -> np.ndarray:
        """Var(ε | X): (replicate, key)."""
        n = cell.data.n_keys
        address = ("variances", n, cell.data.noise, cell.data.noise_sd)
        return self._once(address, lambda: datasets.noise_variance(cell, self.keys(n)))

    def noise(self, cell: Cell) -> np.ndarray:
        """Noise of unit variance: (replicate, key)."""
        address = ("noise", cell.data.n_keys, cell.data.noise)
        return self._once(address, lambda: datasets.draw_noise(cell, self.first, self.count))

    def projections(self, cell: Cell) -> tuple[np.ndarray, np.ndarray]:
        """Key and query projections of redrawn heads: (replicate, head, feature, dimension) each."""
        return self._once(("projections", cell.heads), lambda: _projections(cell, self.first, self.count))

    def projected(self, cell: Cell, projections: np.ndarray) -> np.ndarray:
        """Projected keys: (replicate, head, dimension, key)."""
        n = cell.data.n_keys
        return self._once(("projected", n, cell.heads), lambda: project(self.keys(n), projections))


def _projections(cell: Cell, first: int = 0, count: int = 1) -> tuple[np.ndarray, np.ndarray]:
    return heads.key_projections(cell, first, count), heads.query_projections(cell, first, count)


class Evaluated(NamedTuple):
    """What the estimators of one cell see and return in a few replicates.

    Attributes
    ----------
    key_projections : (head, feature, dimension) or (replicate, head, feature, dimension)
        W_h in the precision of the cell.
    queries : (query, head, dimension) or (replicate, query, head, dimension)
        Query points, projected by the heads' query projections.
    values, variances : (replicate, key)
        What is averaged: m(X), or Y if noise is drawn; Var(ε | X).
    means : (replicate, query, head)
        Head estimates, or their conditional means given the keys.
    gram : (replicate, query, head, head) or None
        Conditional covariance of the head estimates given the keys; None if noise is drawn.
    indices : (replicate, index)
        Geometric diversity indices.
    """

    key_projections: np.ndarray
    queries: np.ndarray
    values: np.ndarray
    variances: np.ndarray
    means: np.ndarray
    gram: np.ndarray | None
    indices: Array


class Evaluation:
    """Moments of one cell, as pieces of the batch arrive."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self._dtype = np.dtype(cell.simulation.dtype)
        points = heads.query_points(cell)
        self._points = np.ascontiguousarray(points.T[None]).astype(self._dtype)
        target = regression.evaluate(cell.data.regression, np.ascontiguousarray(points.T))
        self.moments = empty(N_BLOCKS, target, cell.heads.n_heads, len(GEOMETRIC_INDICES))
        if not cell.heads.redrawn:
            self._fixed = self._prepare(*_projections(cell))

    def _prepare(self, key: np.ndarray, query: np.ndarray) -> tuple[np.ndarray, np.ndarray, Array]:
        """Key projections, projected queries, and diversity indices (one row for each replicate or one for all)."""
        indices = np.atleast_2d(diversity_indices(key, self.cell.bandwidth))
        rows = len(query) if query.ndim == 4 else 1
        points = np.ascontiguousarray(np.broadcast_to(self._points, (rows, *self._points.shape[1:])))
        projected = project(points, query.astype(self._dtype)).transpose(0, 3, 1, 2)
        queries = np.ascontiguousarray(projected if query.ndim == 4 else projected[0])
        return key.astype(self._dtype), queries, indices

    def evaluate(self, shared: SharedData) -> Evaluated:
        """Return what the heads estimate from the data of a few replicates."""
        cell = self.cell
        key, queries, indices = self._prepare(*shared.projections(cell)) if cell.heads.redrawn else self._fixed
        keys = shared.projected(cell, key)
        values, variances = shared.values(cell), shared.variances(cell)
        gram = None
        if cell.simulation.noise_treatment == "drawn":
            values = values + np.sqrt(variances) * shared.noise(cell)
            means = nw_estimates(keys, values, queries, cell.bandwidth, cell.estimator.logits)
        else:
            means, gram = nw_moments(keys, values, variances, queries, cell.bandwidth, cell.estimator.logits)
        rows = np.broadcast_to(indices, (shared.count, indices.shape[-1]))
        return Evaluated(key, queries, values, variances, means, gram, rows)

    def add(self, shared: SharedData, block: int) -> None:
        """Add replicates to the moments of a block; one that raises leaves no trace in them."""
        seen = self.evaluate(shared)
        self.moments = update(self.moments, block, shared.first, seen.means, seen.gram, seen.indices)

    def fail(self, replicate: int) -> None:
        """Count a replicate that has no estimate because computing it raised."""
        self.moments = self.moments._replace(failed=np.append(self.moments.failed, replicate))
