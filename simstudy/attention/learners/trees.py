"""Trees of scikit-learn as members of an ensemble: random forests and gradient boosting.

Boosted trees are not exchangeable: each is fitted to the residuals of those before it.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from simstudy.attention.members import NO_INDICES, Members, evaluated
from simstudy.data.addresses import Role, uniforms
from simstudy.data.heads import query_points
from simstudy.data.shared import SharedData
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.choices import GradientBoostingLearner, RandomForestLearner


def _fits(kind: str, cell: Cell, shared: SharedData, **settings: Any) -> Iterator[Any]:
    """Yield the fitted trees of each replicate, each with a separate seed."""
    from sklearn import config_context, ensemble

    keys, values = shared.keys(cell.data.n_keys), shared.values(cell)
    seeds = uniforms(cell.data_id, Role.LEARNER, shared.first, shared.count, 1, 1)[:, 0, 0]
    with config_context(assume_finite=True, skip_parameter_validation=True):
        for x, y, seed in zip(keys, values, seeds, strict=True):
            trees = getattr(ensemble, kind)(n_estimators=cell.heads.n_heads, random_state=int(seed * 2**32), **settings)
            yield trees.fit(x.T, y)


@evaluated.register
def forest(learner: RandomForestLearner, cell: Cell, shared: SharedData) -> Members:
    """Return the predictions of trees, each fitted to a bootstrap sample with splits among random features."""
    settings = {"max_features": learner.max_features, "min_samples_leaf": learner.min_leaf}
    fits, points = _fits("RandomForestRegressor", cell, shared, **settings), query_points(cell).astype(np.float32)
    means = [np.stack([tree.tree_.predict(points)[:, 0] for tree in each.estimators_], axis=1) for each in fits]
    return Members(np.stack(means), None, NO_INDICES, {})


@evaluated.register
def boosted(learner: GradientBoostingLearner, cell: Cell, shared: SharedData) -> Members:
    """Return n_heads times the increment of the prediction by each tree; that of the first includes the mean."""
    settings = {"learning_rate": learner.shrinkage, "max_depth": learner.depth, "subsample": learner.subsample}
    fits, points = _fits("GradientBoostingRegressor", cell, shared, **settings), query_points(cell)
    added = [np.diff(np.stack(list(each.staged_predict(points)), axis=1), prepend=0.0) for each in fits]
    return Members(cell.heads.n_heads * np.stack(added), None, NO_INDICES, {})
