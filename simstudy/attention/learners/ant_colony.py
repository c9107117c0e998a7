"""Ants that judge the qualities of sites and recruit one another, for the law that all ensembles share.

The model is that of Fokoué (arXiv 2603.20328).  In a step every ant visits a site: any with the same probability if it
explores, else one in proportion to pheromone.  It observes the quality with noise and keeps the mean of what it saw
there.  A mean above the average quality of sites recruits; recruitment lays pheromone, and the colony stops when the
recruitment to a site exceeds the quorum.  What exploring costs is regret, the measure of bandits.
"""

from __future__ import annotations

import numpy as np

from simstudy.attention.members import NO_INDICES, Array, Members, evaluated
from simstudy.data.addresses import Role, normals, uniforms
from simstudy.data.regression import at_queries
from simstudy.data.shared import SharedData
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.ensembles import AntColonyLearner

# Index legend: r replicate (colony), t step, a ant, k site.

_MEMORY = 0.8
"""Share of recruitment that is left after a step."""


@evaluated.register
def ants(learner: AntColonyLearner, cell: Cell, shared: SharedData) -> Members:
    """Return the mean observation of every ant at all sites when its colony stops; 0 at a site that it never saw."""
    n_ants = cell.heads.n_heads
    address = cell.data_id, Role.LEARNER, shared.first, shared.count, cell.data.n_keys
    luck = uniforms(*address, 2 * n_ants)
    noise = cell.data.noise_sd * normals(cell.data_id, Role.NOISE, *address[2:], n_ants)
    colony = _Colony(learner, at_queries(cell), n_ants, shared.count)
    for t in range(cell.data.n_keys):
        if not colony.running.any():
            break
        colony.step(luck[:, :n_ants, t], luck[:, n_ants:, t], noise[:, :, t])
    return Members(colony.means.swapaxes(1, 2), None, NO_INDICES, {"regret": colony.regret})


class _Colony:
    """State of many colonies."""

    def __init__(self, settings: AntColonyLearner, qualities: Array, n_ants: int, count: int) -> None:
        self.settings, self.qualities = settings, qualities
        self.quorum = self.settings.quorum * (n_ants if self.settings.per_ant else 1)
        shape = count, n_ants, len(self.qualities)
        self.visits, self.means = np.zeros(shape), np.zeros(shape)
        self.pheromone, self.recruitment = np.ones((count, shape[2])), np.zeros((count, shape[2]))
        self.running = np.ones(count, bool)

    @property
    def regret(self) -> Array:
        """Quality of the best site less that of the sites visited, averaged over ants and steps: (r,)."""
        visits = self.visits.sum(axis=1)
        return np.asarray(self.qualities.max() - visits @ self.qualities / visits.sum(axis=1))

    def step(self, explores: Array, choices: Array, noise: Array) -> None:
        """Let every ant (r, a) of the colonies that still run visit one site."""
        settings, n_sites = self.settings, len(self.qualities)
        trail = np.cumsum(self.pheromone, axis=1) / self.pheromone.sum(axis=1, keepdims=True)
        followed = (choices[:, :, None] > trail[:, None, :-1]).sum(axis=2)
        sites = np.where(explores < settings.exploration, (choices * n_sites).astype(int), followed)
        seen = self.running[:, None, None] * (sites[:, :, None] == np.arange(n_sites))
        self.visits += seen
        observed = self.qualities[sites] + noise
        self.means += seen * (observed[:, :, None] - self.means) / np.maximum(self.visits, 1)
        excess = np.maximum(self.means - self.qualities.mean(), 0.0)
        gained = settings.enthusiasm * (seen * excess).sum(axis=1)
        recruitment = self.recruitment + gained
        self.pheromone = (1 - settings.evaporation) * self.pheromone + settings.reinforcement * recruitment
        self.running &= recruitment.max(axis=1) <= self.quorum
        self.recruitment = _MEMORY * recruitment
