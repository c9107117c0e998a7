"""Settings that decide no number of an ensemble, and why: cells that differ in these alone hold the same numbers.

Parameters that have no meaning beside the others of their choice are stated with it (`Choice.idle`), settings that a
learner does not look at with the learner (`Learner.ignores`); here stands what follows from several tables together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from simstudy.design.settings.processes import HeteroscedasticNoise, ResidualNoise

if TYPE_CHECKING:
    from simstudy.design.settings.cell import Cell


class _Rule(NamedTuple):
    """Settings that decide nothing in the cells of which something holds."""

    settings: tuple[str, ...]
    why: str
    holds: Callable[[Cell], bool]


_PLACED = ("aligned", "orthogonal", "rotated", "principal_angles")
_RANDOM = ("haar", "haar_redrawn", "scattered", "own")
_RULES = (
    _Rule(
        ("noise",),
        "of noise that is integrated out only the variance counts",
        lambda cell: (
            cell.simulation.noise_treatment == "integrated"
            and not isinstance(cell.data.noise, HeteroscedasticNoise | ResidualNoise)
        ),
    ),
    _Rule(("noise",), "noise_sd is 0", lambda cell: cell.data.noise_sd == 0.0),
    _Rule(
        ("head_seed",),
        "no head is random",
        lambda cell: (
            cell.heads.arrangement not in _RANDOM
            and cell.heads.query_projections != "haar"
            and cell.heads.value_projections.kind != "random"
        ),
    ),
    _Rule(
        ("arrangement", "angle", "principal_angles"),
        "one head is at no angle to another",
        lambda cell: cell.heads.n_heads == 1 and cell.heads.arrangement in _PLACED,
    ),
    _Rule(("population",), "nothing of it is drawn once", lambda cell: not cell.population),
    _Rule(
        ("query_projections",),
        "there is no second head",
        lambda cell: cell.heads.n_heads == 1 and cell.heads.query_projections == "opposite",
    ),
)


def idle_settings(cell: Cell) -> dict[str, str]:
    """Return the settings that decide no number of a cell, each with the reason.

    None of a random instance: what means nothing for it, it has not (`Cell.meaningful`).
    """
    if cell.instance is not None:
        return {}
    learner = cell.estimator.learner
    ignored = dict.fromkeys(sorted(learner.ignores), f'learner = "{learner.kind}" does not look at it')
    return ignored | {setting: rule.why for rule in _RULES if rule.holds(cell) for setting in rule.settings}
