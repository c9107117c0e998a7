"""The members of an ensemble: attention heads with given or trained projections, trees of a forest, ants.

Adding a kind of learner is one module here and one entry below.
"""

from __future__ import annotations

from collections.abc import Callable

from simstudy.attention.ant_colony import AntColony
from simstudy.attention.members import Learner, Members, replicate_statistics
from simstudy.attention.nadaraya_watson import NadarayaWatson
from simstudy.attention.random_forest import RandomForest
from simstudy.attention.systems import MeasuredInstance
from simstudy.attention.trained import TrainedHeads
from simstudy.design.settings.cell import Cell

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
