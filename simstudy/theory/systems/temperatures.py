"""Heads at a temperature: exact risk of one at any number of keys, and of pairs and shared keys for many."""

from __future__ import annotations

import math

from simstudy.design.settings.cell import Cell
from simstudy.design.settings.systems import temperatures as settings
from simstudy.temperatures import Problem, best_sharpness, exact_head, log_bessel, log_mean_kernel
from simstudy.theory.instances import instance_leading_order, instance_numbers


@instance_numbers.register
def tempered_head(instance: settings.TemperedHeadInstance, cell: Cell) -> dict[str, float]:
    """Numbers of the instance ``tempered_head``."""
    n = cell.data.n_keys
    problem = Problem(instance.keys, cell.heads.head_dim, instance.signal, instance.shares, instance.query)
    risk = exact_head(problem, best_sharpness(problem, instance.tuned_at) / cell.bandwidth**2, n).risk
    least = exact_head(problem, best_sharpness(problem, n), n).risk
    return {"tempered_risk": risk, "excess_risk": 100.0 * (risk / least - 1.0)}


@instance_leading_order.register
def head_pair(instance: settings.HeadPairInstance, cell: Cell) -> dict[str, float]:
    """Risk and noise of an aligned pair without a sink: the limit in simstudy/docs/how-hot.md, with two heads."""
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
def grouped_heads(instance: settings.GroupedHeadsInstance, cell: Cell) -> dict[str, float]:
    """Noise of the average of heads: n Σ w_h w_g tends to e^{cos} of the angle of queries on shared keys, else 1."""
    size = instance.heads // instance.groups
    sharing = math.exp(log_mean_kernel(cell.heads.head_dim, 1.0) + 1.0)
    return {"grouped_noise": (math.e + (size - 1) * sharing + instance.heads - size) / instance.heads}


def _shrinkage(d: int, sharpness: float, degree: int) -> float:
    """A_l: what a head leaves of a harmonic of degree l (Funk and Hecke)."""
    return math.exp(log_bessel(d / 2.0 - 1.0 + degree, sharpness) - log_bessel(d / 2.0 - 1.0, sharpness))
