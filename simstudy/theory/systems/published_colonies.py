"""Decision of an ACAR colony after its first wave, whose ants choose independently of one another."""

from __future__ import annotations

import numpy as np

from simstudy.design.settings.cell import Cell
from simstudy.design.settings.systems.published_colonies import AcarInstance
from simstudy.theory.instances import instance_numbers


@instance_numbers.register
def acar(instance: AcarInstance, cell: Cell) -> dict[str, float]:
    """Numbers of the instance ``acar`` after one wave as coded, if some of the pheromone at the start stays."""
    if cell.data.n_keys > 1 or instance.observation == "ant" or instance.evaporation > 0.99 or not cell.data.noise_sd:
        return {}
    qualities = np.array([10.0, 10.0 - 5.0 * instance.weakness])
    return {"acar_share": first_decision(cell.heads.n_heads, qualities, instance.heuristic, cell.data.noise_sd)}


def first_decision(n_ants: int, qualities: np.ndarray, heuristic: float, noise_sd: float) -> float:
    """Probability that v·max(a, 0) ≥ (n − v)·max(b, 0), a and b the observations of two sites, v the ants at the first.

    v is binomial, with probabilities in proportion to the qualities to the power ``heuristic``.
    """
    from scipy import integrate, stats  # their import takes most of a second, which few studies need

    one, other = (stats.norm(q, noise_sd) for q in qualities)
    choice = stats.binom(n_ants, qualities[0] ** heuristic / (qualities**heuristic).sum())
    reach = qualities[1] + 9.0 * noise_sd
    total = float(other.cdf(0.0) + choice.pmf(n_ants) * other.sf(0.0))
    for v in range(1, n_ants):
        wins, _ = integrate.quad(lambda b, v=v: other.pdf(b) * one.sf(b * (n_ants - v) / v), 0.0, reach, epsabs=1e-10)
        total += float(choice.pmf(v)) * wins
    return total
