"""Ants that estimate the qualities of sites and recruit one another, as members of an ensemble.

The model is that of Fokoué (arXiv 2603.20328).  In each step, every ant visits a site: a uniformly random one if it
explores, else one with probability in proportion to pheromone.  It observes the quality with noise and updates its mean
for the site.  A mean above the average quality of sites recruits; recruitment adds pheromone.  The colony stops when
the recruitment to a site exceeds the quorum.  The cost of exploration is measured by the regret, as for bandits.
"""

import numpy as np

from simstudy.attention.members import NO_INDICES, Members, evaluated
from simstudy.data.addresses import Role, normals, uniforms
from simstudy.data.regression import at_queries
from simstudy.data.shared import SharedData
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.choices import AntColonyLearner

# Index legend: r replicate (colony), t step, a ant, k site.

_MEMORY = 0.8
"""Share of recruitment that remains after a step."""


@evaluated.register
def ants(learner: AntColonyLearner, cell: Cell, shared: SharedData) -> Members:
    """Return the mean observation of every ant at each site when its colony stops; 0 at sites without visits."""
    n_ants, qualities = cell.heads.n_heads, at_queries(cell)
    n_sites, quorum = len(qualities), learner.quorum * (n_ants if learner.per_ant else 1)
    address = cell.data_id, Role.LEARNER, shared.first, shared.count, cell.data.n_keys
    luck = uniforms(*address, 2 * n_ants)
    noise = cell.data.noise_sd * normals(cell.data_id, Role.NOISE, *address[2:], n_ants)
    visits, means = np.zeros((2, shared.count, n_ants, n_sites))
    pheromone, recruitment = np.ones((shared.count, n_sites)), np.zeros((shared.count, n_sites))
    running = np.ones(shared.count, bool)
    for t in range(cell.data.n_keys):
        if not running.any():
            break
        explores, choices = luck[:, :n_ants, t], luck[:, n_ants:, t]
        trail = np.cumsum(pheromone, axis=1) / pheromone.sum(axis=1, keepdims=True)
        followed = (choices[:, :, None] > trail[:, None, :-1]).sum(axis=2)
        sites = np.where(explores < learner.exploration, (choices * n_sites).astype(int), followed)
        seen = running[:, None, None] * (sites[:, :, None] == np.arange(n_sites))
        visits += seen
        observed = qualities[sites] + noise[:, :, t]
        means += seen * (observed[:, :, None] - means) / np.maximum(visits, 1)
        excess = np.maximum(means - qualities.mean(), 0.0)
        recruitment = recruitment + learner.enthusiasm * (seen * excess).sum(axis=1)
        pheromone = (1 - learner.evaporation) * pheromone + learner.reinforcement * recruitment
        running &= recruitment.max(axis=1) <= quorum
        recruitment = _MEMORY * recruitment
    visited = visits.sum(axis=1)
    regret = qualities.max() - visited @ qualities / visited.sum(axis=1)
    return Members(means.swapaxes(1, 2), None, NO_INDICES, {"regret": regret})
