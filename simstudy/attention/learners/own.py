"""Members of an ensemble by a function of the user's own."""

from __future__ import annotations

import numpy as np

from simstudy.attention.members import NO_INDICES, Members, prepared
from simstudy.data.addresses import Role, uniforms
from simstudy.data.heads import query_points
from simstudy.data.shared import SharedData
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.ensembles import OwnLearner


class OwnMembers:
    """Whatever the function makes of keys, values and random numbers that it is handed."""

    def __init__(self, learner: OwnLearner, cell: Cell) -> None:
        self.learner, self.cell = learner, cell
        self._points = query_points(cell)

    def evaluate(self, shared: SharedData) -> Members:
        """Return the estimates of all members at all queries in the replicates of the data."""
        n_keys, n_heads = self.cell.data.n_keys, self.cell.heads.n_heads
        means = self.learner.of(
            (shared.count, len(self._points), n_heads),
            keys=np.moveaxis(shared.keys(n_keys), 1, 0),
            values=shared.values(self.cell),
            queries=self._points.T,
            uniforms=uniforms(self.cell.data_id, Role.LEARNER, shared.first, shared.count, n_keys, n_heads),
        )
        return Members(means, None, NO_INDICES, {})


prepared.register(OwnLearner, OwnMembers)
