"""Estimates of learners or functions in consecutive replicates, and statistics of single replicates."""

import functools
from collections.abc import Sequence
from functools import singledispatch
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simstudy.data.geometry import GEOMETRIC_INDICES
from simstudy.data.shared import SharedData
from simstudy.design.settings.cell import Array, Cell
from simstudy.design.settings.records import Record
from simstudy.kernels.errors import correlations_over_queries, mean_squares


@functools.cache
def pairs_of(n_heads: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the heads h and g of all pairs h ≤ g, in the order of `Moments.product_sum`."""
    return np.triu_indices(n_heads)


class Members(NamedTuple):
    """Estimates of the members of an ensemble in consecutive replicates."""

    means: Array  # (replicate, query, head) Estimates; if noise is integrated out, their means given the keys
    gram: Array | None  # Their covariance given the keys, if noise is integrated out
    indices: Array  # (replicate or 1, index) Geometric diversity indices of the heads
    # Numbers of each replicate, by their names in `Cell.statistics`: the relative difference from the reference
    # computation, or numbers of functions
    statistics: dict[str, Array]
    # (replicate, query, head + pair) Control variate of errors and their products, if a cell has one; pairs as in
    # `pairs_of`
    control: Array | None = None
    # (replicate,) True for replicates of functions with undefined numbers
    failed: NDArray[np.bool_] | None = None


NO_INDICES = np.full((1, len(GEOMETRIC_INDICES)), np.nan)
"""Diversity indices of members without subspaces."""


@singledispatch
def evaluated(choice: Record, cell: Cell, shared: SharedData) -> Members:
    """Return the estimates of all members at all queries in the replicates of the data, by type of record."""
    raise NotImplementedError(f"nothing computes {type(choice).__name__}")


def replicate_statistics(members: Members, target: Array, names: Sequence[str]) -> Array:
    """Return diversity indices and statistics of each replicate, (replicate, statistic)."""
    known, means, gram = dict(members.statistics), members.means, members.gram
    if target.size:
        known["direct_mse"] = mean_squares(means, gram, target)
        if gram is None and means.shape[1] > 2 and means.shape[2] > 1:
            known["query_correlation"] = correlations_over_queries(means).mean(axis=-1)
    n_indices = members.indices.shape[-1]
    found = np.empty((len(means), n_indices + len(names)))
    found[:, :n_indices] = members.indices
    for column, name in enumerate(names, n_indices):
        found[:, column] = known.get(name, np.nan)
    return found
