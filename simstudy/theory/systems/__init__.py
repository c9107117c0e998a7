"""Formulas for the numbers of random instances."""

from __future__ import annotations

from simstudy.design.settings import MaskedHeadInstance, RandomHeadsInstance
from simstudy.design.settings.cell import Cell
from simstudy.theory.systems.hierarchy import resolution, score_kernel
from simstudy.theory.systems.hopfield import hopfield_noise
from simstudy.theory.systems.identifiability import head_recovery, layer_norm
from simstudy.theory.systems.masks import REACH, best_average_error, nearest_sum_error, random_heads


def instance_numbers(cell: Cell) -> dict[str, float]:
    """Numbers of the random instances of a cell that a formula gives without a simulation, by name."""
    match cell.estimator.instance.kind:
        case "head_recovery":
            return head_recovery(cell)
        case "layer_norm":
            return layer_norm(cell)
        case "score_kernel":
            return score_kernel(cell)
        case "resolution":
            return resolution(cell)
        case "hopfield_noise":
            return hopfield_noise(cell)
        case "random_heads":
            return random_heads(cell)
        case _:
            return {}


def instance_leading_order(cell: Cell) -> dict[str, float]:
    """Numbers of the random instances of a cell for which there is a formula for many numbers, by name."""
    instance = cell.estimator.instance
    if isinstance(instance, MaskedHeadInstance):
        numbers = instance.width // cell.data.n_features
        if instance.scale <= REACH * numbers:
            return {"log_entry_error": nearest_sum_error(numbers, instance.scale)}
    if isinstance(instance, RandomHeadsInstance) and instance.correlation == 0.0:
        return {"log_mask_error": best_average_error(cell.heads.n_heads, instance.outputs)}
    return {}
