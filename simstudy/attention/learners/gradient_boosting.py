"""Boosted trees, members of an ensemble that are not exchangeable: each is fitted to what those before it leave."""

from __future__ import annotations

import numpy as np

from simstudy.attention.members import NO_INDICES, Array, Members, prepared
from simstudy.data.addresses import Role, uniforms
from simstudy.data.heads import query_points
from simstudy.data.shared import SharedData
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.ensembles import GradientBoostingLearner


class GradientBoosting:
    """Stochastic gradient boosting of the squared error."""

    def __init__(self, learner: GradientBoostingLearner, cell: Cell) -> None:
        self.learner, self.cell = learner, cell
        self._points = query_points(cell)

    def evaluate(self, shared: SharedData) -> Members:
        """Return n_heads times what every tree adds, at all queries in the replicates of the data."""
        cell = self.cell
        keys, values = shared.keys(cell.data.n_keys), shared.values(cell)
        seeds = uniforms(cell.data_id, Role.LEARNER, shared.first, shared.count, 1, 1)[:, 0, 0]
        added = [self._trees(x.T, y, int(seed * 2**32)) for x, y, seed in zip(keys, values, seeds, strict=True)]
        return Members(cell.heads.n_heads * np.stack(added), None, NO_INDICES, {})

    def _trees(self, x: Array, y: Array, seed: int) -> Array:
        """What every tree adds to the prediction, the first with the mean of outcomes: (query, tree)."""
        from sklearn import config_context
        from sklearn.ensemble import GradientBoostingRegressor

        learner = self.learner
        boosted = GradientBoostingRegressor(
            n_estimators=self.cell.heads.n_heads,
            learning_rate=learner.shrinkage,
            max_depth=learner.depth,
            subsample=learner.subsample,
            random_state=seed,
        )
        with config_context(assume_finite=True, skip_parameter_validation=True):
            boosted.fit(x, y)
            return np.diff(np.stack(list(boosted.staged_predict(self._points)), axis=1), prepend=0.0)


prepared.register(GradientBoostingLearner, GradientBoosting)
