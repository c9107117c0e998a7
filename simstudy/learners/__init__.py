"""The members of an ensemble: attention heads with given or trained projections, trees of a forest, ants.

Import NumPy, scikit-learn, attention, cells, combinations, datasets, heads, geometry, instances, kernels, mechanisms,
moments, regression, shared_data and streams.  Adding a kind of learner is one module here and one entry below.
"""

from __future__ import annotations

from collections.abc import Callable

from simstudy.cells import Cell
from simstudy.learners.ant_colony import AntColony
from simstudy.learners.base import Learner, Members, replicate_statistics
from simstudy.learners.instance import MeasuredInstance
from simstudy.learners.nadaraya_watson import NadarayaWatson
from simstudy.learners.random_forest import RandomForest
from simstudy.learners.trained import TrainedHeads

__all__ = ["Learner", "Members", "learner_of", "replicate_statistics"]

_KINDS: dict[str, Callable[[Cell], Learner]] = {
    "nadaraya_watson": NadarayaWatson,
    "trained": TrainedHeads,
    "random_forest": RandomForest,
    "ant_colony": AntColony,
}


def learner_of(cell: Cell) -> Learner:
    """Return the learner of a cell, with everything computed that its replicates have in common."""
    if cell.measures_instance:
        return MeasuredInstance(cell)
    return _KINDS[cell.estimator.learner.kind](cell)
