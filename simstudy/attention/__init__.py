"""The members of an ensemble: attention heads with given or trained projections, trees of a forest, ants.

`learners` says how to add a kind of learner, `systems` a random instance, `mechanism` a piece of attention.
"""

from __future__ import annotations

# What these rooms hold is found by the type of a record.
from simstudy.attention import learners, nadaraya_watson, systems
from simstudy.attention.members import Learner, Members, prepared, replicate_statistics
from simstudy.design.settings.cell import Cell

__all__ = ["Learner", "Members", "learner_of", "learners", "nadaraya_watson", "replicate_statistics", "systems"]


def learner_of(cell: Cell) -> Learner:
    """Return the learner of a cell, with everything computed that its replicates have in common."""
    return prepared(cell.estimator.learner if cell.instance is None else cell.instance, cell)
