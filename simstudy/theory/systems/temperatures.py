"""Risk of a head at a temperature that follows a rule, at any number of keys."""

from __future__ import annotations

from simstudy.design.settings.cell import Cell
from simstudy.design.settings.systems.temperatures import TemperedHeadInstance
from simstudy.temperatures import Problem, best_sharpness, exact_head
from simstudy.theory.instances import instance_numbers


@instance_numbers.register
def tempered_head(instance: TemperedHeadInstance, cell: Cell) -> dict[str, float]:
    """Numbers of the instance ``tempered_head``."""
    n = cell.data.n_keys
    problem = Problem(instance.keys, cell.heads.head_dim, instance.signal, instance.shares, instance.query)
    risk = exact_head(problem, best_sharpness(problem, instance.tuned_at) / cell.bandwidth**2, n).risk
    least = exact_head(problem, best_sharpness(problem, n), n).risk
    return {"tempered_risk": risk, "excess_risk": 100.0 * (risk / least - 1.0)}
