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
        means = np.empty((shared.count, len(self._points), cell.heads.n_heads))
        for r in range(shared.count):
            means[r] = self._trees(keys[r].T, values[r], int(seeds[r] * 2**32))
        return Members(means, None, NO_INDICES, {})

    def _trees(self, x: np.ndarray, y: np.ndarray, seed: int) -> np.ndarray:
        """Predictions (query, tree) of one forest, those of scikit-learn's of this seed.

        Tree by tree without what that does around each, which takes longer than the trees of few pairs.
        """
        from sklearn import config_context
        from sklearn.tree import DecisionTreeRegressor

        x, points = x.astype(np.float32), self._points.astype(np.float32)
        luck, found = np.random.RandomState(seed), np.empty((len(points), self.cell.heads.n_heads))
        with config_context(assume_finite=True, skip_parameter_validation=True):
            for tree in range(found.shape[1]):
                own = luck.randint(np.iinfo(np.int32).max)
                drawn = np.random.RandomState(own).randint(0, len(y), len(y), dtype=np.int32)
                grown = DecisionTreeRegressor(
                    max_features=self.learner.max_features, min_samples_leaf=self.learner.min_leaf, random_state=own
                ).fit(x, y, sample_weight=np.bincount(drawn, minlength=len(y)).astype(float), check_input=False)
                found[:, tree] = grown.tree_.predict(points)[:, 0]
        return found


prepared.register(RandomForestLearner, RandomForest)
