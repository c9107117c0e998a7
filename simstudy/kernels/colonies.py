"""Colonies of ants that choose sites one after the other: loops whose steps depend on all former ones."""

from __future__ import annotations

import numpy as np

from simstudy.kernels.jit import device_function, exact_kernel

# Index legend: r replicate, t step, a ant, s site; luck and noise of the ants of a step lie side by side.

_MEMORY = 0.8
"""Share of recruitment that is left after a step."""


@device_function
def _followed(choice, trail):
    # First site up to which the share of the trail, a cumulative sum, is at least the choice.
    wanted, s = choice * trail[-1], 0
    while s < trail.size - 1 and wanted > trail[s]:
        s += 1
    return s


@device_function
def _largest(x):
    best = 0
    for s in range(1, x.size):
        if x[s] > x[best]:
            best = s
    return best


@exact_kernel
def run_colonies(luck, noise, qualities, rates, visits, means, pheromone, recruitment, trail, ended):
    """Let ants visit sites until their recruitment to one exceeds the quorum, or all steps are done: ``ended`` (r, 2).

    Of the uniforms ``luck`` (r, 2, t·a) the first decides whether an ant explores, the second where it goes.  Rates are
    the probability of exploring, recruitment for a unit of quality above the mean, the mean quality, pheromone for a
    unit of recruitment, share of pheromone lost in a step, and quorum.  What is written to begins at 0.
    """
    n_ants, n_sites = means.shape[1:]
    for r in range(means.shape[0]):
        for t in range(noise.shape[1] // n_ants):
            total = 0.0
            for s in range(n_sites):
                total += pheromone[r, s]
                trail[s] = total
            for a in range(n_ants):
                i = t * n_ants + a
                if luck[r, 0, i] < rates[0] or total == 0.0:
                    site = int(luck[r, 1, i] * n_sites)
                else:
                    site = _followed(luck[r, 1, i], trail)
                visits[r, a, site] += 1.0
                means[r, a, site] += (qualities[site] + noise[r, i] - means[r, a, site]) / visits[r, a, site]
                recruitment[r, site] += rates[1] * max(means[r, a, site] - rates[2], 0.0)
            for s in range(n_sites):
                pheromone[r, s] = (1.0 - rates[4]) * pheromone[r, s] + rates[3] * recruitment[r, s]
            ended[r, 0] = _largest(recruitment[r])
            ended[r, 1] = t + 1
            if recruitment[r, ended[r, 0]] > rates[5]:
                break
            for s in range(n_sites):
                recruitment[r, s] *= _MEMORY


@exact_kernel
def run_waves(luck, noise, qualities, heuristic, rates, each_ant, pheromone, trail, visits, fitness):
    """Let waves of ants follow pheromone and heuristic to sites, and lay pheromone by what they observe.

    Rates are the share of pheromone lost in a wave, pheromone for a unit of observed quality, standard deviation of the
    observation error, and the least pheromone.  Without ``each_ant`` a wave observes a site once, at least as 0.  The
    ``fitness`` (r,) is the mean quality that the ants of the last wave observe.
    """
    n_waves = noise.shape[2]
    n_ants = luck.shape[1] // n_waves
    for r in range(luck.shape[0]):
        for t in range(n_waves):
            total = 0.0
            for s in range(visits.size):
                visits[s] = 0.0
                total += pheromone[r, s] * heuristic[s]
                trail[s] = total
            for a in range(n_ants):
                visits[_followed(luck[r, t * n_ants + a], trail)] += 1.0
            fitness[r] = 0.0
            for s in range(visits.size):
                seen = visits[s] * qualities[s]
                if each_ant:
                    seen += np.sqrt(visits[s]) * rates[2] * noise[r, s, t]
                else:
                    seen = max(seen + visits[s] * rates[2] * noise[r, s, t], 0.0)
                pheromone[r, s] = max((1.0 - rates[0]) * pheromone[r, s] + rates[1] * seen, rates[3])
                fitness[r] += seen / n_ants
