"""Ant colonies as the code of their authors has them, to judge the numbers that they print.

The models are those of Fokoué, Babbitt and Levental: parts I to III (arXiv 2603.20328, 2604.00038, 2604.09677), and
their repositories IsomorphismSim, IsomorphismSim_Part_II and IsomorphismSim_Part_III: facts are taken from these, no
code.
"""

import numpy as np
from numpy.typing import NDArray

from simstudy.attention.members import Array, Rows, quantities
from simstudy.data.addresses import Role, normals, uniforms
from simstudy.data.shared import SharedData
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.systems import published_colonies as settings
from simstudy.kernels.colonies import run_colonies, run_waves

# Index legend: r replicate, t step or wave, a ant, s site; j feature, i point, m stump; g generation.

_FLOOR = 0.01
"""Least pheromone in parts II and III."""
_N_TEST, _N_THRESHOLDS = 500, 50
_SITES = np.array([10.0, 7.0, 5.0, 4.0, 3.0])
_LAST = 6
_TILE = 128
"""Rows of random numbers begin at multiples of it."""


@quantities.register
def decide_for_a_site(instance: settings.PublishedColonyInstance, cell: Cell, shared: SharedData) -> Rows:
    """Correlations of n_heads ants after at most n_keys steps, and what their colony decides."""
    n_ants, n_sites, draws = cell.heads.n_heads, instance.sites, cell.data.n_keys * cell.heads.n_heads
    qualities = 10.0 - instance.gap * np.linspace(0.0, 1.0, n_sites)
    rates = np.array(
        [
            instance.exploration,
            instance.enthusiasm,
            qualities.mean(),
            instance.reinforcement,
            instance.evaporation,
            instance.quorum,
        ]
    )
    luck = uniforms(cell.data_id, Role.LEARNER, shared.first, shared.count, draws, 2)
    noise = cell.data.noise_sd * shared.normals(draws, 1)[:, 0]
    visits, means = np.zeros((2, shared.count, n_ants, n_sites))
    state = np.zeros((2, shared.count, n_sites))
    ended = np.zeros((shared.count, 2), np.int64)
    run_colonies(luck, noise, qualities, rates, visits, means, *state, np.zeros(n_sites), ended)
    signal = np.where(visits > 0, qualities, 0.0)
    kept = (visits > 0).sum(axis=2) > 1
    correlations = (_mean_correlation(each, kept) for each in (means, signal, means - signal))
    return zip(*correlations, ended[:, 0] == 0, ended[:, 1], strict=True)


def _mean_correlation(rows: Array, kept: NDArray[np.bool_]) -> Array:
    """Mean correlation over sites of all pairs of rows (r, a, s) that are kept (r, a); NaN if fewer than two are."""
    apart = (rows - rows.mean(axis=2, keepdims=True)) * kept[:, :, None]
    sizes = np.linalg.norm(apart, axis=2, keepdims=True)
    units = np.divide(apart, sizes, out=np.zeros_like(apart), where=sizes > 0.0)
    n = kept.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(((units.sum(axis=1) ** 2).sum(axis=1) - n) / (n * (n - 1.0)))


@quantities.register
def recruit(instance: settings.AcarInstance, cell: Cell, shared: SharedData) -> Rows:
    """What colonies of n_heads ants decide after n_keys waves, beside the bound of their authors."""
    n_ants, n_waves = cell.heads.n_heads, cell.data.n_keys
    qualities = np.array([10.0, 10.0 - 5.0 * instance.weakness])
    heuristic = (qualities / qualities.max()) ** instance.heuristic
    luck = uniforms(cell.data_id, Role.LEARNER, shared.first, shared.count, n_waves * n_ants, 1)[:, 0]
    each_ant = instance.observation == "ant"
    rates = np.array([instance.evaporation, instance.reinforcement, cell.data.noise_sd, 0.0 if each_ant else _FLOOR])
    pheromone = _waves(luck, shared.normals(n_waves, 2), qualities, heuristic, rates, each_ant)[0]
    correct = (pheromone[:, 0] >= pheromone[:, 1]).astype(float)
    first = heuristic[0] / heuristic.sum() - 0.5
    bounds = [-np.expm1(-instance.constant * g**2 * n_waves) for g in (instance.weakness, first)]
    return zip(correct, correct - bounds[0], correct - bounds[1], strict=True)


def _waves(
    luck: Array,
    noise: Array,
    qualities: Array,
    heuristic: Array,
    rates: Array,
    each_ant: bool = False,
    pheromone: Array | None = None,
) -> tuple[Array, Array]:
    """Pheromone (r, s) after waves, from 1 on by default, and the fitness of the last of them (r,)."""
    pheromone = np.ones((len(luck), len(qualities))) if pheromone is None else pheromone
    trail, visits, fitness = np.zeros_like(qualities), np.zeros_like(qualities), np.zeros(len(luck))
    run_waves(luck, noise, qualities, heuristic, rates, each_ant, pheromone, trail, visits, fitness)
    return pheromone, fitness


