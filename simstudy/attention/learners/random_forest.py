"""Trees of a random forest, for the law that all ensembles share."""

from __future__ import annotations

import numpy as np

from simstudy.attention.members import NO_INDICES, Members, prepared
from simstudy.data.addresses import Role, uniforms
from simstudy.data.heads import query_points
from simstudy.data.shared import SharedData
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.ensembles import RandomForestLearner


class RandomForest:
    """Regression trees, each on its own bootstrap sample, splitting on the best of a few random features."""

    def __init__(self, learner: RandomForestLearner, cell: Cell) -> None:
        self.learner, self.cell = learner, cell
        self._points = query_points(cell)

    def evaluate(self, shared: SharedData) -> Members:
        """Return the prediction of every tree at all queries in the replicates of the data."""
        cell = self.cell
        keys, values = shared.keys(cell.data.n_keys), shared.values(cell)
        seeds = uniforms(cell.data_id, Role.LEARNER, shared.first, shared.count, 1, 1)[:, 0, 0]
        means = [self._trees(x.T, y, int(seed * 2**32)) for x, y, seed in zip(keys, values, seeds, strict=True)]
        return Members(np.stack(means), None, NO_INDICES, {})

    def _trees(self, x: np.ndarray, y: np.ndarray, seed: int) -> np.ndarray:
        """Predictions (query, tree) of one forest."""
        from sklearn import config_context
        from sklearn.ensemble import RandomForestRegressor

        learner, points = self.learner, self._points.astype(np.float32)
        with config_context(assume_finite=True, skip_parameter_validation=True):
            forest = RandomForestRegressor(
                self.cell.heads.n_heads, max_features=learner.max_features, min_samples_leaf=learner.min_leaf,
                random_state=seed,
            ).fit(x, y)  # fmt: skip
            return np.stack([tree.tree_.predict(points)[:, 0] for tree in forest.estimators_], axis=1)


prepared.register(RandomForestLearner, RandomForest)
