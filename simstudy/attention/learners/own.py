"""Members of an ensemble by a function of the user's own."""

import numpy as np

from simstudy.attention.members import NO_INDICES, Members, evaluated
from simstudy.data.addresses import Role, uniforms
from simstudy.data.heads import query_points
from simstudy.data.shared import SharedData
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.ensembles import OwnLearner


@evaluated.register
def own_members(learner: OwnLearner, cell: Cell, shared: SharedData) -> Members:
    """Return whatever the function makes of keys, values and random numbers that it is handed."""
    n_keys, n_heads, points = cell.data.n_keys, cell.heads.n_heads, query_points(cell)
    means = learner.of(
        (shared.count, len(points), n_heads),
        keys=np.moveaxis(shared.keys(n_keys), 1, 0),
        values=shared.values(cell),
        queries=points.T,
        uniforms=uniforms(cell.data_id, Role.LEARNER, shared.first, shared.count, n_keys, n_heads),
    )
    return Members(means, None, NO_INDICES, {})