@quantities.register
def vote_and_recruit(instance: settings.BoostingAndAntsInstance, cell: Cell, shared: SharedData) -> Rows:
    """Accuracy of n_heads stumps trained on n_keys points by both votes, and of colonies beside them."""
    n, n_rounds, count = cell.data.n_keys, cell.heads.n_heads, shared.count
    points = shared.normals(n + _N_TEST, cell.data.n_features)
    labels = np.where(points[:, 0] + points[:, 1] * points[:, 2] + 0.5 * points[:, 2] ** 2 >= 0.0, 1.0, -1.0)
    given = labels[:, :n].copy()
    given[:, : round(n * instance.label_noise)] *= -1.0
    votes, weights = _boosted(points[:, :, :n], given, points[:, :, n:], n_rounds)
    # Weights recycled along the points give each vote of a point the same one, as n_heads divides their number.
    totals = votes.sum(axis=1), (weights[:, :, None] * votes).sum(axis=1)
    coded, weighted = ((np.sign(total) == labels[:, n:]).mean(axis=1) for total in totals)
    n_colonies, n_waves, n_ants = instance.colonies, 15, 8
    qualities = np.array([10.0, 9.0])
    address = cell.data_id, Role.LEARNER, shared.first, count, n_colonies * n_waves
    luck: Array = uniforms(*address, n_ants).reshape(-1, n_ants, n_colonies, n_waves)
    luck = np.ascontiguousarray(luck.transpose(0, 2, 3, 1)).reshape(-1, n_waves * n_ants)
    noise: Array = normals(cell.data_id, Role.NOISE, *address[2:], 2).reshape(-1, 2, n_colonies, n_waves)
    noise = np.ascontiguousarray(noise.transpose(0, 2, 1, 3)).reshape(-1, 2, n_waves)
    rates = np.array([0.1, 0.5, max(12.0 * instance.label_noise, 0.01), _FLOOR])
    pheromone = _waves(luck, noise, qualities, qualities / 10.0, rates)[0]
    ants = (pheromone[:, 0] >= pheromone[:, 1]).reshape(count, -1).mean(axis=1)
    return zip(coded, weighted, ants, ants - coded, ants - weighted, strict=True)


def _boosted(points: Array, labels: Array, at: Array, n_rounds: int) -> tuple[Array, Array]:
    """Votes (r, m, i) of stumps at points (r, j, i), and their weights (r, m), from training points and labels."""
    count, _, n = points.shape
    order = points.argsort(axis=2)
    ordered = np.take_along_axis(points, order, axis=2)
    place = np.linspace(0.0, n - 1.0, min(n, _N_THRESHOLDS))
    below = np.minimum(place.astype(int), n - 1)
    thresholds = ordered[:, :, below] + (place - below) * (
        ordered[:, :, np.minimum(below + 1, n - 1)] - ordered[:, :, below]
    )
    rows = np.arange(count)
    shares, votes, weights = np.full((count, n), 1.0 / n), np.empty((count, n_rounds, at.shape[2])), []
    for m in range(n_rounds):
        signed = np.take_along_axis((shares * labels)[:, None], order, axis=2).cumsum(axis=2)[:, :, below]
        # Share of wrong labels if what is below a threshold is called 1; or else −1.
        wrong = (0.5 * (1.0 + signed[:, :1, -1:]) - signed).reshape(count, -1)
        best = np.abs(wrong - 0.5).argmax(axis=1)
        error, (j, k) = wrong[rows, best], np.divmod(best, len(place))
        way = np.where(error <= 0.5, 1.0, -1.0)[:, None]
        error = np.clip(np.where(error <= 0.5, error, 1.0 - error), 1e-10, 1.0)
        weights.append(0.5 * np.log((1.0 - error) / error))
        cut = thresholds[rows, j, k][:, None]
        votes[:, m] = way * np.where(at[rows, j] <= cut, 1.0, -1.0)
        shares *= np.exp(-weights[-1][:, None] * labels * way * np.where(points[rows, j] <= cut, 1.0, -1.0))
        shares /= shares.sum(axis=1, keepdims=True)
    return votes, np.stack(weights, axis=1)


@quantities.register
def pass_on(instance: settings.GaclInstance, cell: Cell, shared: SharedData) -> Rows:
    """Fitness of two runs of generations of ants: its size at the end, and how the runs differ."""
    n_waves, n_sites, draws = instance.waves, len(_SITES), instance.waves * instance.ants
    noise = shared.normals(instance.generations * n_waves, 2 * n_sites).reshape(2 * shared.count, n_sites, -1)
    rates = np.array([instance.evaporation, instance.reinforcement, cell.data.noise_sd, _FLOOR])
    pheromone, fitness = np.ones((len(noise), n_sites)), np.zeros((len(noise), instance.generations))
    length = -(-draws // _TILE) * _TILE
    rows = instance.generations * length
    every = uniforms(cell.data_id, Role.LEARNER, shared.first, shared.count, rows, 2).reshape(len(noise), rows)
    for g in range(instance.generations):
        luck = np.ascontiguousarray(every[:, g * length : g * length + draws])
        now = np.ascontiguousarray(noise[:, :, g * n_waves : (g + 1) * n_waves])
        fitness[:, g] = _waves(luck, now, _SITES, _SITES / _SITES.max(), rates, pheromone=pheromone)[1]
        gain = fitness[:, g] - fitness[:, max(0, g - 5) : g + 1].mean(axis=1)
        kept = 1.0 - instance.generation_rate + instance.reinforcement * gain / pheromone.sum(axis=1)
        pheromone = np.maximum(pheromone * kept[:, None], _FLOOR)
    runs: Array = fitness.reshape(shared.count, 2, -1)
    best = runs.max(axis=2, keepdims=True)
    span = best - runs.min(axis=2, keepdims=True)
    scaled = np.divide(best - runs, span, out=np.full_like(runs, 0.5), where=span > 0.0)
    variances = (((both[:, 0] - both[:, 1]) ** 2).mean(axis=1) / 2.0 for both in (runs, scaled))
    return zip(*variances, runs[:, :, -_LAST:].mean(axis=(1, 2)), strict=True)
