"""Trees of a random forest, for the law that all ensembles share."""

import numpy as np

from simstudy.attention.members import NO_INDICES, Members, evaluated
from simstudy.data.addresses import Role, uniforms
from simstudy.data.heads import query_points
from simstudy.data.shared import SharedData
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.choices import RandomForestLearner


@evaluated.register
def forest(learner: RandomForestLearner, cell: Cell, shared: SharedData) -> Members:
    """Return the predictions of trees, each on its own bootstrap sample, splitting on the best of random features."""
    from sklearn import config_context
    from sklearn.ensemble import RandomForestRegressor

    keys, values, points = shared.keys(cell.data.n_keys), shared.values(cell), query_points(cell).astype(np.float32)
    seeds = uniforms(cell.data_id, Role.LEARNER, shared.first, shared.count, 1, 1)[:, 0, 0]
    means = []
    with config_context(assume_finite=True, skip_parameter_validation=True):
        for x, y, seed in zip(keys, values, seeds, strict=True):
            trees = RandomForestRegressor(
                cell.heads.n_heads,
                max_features=learner.max_features,
                min_samples_leaf=learner.min_leaf,
                random_state=int(seed * 2**32),
            ).fit(x.T, y)
            means.append(np.stack([tree.tree_.predict(points)[:, 0] for tree in trees.estimators_], axis=1))
    return Members(np.stack(means), None, NO_INDICES, {})
