"""Nadaraya–Watson heads, and weights of heads that are fitted in each replicate."""

import functools
from collections.abc import Callable

import numpy as np

from simstudy.attention.combinations import fit_weights
from simstudy.attention.expansion import expansion
from simstudy.attention.mechanism import Inputs, evaluate
from simstudy.attention.members import Array, Members, evaluated
from simstudy.attention.reference import attention, layer, multi_head_attention, torch_multi_head_attention
from simstudy.data import heads
from simstudy.data.geometry import diversity_indices
from simstudy.data.shared import SharedData, projections_of
from simstudy.data.span import span_of
from simstudy.design.settings.cell import ATTENDED, Cell
from simstudy.design.settings.choices import FittedCombination, NadarayaWatsonLearner
from simstudy.kernels import project
from simstudy.kernels.devices import on_cuda
from simstudy.kernels.errors import mean_variances

Prepared = tuple[np.ndarray, np.ndarray, Array]
"""Key projections, projected queries, and diversity indices (one row for each replicate or one for all)."""
_SMALL = 1 << 14  # most numbers of heads and queries of a cell, 128 KiB, that are cached for a thousand cells


def _prepare(cell: Cell, points: np.ndarray, key: np.ndarray, query: np.ndarray, indices: Array) -> Prepared:
    real = np.dtype(cell.simulation.dtype)
    turned = (points - heads.key_offset(cell)).swapaxes(-1, -2).astype(real)
    sets = query.shape[:-3] or turned.shape[:-2]
    turned = np.ascontiguousarray(np.broadcast_to(turned, (*(sets or (1,)), *turned.shape[-2:])))
    # In the order of kernels: queries and columns of projections are contiguous.
    queries = np.asarray(project(turned, query.astype(real))).transpose(0, 3, 1, 2)
    return key.swapaxes(-1, -2).astype(real, "C").swapaxes(-1, -2), queries if sets else queries[0], indices


def _kept(prepare: Callable[..., Prepared]) -> Callable[..., Prepared]:
    """Return the function with a cache for a thousand cells with small arrays and a few with large ones."""
    small, large = functools.lru_cache(maxsize=1024)(prepare), functools.lru_cache(maxsize=32)(prepare)

    def kept(cell: Cell, *given: bool) -> Prepared:
        numbers = cell.heads.n_heads * cell.heads.head_dim * (cell.data.n_features + cell.n_queries)
        return (small if cell.geometry[1] * numbers <= _SMALL else large)(cell, *given)

    return kept


@_kept
def _fixed_heads(cell: Cell) -> Prepared:
    """Return projections and diversity indices of heads that are equal in all replicates, which take long."""
    key, query = projections_of(cell)
    sets = key if key.ndim == 4 else key[None]  # separately, as a joint computation has other bits
    return key, query, np.stack([_diversity(each.tobytes(), each.shape, cell.bandwidth) for each in sets])


@functools.lru_cache(maxsize=4)  # 0.1 s for 12 heads of 64 dimensions, and cells of a grid share heads
def _diversity(projections: bytes, shape: tuple[int, ...], bandwidth: float) -> Array:
    return diversity_indices(np.frombuffer(projections).reshape(shape), bandwidth)


@_kept
def _fixed(cell: Cell, _on_cuda: bool) -> Prepared:
    # Without a population of heads, all batches have the same heads.
    key, query, indices = _fixed_heads(cell if "heads" in cell.population else cell.in_batch(0))
    if (span := span_of(cell)) is None:
        return _prepare(cell, heads.query_points(cell), key, query, indices)
    one = np.eye(cell.n_queries, dtype=cell.simulation.dtype)[:, None]
    return span.slopes.mT.astype(one.dtype, "C").mT, np.repeat(one, cell.heads.n_heads, axis=1), indices


@evaluated.register
def given_heads(_: NadarayaWatsonLearner, cell: Cell, shared: SharedData) -> Members:
    """Return the estimates of all heads at all queries in the replicates of the data."""
    if cell.heads.redrawn:
        drawn = *shared.projections(cell), shared.indices(cell)
        key, queries, indices = _prepare(cell, heads.query_points(cell), *drawn)
    else:
        key, queries, indices = _fixed(cell, on_cuda())
        indices = np.repeat(indices, shared.count // len(indices), axis=0) if len(indices) > 1 else indices
    inputs = Inputs(shared.projected(cell, key), *shared.outcomes(cell), queries)
    means, gram, log_mass = evaluate(cell.estimator, cell.bandwidth, inputs, cell.controlled, cell.visible)
    statistics = {}
    if gram is not None and ATTENDED in cell.statistics:
        statistics[ATTENDED] = mean_variances(means, gram) / cell.data.noise_sd**2
    if cell.estimator.reference != "none":
        statistics["discrepancy"] = _discrepancy(cell, shared, key, np.asarray(means))
    if isinstance(combination := cell.estimator.combination, FittedCombination):
        # Least squares on validation pairs, which are the pairs after the training data.
        n, rows = cell.data.n_keys, cell.data.n_keys + combination.n_validation
        longer = cell.model_copy(update={"data": cell.data.model_copy(update={"n_keys": rows})})
        pairs = SharedData(longer, shared.first, shared.count)
        x = np.ascontiguousarray(pairs.keys_less(heads.key_offset(cell), rows)[:, :, n:])
        seen = np.asarray(project(x, shared.projections(cell)[1].astype(cell.simulation.dtype))).transpose(0, 3, 1, 2)
        of_pairs = inputs._replace(variances=None, queries=np.ascontiguousarray(seen))
        outputs, outcomes = evaluate(cell.estimator, cell.bandwidth, of_pairs).means, pairs.values(longer)[:, n:]
        weights = np.stack([fit_weights(combination.within, *of) for of in zip(outputs, outcomes, strict=True)])
        means = np.einsum("rqh,rh->rq", means, weights)[..., None]
    control = None if gram is None or log_mass is None else expansion(cell, means, gram, log_mass, inputs)
    return Members(means, gram, indices, statistics, control)


def _discrepancy(cell: Cell, shared: SharedData, projections: np.ndarray, means: Array) -> Array:
    """Return the relative root mean squared difference over queries from the reference computation, (replicate,)."""
    keys, values = np.asarray(shared.projected(cell, projections)), shared.values(cell)
    combination, temperature = np.array(cell.weights), cell.bandwidth**2
    (key, query), points = projections_of(cell), heads.query_points(cell)
    if cell.estimator.reference == "attention":
        queries = np.einsum("qj,hjk->qhk", points, query)[None]
        found = attention(queries, keys, values, temperature, cell.visible) @ combination
    else:
        tokens = np.concatenate([shared.keys(cell.data.n_keys), values[:, None]], axis=1).swapaxes(1, 2)
        questions = np.pad(points, ((0, 0), (0, 1)))
        ours = cell.estimator.reference == "multi_head_attention"
        compute = multi_head_attention if ours else torch_multi_head_attention
        found = compute(layer(key, query, combination), questions, tokens, temperature, cell.visible)
    gaps = means @ combination - found
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sqrt((gaps**2).mean(axis=1) / (found**2).mean(axis=1))
