"""Numbers of random instances by formula, registered by the type of their record.

The questions are those of arXiv 2604.00038 (decision of a colony after its first wave), and of heads at a temperature.
"""

import math
from functools import singledispatch

import numpy as np

from simstudy.design.settings.cell import Cell
from simstudy.design.settings.systems import temperatures as heads
from simstudy.design.settings.systems.published_colonies import AcarInstance
from simstudy.design.settings.tables import Instance
from simstudy.temperatures import Problem, best_sharpness, exact_risk, log_bessel, log_mean_kernel


@singledispatch
def instance_numbers(instance: Instance | None, cell: Cell) -> dict[str, float]:
    """Numbers of the random instance of a cell that a formula gives at any size, by name."""
    return {}


@singledispatch
def instance_leading_order(instance: Instance | None, cell: Cell) -> dict[str, float]:
    """Numbers of the random instance of a cell that have a formula for large sizes, by name."""
    return {}


@instance_numbers.register
def acar(instance: AcarInstance, cell: Cell) -> dict[str, float]:
    """Decision after one wave as coded, if some of the pheromone at the start stays.

    The probability that v·max(a, 0) ≥ (n − v)·max(b, 0), a and b the observations of two sites, v the ants at the
    first: binomial, with probabilities in proportion to the qualities to the power ``heuristic``.
    """
    n_ants, noise_sd = cell.heads.n_heads, cell.data.noise_sd
    if cell.data.n_keys > 1 or instance.observation == "ant" or instance.evaporation > 0.99 or not noise_sd:
        return {}
    from scipy import integrate, stats  # their import takes most of a second, which few studies need

    qualities = np.array([10.0, 10.0 - 5.0 * instance.weakness])
    one, other = (stats.norm(q, noise_sd) for q in qualities)
    choice = stats.binom(n_ants, qualities[0] ** instance.heuristic / (qualities**instance.heuristic).sum())
    reach = qualities[1] + 9.0 * noise_sd
    total = float(other.cdf(0.0) + choice.pmf(n_ants) * other.sf(0.0))
    for v in range(1, n_ants):
        wins, _ = integrate.quad(lambda b, v=v: other.pdf(b) * one.sf(b * (n_ants - v) / v), 0.0, reach, epsabs=1e-10)
        total += float(choice.pmf(v)) * wins
    return {"acar_share": total}


@instance_numbers.register
def tempered_head(instance: heads.TemperedHeadInstance, cell: Cell) -> dict[str, float]:
    """Numbers of the instance ``tempered_head``."""
    n = cell.data.n_keys
    problem = Problem(instance.keys, cell.heads.head_dim, instance.signal, instance.shares, instance.query)
    risk = exact_risk(problem, best_sharpness(problem, instance.tuned_at) / cell.bandwidth**2, n)
    least = exact_risk(problem, best_sharpness(problem, n), n)
    return {"tempered_risk": risk, "excess_risk": 100.0 * (risk / least - 1.0)}


@instance_leading_order.register
def head_pair(instance: heads.HeadPairInstance, cell: Cell) -> dict[str, float]:
    """Risk and noise of an aligned pair without a sink: the limit of many keys, with two heads."""
    n, d = cell.data.n_keys, cell.heads.head_dim
    if instance.sink or (instance.weight and instance.partner != "aligned"):
        return {}
    best = best_sharpness(Problem("unit", d, instance.signal, instance.shares), n)
    rest = (1.0 - instance.weight) / instance.gate
    heads = [(1.0 / rest, instance.first * best)]
    heads += [(-instance.weight / rest, instance.second * best)] if instance.weight else []
    scales = [(degree, instance.signal * share) for degree, share in enumerate(instance.shares, start=1)]
    risk = sum(scale * (1.0 - sum(c * _shrinkage(d, b, degree) for c, b in heads)) ** 2 for degree, scale in scales)
    noise = 0.0
    for c, b in heads:
        for other, beside in heads:
            both, first, second = (log_mean_kernel(d, each) + each for each in (b + beside, b, beside))
            size = c * other * math.exp(both - first - second)
            noise += size
            for degree, scale in scales:
                first, second, both = (_shrinkage(d, each, degree) for each in (b, beside, b + beside))
                risk += size * scale * (1.0 - both * (first + second) + first * second) / n
    return {"pair_risk": risk + noise / n, "pair_noise": noise}


@instance_leading_order.register
def grouped_heads(instance: heads.GroupedHeadsInstance, cell: Cell) -> dict[str, float]:
    """Noise of the average of heads: n Σ w_h w_g tends to e^{cos} of the angle of queries on shared keys, else 1."""
    size = instance.heads // instance.groups
    sharing = math.exp(log_mean_kernel(cell.heads.head_dim, 1.0) + 1.0)
    return {"grouped_noise": (math.e + (size - 1) * sharing + instance.heads - size) / instance.heads}


def _shrinkage(d: int, sharpness: float, degree: int) -> float:
    """A_l: what a head leaves of a harmonic of degree l (Funk and Hecke)."""
    return math.exp(log_bessel(d / 2.0 - 1.0 + degree, sharpness) - log_bessel(d / 2.0 - 1.0, sharpness))
