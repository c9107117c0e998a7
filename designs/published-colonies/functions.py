"""Ant colonies as the code of their authors has them, to judge the numbers that they print.

The models are those of Fokoué, Babbitt and Levental: parts I to III (arXiv 2603.20328, 2604.00038, 2604.09677), and
their repositories IsomorphismSim, IsomorphismSim_Part_II and IsomorphismSim_Part_III: facts are taken from these, no
code.  Index legend: r replicate, t step or wave, a ant, s site; g generation.
"""

import math

import numpy as np
from numba import njit
from scipy import integrate, stats

FLOOR = 0.01  # least pheromone in parts II and III
SITES = np.array([10.0, 7.0, 5.0, 4.0, 3.0])


# Compiled, as each ant follows all former ones: interpreted, this loop takes 80 times as long and that of waves 15.
@njit(nogil=True)
def run_colony(rng, visits, means, qualities, n_steps, noise_sd, exploration, reinforcement, quorum):
    """Let ants visit sites until recruitment exceeds the quorum; visits and means (a, s) begin at 0."""
    n_ants, n_sites = means.shape
    pheromone, recruitment, level = np.zeros(n_sites), np.zeros(n_sites), qualities.mean()
    for _ in range(n_steps):
        trail = np.cumsum(pheromone)
        for a in range(n_ants):
            if rng.random() < exploration or trail[-1] == 0.0:
                site = int(rng.random() * n_sites)
            else:
                site = min(np.searchsorted(trail, rng.random() * trail[-1]), n_sites - 1)
            visits[a, site] += 1.0
            seen = qualities[site] + noise_sd * rng.standard_normal()
            means[a, site] += (seen - means[a, site]) / visits[a, site]
            recruitment[site] += 0.2 * max(means[a, site] - level, 0.0)
        pheromone = 0.95 * pheromone + reinforcement * recruitment
        if recruitment.max() > quorum:
            return
        recruitment *= 0.8


def colony(draw, sites, gap, exploration, n_ants=50, n_steps=100, noise_sd=2.0, reinforcement=0.1, quorum=20.0):
    """Estimates of ants (r, a, s), 0 for a site never seen, and the same without noise."""
    qualities = 10.0 - gap * np.linspace(0.0, 1.0, sites)
    visits, means = np.zeros((2, draw.count, n_ants, sites))
    for r, rng in enumerate(draw.generators()):
        run_colony(rng, visits[r], means[r], qualities, n_steps, noise_sd, exploration, reinforcement, quorum)
    seen = visits > 0
    return {"estimates": means, "seen": seen, "signal": np.where(seen, qualities, 0.0)}


def correlate(estimates, seen, signal):
    """Correlations over sites of ants' estimates, and of their errors."""
    kept = seen.sum(axis=2) > 1
    return {
        "site_correlation": mean_correlation(estimates, kept),
        "error_correlation": mean_correlation(estimates - signal, kept),
    }


def mean_correlation(rows, kept):
    """Mean correlation over sites of all pairs of rows (r, a, s) that are kept (r, a); NaN if fewer than two are."""
    apart = (rows - rows.mean(axis=2, keepdims=True)) * kept[:, :, None]
    sizes = np.linalg.norm(apart, axis=2, keepdims=True)
    units = np.divide(apart, sizes, out=np.zeros_like(apart), where=sizes > 0.0)
    n = kept.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return ((units.sum(axis=1) ** 2).sum(axis=1) - n) / (n * (n - 1.0))


