"""The members of an ensemble: Nadaraya–Watson heads.

Import NumPy, cells, datasets, heads, geometry, kernels, regression and shared_data.  Adding a kind of learner is one
module here and one entry below.
"""

from __future__ import annotations

from simstudy.cells import Cell
from simstudy.learners.base import Learner, Members, replicate_statistics
from simstudy.learners.nadaraya_watson import NadarayaWatson

__all__ = ["Learner", "Members", "learner_of", "replicate_statistics"]


def learner_of(cell: Cell) -> Learner:
    """Return the learner of a cell, with everything computed that its replicates have in common."""
    return NadarayaWatson(cell)
