"""Theory under a mask: keys are exchangeable, so that a query which sees k of n keys has the moments of k keys."""

from collections.abc import Callable
from typing import Any

import numpy as np

from simstudy.design.settings.cell import Cell
from simstudy.design.settings.ensembles import FixedBandwidth
from simstudy.design.settings.mechanisms import NoMask
from simstudy.theory.exact.moments import ExactPrediction
from simstudy.theory.functions import Array
from simstudy.theory.leading import Prediction


def masked(
    method: Callable[[Cell, Array, Array, Array], Prediction | ExactPrediction],
    cell: Cell,
    key_projections: Array,
    query_projections: Array,
    queries: Array,
) -> Prediction | ExactPrediction:
    """Return what a theory says of a cell, whose queries may each see some of the keys.

    Parameters
    ----------
    method : callable
        Theory of all keys: of a cell, key and query projections (H, d, p), and queries (Q, d).
    cell, key_projections, query_projections, queries
        As `method` takes them.

    Returns
    -------
    Prediction or ExactPrediction
        As `method` returns it, each query with the keys that it sees; its reason names those where there is none.
    """
    visible = cell.visible
    if visible is None:
        return method(cell, key_projections, query_projections, queries)
    seen = visible.sum(axis=1)
    sizes = np.unique(seen)
    parts = [method(_of_size(cell, n), key_projections, query_projections, queries[seen == n]) for n in sizes.tolist()]
    place = np.argsort(np.concatenate([np.flatnonzero(seen == n) for n in sizes]))
    arrays = (name for name in parts[0]._fields if name != "reason")
    joined: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts])[place] for name in arrays}
    stated = [f"where {n} keys are seen, {part.reason}" for n, part in zip(sizes, parts, strict=True) if part.reason]
    others = f"; and of {len(stated) - 1} further numbers of keys" if stated[1:] else ""
    return parts[0]._replace(**joined, reason=f"{stated[0]}{others}" if stated else "")


def _of_size(cell: Cell, n_keys: int) -> Cell:
    """The cell without a mask, of so many keys and the same bandwidth."""
    bandwidth = FixedBandwidth(kind="fixed", value=cell.bandwidth)
    estimator = cell.estimator.model_copy(update={"mask": NoMask(kind="none"), "bandwidth": bandwidth})
    data = cell.data.model_copy(update={"n_keys": n_keys})
    return cell.model_copy(update={"estimator": estimator, "data": data})
