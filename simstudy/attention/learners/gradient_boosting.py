"""Boosted trees, members of an ensemble that are not exchangeable: each is fitted to what those before it leave."""

import numpy as np

from simstudy.attention.members import NO_INDICES, Members, evaluated
from simstudy.data.addresses import Role, uniforms
from simstudy.data.heads import query_points
from simstudy.data.shared import SharedData
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.choices import GradientBoostingLearner


@evaluated.register
def boosted(learner: GradientBoostingLearner, cell: Cell, shared: SharedData) -> Members:
    """Return n_heads times what every tree adds to the prediction, the first with the mean of outcomes."""
    from sklearn import config_context
    from sklearn.ensemble import GradientBoostingRegressor

    keys, values, points = shared.keys(cell.data.n_keys), shared.values(cell), query_points(cell)
    seeds = uniforms(cell.data_id, Role.LEARNER, shared.first, shared.count, 1, 1)[:, 0, 0]
    added = []
    with config_context(assume_finite=True, skip_parameter_validation=True):
        for x, y, seed in zip(keys, values, seeds, strict=True):
            trees = GradientBoostingRegressor(
                n_estimators=cell.heads.n_heads,
                learning_rate=learner.shrinkage,
                max_depth=learner.depth,
                subsample=learner.subsample,
                random_state=int(seed * 2**32),
            ).fit(x.T, y)
            added.append(np.diff(np.stack(list(trees.staged_predict(points)), axis=1), prepend=0.0))
    return Members(cell.heads.n_heads * np.stack(added), None, NO_INDICES, {})
