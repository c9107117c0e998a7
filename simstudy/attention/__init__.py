"""Members of an ensemble: attention heads, members of `learners`, and functions of a study."""

# Imported so that their functions are registered by the type of a record.
from simstudy.attention import functions, learners, nadaraya_watson
from simstudy.attention.members import Members, evaluated, replicate_statistics
from simstudy.data.shared import SharedData
from simstudy.design.settings.cell import Cell

__all__ = ["Members", "functions", "learners", "members_of", "nadaraya_watson", "replicate_statistics"]


def members_of(cell: Cell, shared: SharedData) -> Members:
    """Return the estimates of the members of a cell in the replicates of the data."""
    return evaluated(cell.estimator.learner if cell.functions is None else cell.functions, cell, shared)
