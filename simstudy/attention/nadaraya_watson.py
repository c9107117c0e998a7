"""Nadaraya–Watson heads, and weights that each replicate fits for them."""

from __future__ import annotations

import functools

import numpy as np

from simstudy.attention.combinations import fit_weights
from simstudy.attention.control_variate import linear_parts
from simstudy.attention.mechanism import Inputs, evaluate
from simstudy.attention.members import Array, Members, prepared
from simstudy.attention.reference import attention, layer, multi_head_attention, torch_multi_head_attention
from simstudy.data import heads
from simstudy.data.geometry import diversity_indices
from simstudy.data.shared import SharedData, projections_of
from simstudy.design.settings.cell import ATTENDED, Cell
from simstudy.design.settings.ensembles import FittedCombination, NadarayaWatsonLearner
from simstudy.kernels import project

_LAYERS = {"multi_head_attention": multi_head_attention, "torch_multi_head_attention": torch_multi_head_attention}


@functools.lru_cache(maxsize=512)
def _fixed_heads(cell: Cell) -> tuple[np.ndarray, np.ndarray, Array]:
    """Projections of heads that replicates share, and their diversity: what takes longer than a short batch."""
    key, query = projections_of(cell)
    return key, query, diversity_indices(key, cell.bandwidth)[None]


class NadarayaWatson:
    """The heads of one cell."""

    def __init__(self, _: NadarayaWatsonLearner, cell: Cell) -> None:
        self.cell = cell
        self._dtype = np.dtype(cell.simulation.dtype)
        self._points = np.ascontiguousarray(heads.query_points(cell).T[None]).astype(self._dtype)
        if not cell.heads.redrawn:
            # Heads that are no population are those of any batch.
            self._fixed = self._prepare(*_fixed_heads(cell if "heads" in cell.population else cell.in_batch(0)))

    def _prepare(self, key: np.ndarray, query: np.ndarray, indices: Array) -> tuple[np.ndarray, np.ndarray, Array]:
        """Key projections, projected queries, and diversity indices (one row for each replicate or one for all)."""
        rows = len(query) if query.ndim == 4 else 1
        points = np.ascontiguousarray(np.broadcast_to(self._points, (rows, *self._points.shape[1:])))
        projected = np.asarray(project(points, query.astype(self._dtype))).transpose(0, 3, 1, 2)
        queries = np.ascontiguousarray(projected if query.ndim == 4 else projected[0])
        return key.astype(self._dtype), queries, indices

    def _redrawn(self, shared: SharedData) -> tuple[np.ndarray, np.ndarray, Array]:
        key, query = shared.projections(self.cell)
        return self._prepare(key, query, diversity_indices(key, self.cell.bandwidth))

    def evaluate(self, shared: SharedData) -> Members:
        """Return the estimates of all heads at all queries in the replicates of the data."""
        cell = self.cell
        key, queries, indices = self._redrawn(shared) if cell.heads.redrawn else self._fixed
        keys, values = shared.projected(cell, key), shared.values(cell)
        variances = None if cell.simulation.noise_treatment == "drawn" else shared.variances(cell)
        inputs, controlled = Inputs(keys, values, variances, queries), cell.simulation.control_variate != "none"
        means, gram, log_mass = evaluate(cell.estimator, cell.bandwidth, inputs, controlled, cell.visible)
        statistics = {}
        if gram is not None and ATTENDED in cell.statistics:
            statistics[ATTENDED] = gram.mean(axis=(1, 2, 3)) / cell.data.noise_sd**2
        if cell.estimator.reference != "none":
            statistics["discrepancy"] = self._discrepancy(shared, np.asarray(keys), values, means)
        combination = cell.estimator.combination
        if isinstance(combination, FittedCombination):
            weights = self._fitted_weights(combination, shared, keys, values)
            means = np.einsum("rqh,rh->rq", means, weights)[..., None]
        control = None if log_mass is None else linear_parts(cell, means, log_mass)
        return Members(means, gram, indices, statistics, control)

    def _discrepancy(self, shared: SharedData, keys: np.ndarray, values: np.ndarray, means: Array) -> Array:
        """Relative root mean square difference over queries from the reference computation: (replicate,)."""
        cell = self.cell
        combination, temperature = np.array(cell.weights), cell.bandwidth**2
        key, query = projections_of(cell)
        points = heads.query_points(cell)
        if cell.estimator.reference == "attention":
            queries = np.einsum("qj,hjk->qhk", points, query)[None]
            found = attention(queries, keys, values, temperature, cell.visible) @ combination
        else:
            tokens = np.concatenate([shared.keys(cell.data.n_keys), values[:, None]], axis=1).swapaxes(1, 2)
            questions = np.pad(points, ((0, 0), (0, 1)))
            compute = _LAYERS[cell.estimator.reference]
            found = compute(layer(key, query, combination), questions, tokens, temperature, cell.visible)
        gaps = means @ combination - found
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.sqrt((gaps**2).mean(axis=1) / (found**2).mean(axis=1))

    def _fitted_weights(
        self, combination: FittedCombination, shared: SharedData, keys: np.ndarray, values: np.ndarray
    ) -> Array:
        """Weights (replicate, head) of least squares on validation pairs: the rows that follow the training data."""
        cell, n = self.cell, self.cell.data.n_keys
        longer = cell.model_copy(update={"data": cell.data.model_copy(update={"n_keys": n + combination.n_validation})})
        pairs = SharedData(longer, shared.first, shared.count)
        x, y = np.ascontiguousarray(pairs.keys(n + combination.n_validation)[:, :, n:]), pairs.values(longer)[:, n:]
        _, query = shared.projections(cell)
        queries = np.asarray(project(x, query.astype(self._dtype))).transpose(0, 3, 1, 2)
        inputs = Inputs(keys, values, None, np.ascontiguousarray(queries))
        outputs = evaluate(cell.estimator, cell.bandwidth, inputs).means
        return np.stack([fit_weights(combination.within, f, t) for f, t in zip(outputs, y, strict=True)])


prepared.register(NadarayaWatsonLearner, NadarayaWatson)
