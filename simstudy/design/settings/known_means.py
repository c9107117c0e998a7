"""Which cells have known means, that the control by expansion needs, and where these come from."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from simstudy.design.settings.processes import FileKeys

if TYPE_CHECKING:
    from simstudy.design.settings.cell import Cell

WAVES = {"zero", "linear", "quadratic", "ridge", "additive", "interaction"}
_MOST_OPERATIONS = 4e9
"""Most operations that the known means of a cell may take: about a second."""
MIN_THIRD_ORDER = 1000
"""Replicates from which terms of third order are taken off: of fewer the rest is too skewed for intervals to cover."""
N_POINTS = 1 << 20
"""Points of all nets of a cell whose means have no closed form."""


def have_closed_forms(cell: Cell) -> bool:
    """Whether known means are closed forms; others come from nets, or from the rows that keys are drawn from."""
    return cell.data.key_distribution.kind == "gaussian" and {term.kind for term in cell.data.terms} <= WAVES


def _dependent(cell: Cell) -> bool:
    keys = cell.data.key_distribution
    return keys.kind == "autoregressive" or (isinstance(keys, FileKeys) and keys.sampling == "without")


def _infinite(cell: Cell) -> bool:
    """Whether the exponential of a dot product with a key may have no mean."""
    return cell.estimator.logits == "dot_product" and cell.data.key_distribution.kind in ("student_t", "own")


def _operations(cell: Cell) -> float:
    """Estimated operations of singular values and covariances of all pairs of heads, or of all points of nets."""
    d, heads = cell.data.n_features, cell.heads
    if have_closed_forms(cell):
        return d * heads.n_heads * (heads.n_heads + 1) * (2.0 * d**2 + 40.0 * heads.head_dim**2)
    n_points = len(cell.rows.keys) if cell.file_rows else N_POINTS
    return n_points * (20.0 * d + heads.n_heads * cell.n_queries * (20.0 + 5.0 * heads.n_heads))


LACKING: tuple[tuple[str, Callable[[Cell], bool]], ...] = (
    ("noise is drawn", lambda cell: cell.simulation.noise_treatment != "integrated"),
    ("members are not given heads", lambda cell: cell.estimator.learner.kind != "nadaraya_watson"),
    (
        "heads are not softmax attention on the keys themselves",
        lambda cell: not cell.estimator.plain or cell.estimator.key_scale != "raw",
    ),
    ("heads are merged into one estimate", lambda cell: cell.estimator.combination.kind in ("product", "fitted")),
    ("queries see different keys", lambda cell: cell.estimator.mask.kind != "none"),
    ("heads are redrawn", lambda cell: cell.heads.redrawn),
    ("keys of a replicate depend on one another", _dependent),
    (
        "draws of a population have means of their own",
        lambda cell: not have_closed_forms(cell) and cell.population != (),
    ),
    ("exponentials of dot products with such keys may have no mean", _infinite),
    (
        "terms of third order have known means in closed form only",
        lambda cell: cell.simulation.control == "third_order" and not have_closed_forms(cell),
    ),
    ("the means of so many pairs and features take too long", lambda cell: _operations(cell) > _MOST_OPERATIONS),
)
"""Why the known means that `Simulation.control` needs are lacking, and of which cells that holds."""