@njit(nogil=True)
def run_waves(rng, pheromone, qualities, heuristic, n_waves, n_ants, noise_sd, evaporation, each_ant):
    """Let waves of ants follow pheromone (s) and heuristic to sites, and lay pheromone by what they observe.

    Without ``each_ant`` a wave observes a site once, at least as 0, and pheromone has a floor.  Returned is the mean
    quality that the ants of the last wave observe.
    """
    for _ in range(n_waves):
        trail = np.cumsum(pheromone * heuristic)
        left, total, fitness = n_ants, trail[-1], 0.0
        for s in range(trail.size):  # ants of a wave choose independently: their numbers are multinomial
            share = (trail[s] - (trail[s - 1] if s else 0.0)) / total if total > 0.0 else 1.0
            visits = left if s == trail.size - 1 else (rng.binomial(left, min(share, 1.0)) if left else 0)
            left, total = left - visits, total - share * total
            noise = noise_sd * rng.standard_normal()
            seen = visits * qualities[s] + (math.sqrt(visits) if each_ant else visits) * noise
            seen = seen if each_ant else max(seen, 0.0)
            pheromone[s] = max((1.0 - evaporation) * pheromone[s] + 0.5 * seen, 0.0 if each_ant else FLOOR)
            fitness += seen / n_ants
    return fitness


def recruit(draw, weakness, n_waves, observation="wave", n_ants=5, noise_sd=3.0, evaporation=0.02, power=0.5):
    """Whether colonies choose the better of two sites after waves of ants (ACAR): qualities 10 and 10 - 5 weakness.

    ``observation`` is "wave" as coded, one error for all ants at a site, or "ant" as described, one for each.
    """
    qualities = np.array([10.0, 10.0 - 5.0 * weakness])
    heuristic, correct = (qualities / 10.0) ** power, []
    for rng in draw.generators():
        pheromone = np.ones(2)
        run_waves(rng, pheromone, qualities, heuristic, n_waves, n_ants, noise_sd, evaporation, observation == "ant")
        correct.append(pheromone[0] >= pheromone[1])
    return {"correct": np.array(correct, float)}


def bounded(correct, weakness, n_waves, constant=0.5):
    """Share of right decisions, and that minus the bound 1 - exp(-c γ² T)."""
    return {"acar_share": correct, "acar_bound_excess": correct + math.expm1(-constant * weakness**2 * n_waves)}


def first_wave(weakness, n_ants=5, noise_sd=3.0, power=0.5):
    """Exact share of right decisions after one wave as coded: P(v max(a, 0) ≥ (n - v) max(b, 0)).

    a and b are the observations of two sites, v the ants at the first: binomial.
    """
    worse = 10.0 - 5.0 * weakness
    one, other = stats.norm(10.0, noise_sd), stats.norm(worse, noise_sd)
    choice = stats.binom(n_ants, 10.0**power / (10.0**power + worse**power))
    total = other.cdf(0.0) + choice.pmf(n_ants) * other.sf(0.0)
    for v in range(1, n_ants):
        wins = lambda b, v=v: other.pdf(b) * one.sf(b * (n_ants - v) / v)  # noqa: E731
        total += choice.pmf(v) * integrate.quad(wins, 0.0, worse + 9.0 * noise_sd, epsabs=1e-10)[0]
    return {"acar_share": total}


def pass_on(draw, ants, n_generations=50, n_waves=10, generation_rate=0.1, noise_sd=0.0):
    """Mean quality observed in the last wave of each generation (r, 2, g) of two runs of GACL, five sites."""
    fitness = np.zeros((draw.count, 2, n_generations))
    for rng, runs in zip(draw.generators(), fitness, strict=True):
        for run in runs:
            pheromone = np.ones(len(SITES))
            for g in range(n_generations):
                run[g] = run_waves(rng, pheromone, SITES, SITES / 10.0, n_waves, ants, noise_sd, 0.3, False)
                gain = run[g] - run[max(0, g - 5) : g + 1].mean()
                pheromone *= 1.0 - generation_rate + 0.5 * gain / pheromone.sum()
                np.maximum(pheromone, FLOOR, out=pheromone)
    return {"fitness": fitness}


def spread(fitness):
    """Variance over two runs, mean of generations."""
    return {"gacl_variance": ((fitness[:, 0] - fitness[:, 1]) ** 2).mean(axis=1) / 2.0}
