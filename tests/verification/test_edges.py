"""Cells at the edge of where a theory says that it holds, drawn at random, and what simulation says of them there.

The edge is found by the theory itself: the least number of keys, heads or hidden units for which it gives no reason
against itself."""

import random
from typing import Any

import numpy as np
import pytest
from builders import batches_of, minimal_cell, planned
from test_zscores import KEYS, NOISES, QUERIES, REGRESSIONS

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


def leading(draw: random.Random) -> dict[str, Any]:
    """Softmax heads with any keys, target, noise and query that the expansion is derived for."""
    p, logits = draw.choice((1, 1, 2, 4, 8)), draw.choice(("distance", "distance", "dot_product"))
    narrow = {"distance": (0.1, 0.3, 0.5, 1.0), "dot_product": (0.7, 0.9, 1.2)}[logits]
    return {
        "head_dim": p, "n_features": max(3, 2 * p), "logits": logits, "bandwidth": draw.choice(narrow) * p**0.5,
        "regression": draw.choice(REGRESSIONS), "noise": draw.choice(NOISES), "key_distribution": draw.choice(KEYS),
        "queries": draw.choice((*QUERIES, FAR)), "arrangement": "rotated", "angle": draw.choice((0.0, 30.0, 90.0)),
    }  # fmt: skip


def compact(draw: random.Random) -> dict[str, Any]:
    """Compact kernels of any power and dimension, windows from a few keys to all of them."""
    p, power = draw.choice((1, 2, 4, 8)), draw.choice((1, 2, 3, 10, 100))
    window = draw.choice((0.5, 1.0, 1.5)) * (p * power) ** 0.5
    zero = draw.choice((True, False))
    return {
        "head_dim": p, "n_features": max(3, 2 * p), "arrangement": draw.choice(("aligned", "orthogonal")),
        "normaliser": {"kind": "compact", "power": power, "window": window},
        "regression": "zero" if zero else RADIAL, "queries": FAR if zero else "origin",
    }  # fmt: skip


def exact(draw: random.Random) -> dict[str, Any]:
    """Fewest keys, narrowest kernels, farthest queries and most dimensions that quadrature takes."""
    p = draw.choice((1, 2, 4, 8, 16))
    return {
        "n_keys": draw.choice((1, 2, 3)), "head_dim": p, "n_features": max(3, p), "n_heads": 1,
        "bandwidth": draw.choice((0.02, 0.1, 0.5)) * p**0.5, "batch_size": 4096,
        "regression": draw.choice((RIDGE, RADIAL) if p <= 2 else ("zero",)), "queries": draw.choice((FAR, "origin")),
    }  # fmt: skip


def theory_of(cell: Cell, source: str) -> Theory:
    (found,) = predict([planned(cell, exact=source == "exact")])
    return found[source]


def at_edge(settings: dict[str, Any]) -> Cell | None:
    """Return the smallest cell for which leading order says that it holds; None if that is too large."""

    def holds(size: int) -> bool:
        measures = theory_of(minimal_cell(**settings, n_keys=size), "leading").measures
        return bool(np.isfinite(measures.get("mean_variance", np.nan)))

    low, high = 1, 2
    while high <= MOST and not holds(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return minimal_cell(**settings, n_keys=high) if high <= MOST and holds(high) else None


@pytest.mark.parametrize(
    ("draw", "count", "source", "measures", "allowed"),
    [
        (leading, 40, "leading", ("mean_variance", "ensemble_variance", "mse"), NEXT_TERM_LIMIT),
        (compact, 24, "leading", ("mean_variance", "ensemble_variance"), NEXT_TERM_LIMIT),
        (exact, 16, "exact", ("mean_variance", "mse"), 0.0),
    ],
)
def test_theory_holds_up_to_its_edge(draw, count, source, measures, allowed):
    """Simulation over theory, minus 1, is within what the theory allows, up to what simulation can tell."""
    n_edges, found = 0, []
    for number in range(count):
        settings = {"batch_size": 512, "seed": number} | draw(random.Random(number))
        cell = minimal_cell(**settings) if source == "exact" else at_edge(settings)
        if cell is None or (told := theory_of(cell, source)).reason:
            continue
        n_edges += 1
        measured = performance(stack(batches_of(cell, 8)), np.array(cell.weights), cell.statistics)
        for name in (name for name in measures if np.isfinite(told.measures[name]) and told.measures[name] != 0.0):
            value, error = told.measures[name], told.errors.get(name, 0.0)
            off, mcse = measured.estimate[name] / value - 1.0, np.hypot(measured.mcse[name], error) / abs(value)
            found.append((float(abs(off) - allowed - 4 * mcse), f"{name} {off:+.4f} ± {mcse:.4f} of {settings}"))
    print(f"\n{draw.__name__}: {n_edges} of {count} cells have an edge; the worst of {len(found)} comparisons:")
    print(*(text for _, text in sorted(found)[:-5:-1]), sep="\n")
    assert n_edges >= count // 3
    assert not [text for beyond, text in found if beyond > 0.0]
