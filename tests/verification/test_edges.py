"""Cells at the edge of where a theory says that it holds, drawn at random, and what simulation says of them there.

The edge is found by the theory itself: the least number of keys, heads or hidden units for which it gives no reason
against itself."""

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from builders import batches_of, minimal_cell
from test_zscores import KEYS, NOISES, QUERIES, REGRESSIONS

from simstudy.design.document import PlannedCell, Precision
from simstudy.design.settings.cell import Cell
from simstudy.replicates.moments import stack
from simstudy.replicates.performance import performance
from simstudy.theory.leading import NEXT_TERM_LIMIT
from simstudy.verdicts.predictions import Theory, predict

pytestmark = pytest.mark.rare

MOST = 3000
"""Largest number of keys that is simulated: beyond, replicates cost too much."""
RIDGE = {"kind": "ridge", "frequency": 1.5}
RADIAL = {"kind": "quadratic", "coefficients": [0.3]}
FAR = {"kind": "points", "points": [[1.4, -0.9, 0.6]]}


class Edge(NamedTuple):
    """A cell at the edge of a theory, the measures compared there, and how far off it may be, relative to each."""

    theory: str
    cell: Cell
    source: str
    measures: tuple[str, ...]
    allowed: float


class Found(NamedTuple):
    """Simulation over theory, less 1, with its Monte Carlo error."""

    edge: Edge
    measure: str
    off: float
    mcse: float

    @property
    def good(self) -> bool:
        """Whether the theory is as good as it says, up to what simulation can tell."""
        return abs(self.off) <= self.edge.allowed + 4.0 * self.mcse

    def __str__(self) -> str:
        data, heads = self.edge.cell.data, self.edge.cell.heads
        sizes = f"n = {data.n_keys}, d = {data.n_features}, H = {heads.n_heads}, p = {heads.head_dim}"
        return f"{self.edge.theory:16} {self.measure:18} {self.off:+.4f} ± {self.mcse:.4f}  {sizes}"


def leading(number: int) -> Edge | None:
    """Softmax heads with any keys, target, noise and query that the expansion is derived for."""
    draw = random.Random(number)
    p, logits = draw.choice((1, 1, 2, 4, 8)), draw.choice(("distance", "distance", "dot_product"))
    narrow = {"distance": (0.1, 0.3, 0.5, 1.0), "dot_product": (0.7, 0.9, 1.2)}[logits]
    settings = {
        "head_dim": p, "n_features": max(3, 2 * p), "logits": logits, "bandwidth": draw.choice(narrow) * p**0.5,
        "regression": draw.choice(REGRESSIONS), "noise": draw.choice(NOISES), "key_distribution": draw.choice(KEYS),
        "queries": draw.choice((*QUERIES, FAR)), "arrangement": "rotated", "angle": draw.choice((0.0, 30.0, 90.0)),
    }  # fmt: skip
    return at_edge("leading order", settings, ("mean_variance", "ensemble_variance", "mse"), number)


def compact(number: int) -> Edge | None:
    """Compact kernels of any power and dimension, windows from a few keys to all of them."""
    draw = random.Random(number)
    p, power = draw.choice((1, 2, 4, 8)), draw.choice((1, 2, 3, 10, 100))
    window = draw.choice((0.5, 1.0, 1.5)) * (p * power) ** 0.5
    zero = draw.choice((True, False))
    settings = {
        "head_dim": p, "n_features": max(3, 2 * p), "arrangement": draw.choice(("aligned", "orthogonal")),
        "normaliser": {"kind": "compact", "power": power, "window": window},
        "regression": "zero" if zero else RADIAL, "queries": FAR if zero else "origin",
    }  # fmt: skip
    return at_edge("compact kernels", settings, ("mean_variance", "ensemble_variance"), number)


def exact(number: int) -> Edge | None:
    """Fewest keys, narrowest kernels, farthest queries and most dimensions that quadrature takes."""
    draw = random.Random(number)
    p = draw.choice((1, 2, 4, 8, 16))
    settings = {
        "n_keys": draw.choice((1, 2, 3)), "head_dim": p, "n_features": max(3, p), "n_heads": 1,
        "bandwidth": draw.choice((0.02, 0.1, 0.5)) * p**0.5, "batch_size": 4096, "seed": number,
        "regression": draw.choice((RIDGE, RADIAL) if p <= 2 else ("zero",)), "queries": draw.choice((FAR, "origin")),
    }  # fmt: skip
    cell = minimal_cell(**settings)
    reason = theory_of(cell, "exact").reason
    return None if reason else Edge("exact moments", cell, "exact", ("mean_variance", "mse"), 0.0)


KINDS: dict[str, tuple[Callable[[int], Edge | None], int]] = {
    "leading": (leading, 40), "compact": (compact, 24), "exact": (exact, 16),
}  # fmt: skip
"""What draws cells at the edge of each theory, and from how many numbers."""


def at_edge(theory: str, settings: dict[str, Any], measures: tuple[str, ...], number: int) -> Edge | None:
    """Return the smallest cell for which leading order says that it holds; None if that is too large."""

    def cell(size: int) -> Cell:
        return minimal_cell(**({"batch_size": 512, "seed": number, "n_keys": size} | settings))

    def holds(size: int) -> bool:
        values = theory_of(cell(size), "leading").measures
        return bool(np.isfinite(values.get(measures[0], np.nan)))

    low, high = 1, 2
    while high <= MOST and not holds(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return Edge(theory, cell(high), "leading", measures, NEXT_TERM_LIMIT) if high <= MOST and holds(high) else None


def theory_of(cell: Cell, source: str) -> Theory:
    asked = source == "exact"
    (found,) = predict([PlannedCell(grid="g", cell=cell, precision=Precision(), by_query=False, exact=asked)])
    return found[source]


def simulated(edge: Edge, n_batches: int) -> list[Found]:
    cell, told = edge.cell, theory_of(edge.cell, edge.source)
    blocks = stack(batches_of(cell, n_batches))
    measured = performance(blocks, np.array(cell.weights), cell.statistics)
    found = []
    for name in edge.measures:
        value = told.measures[name]
        if np.isfinite(value) and value != 0.0:
            off, mcse = float(measured.estimate[name]) / value - 1.0, float(measured.mcse[name]) / abs(value)
            found.append(Found(edge, name, off, float(np.hypot(mcse, told.errors.get(name, 0.0) / value))))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_theory_holds_up_to_its_edge(kind):
    draw, count = KINDS[kind]
    edges = [edge for number in range(count) if (edge := draw(number)) is not None]
    found = [each for edge in edges for each in simulated(edge, n_batches=8)]
    worst = sorted(found, key=lambda each: abs(each.off) - 4 * each.mcse, reverse=True)
    print(f"\n{kind}: {len(edges)} of {count} cells have an edge; the worst of {len(found)} comparisons:")
    print(*worst[:4], sep="\n")
    assert len(edges) >= count // 3
    assert not [str(each) for each in found if not each.good]
