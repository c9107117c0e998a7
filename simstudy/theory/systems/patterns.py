"""Patterns of attention that a head draws: the error that the span of the tokens leaves, where the rank leaves none.

The question is that of Bhojanapalli and others (2020).
"""

from __future__ import annotations

from simstudy.design.settings.cell import Cell
from simstudy.design.settings.systems.patterns import PatternInstance
from simstudy.theory.instances import instance_numbers


@instance_numbers.register
def pattern(instance: PatternInstance, cell: Cell) -> dict[str, float]:
    """Expected error of the logits of heads as wide as the tokens let them be; of others it has no closed form.

    Of n(n − 1) normal numbers, the logits of n queries less their means, tokens of d features show min(n, d) by
    min(n − 1, d) of whatever directions they span: the share of their squares has a beta distribution.
    """
    n, d = cell.data.n_keys, cell.data.n_features
    inside = min(n - 1, d)
    if cell.heads.head_dim < inside:
        return {}
    return {"pattern_error": 1.0 - min(n, d) * inside / (n * (n - 1))}
