"""Configurations on which exact moments are verified: data-generating processes, heads, queries and statistics."""

import random
from typing import Any, NamedTuple

from builders import minimal_cell

from simstudy.design.settings.cell import Cell

N_CONFIGURATIONS = 270
# Beyond those that quadrature covers: numbers from N_CONFIGURATIONS on.
N_QUASI_MONTE_CARLO = 30
STATISTICS = ("covariance", "variance", "bias")

N_KEYS = (3, 4, 6, 10, 20, 50, 100, 300)
ANGLES = (0.0, 10.0, 30.0, 45.0, 60.0, 80.0, 90.0)
# Narrow to wide; narrower ones need more quadrature nodes as the dimension grows.
BANDWIDTHS = {
    ("distance", 1): (0.3, 0.6, 1.2),
    ("distance", 2): (0.8, 1.2, 2.0),
    ("distance", 4): (1.5, 2.0, 3.0),
    ("dot_product", 1): (0.6, 1.0, 2.0),
    ("dot_product", 2): (0.8, 1.0, 2.0),
    ("dot_product", 4): (0.9, 1.2, 2.0),
}
LINEAR = {"kind": "linear", "coefficients": [1.0, -0.5]}
WAVE = {"kind": "ridge", "wave": "cos", "frequency": 1.5, "direction": [1.0, 2.0]}
REGRESSIONS = (
    {"kind": "zero"},
    LINEAR,
    {"kind": "quadratic", "coefficients": [0.4]},
    {"kind": "ridge", "direction": [1.0, -1.0, 0.5]},
    WAVE,
    {"kind": "additive", "n_active": 3, "decay": "power", "rate": 1.0},
    {"kind": "interaction", "coordinates": [1, 3]},
    {"kind": "sum", "terms": [LINEAR, WAVE, {"kind": "quadratic"}]},
)
NOISES = (
    {"kind": "gaussian"},
    {"kind": "student_t", "df": 5.0},
    {"kind": "heteroscedastic", "strength": 2.0},
)
KEYS = (
    {"kind": "gaussian"},
    {"kind": "gaussian", "structure": "equicorrelated", "correlation": 0.4},
    {"kind": "gaussian", "structure": "autoregressive", "correlation": 0.7},
)
OTHER_KEYS = (
    {"kind": "sphere", "radius": 1.7},
    {"kind": "student_t", "df": 9.0},
    {"kind": "mixture", "separation": 3.0},
    {"kind": "mixture", "n_components": 3, "separation": 2.0},
)
QUERIES = (
    {"kind": "points", "points": [[0.7, -0.4, 0.3]]},
    {"kind": "points", "points": [[0.3, 0.5], [-1.2, 0.4, 0.8]]},
    {"kind": "gaussian", "count": 2, "scale": 0.8},
)


class Configuration(NamedTuple):
    """A cell, the statistic of its two heads that is compared, and the number of batches that are simulated."""

    number: int
    cell: Cell
    statistic: str
    n_batches: int = 16


def configuration(number: int) -> Configuration:
    """Draw the levels of every factor; the number is the seed of the levels and of the simulation.

    From `N_CONFIGURATIONS` on keys are not Gaussian.
    """
    draw = random.Random(number)
    statistic = STATISTICS[number % len(STATISTICS)]
    n_keys, p = draw.choice(N_KEYS), draw.choice((1, 1, 2, 4))
    logits = draw.choice(("distance", "dot_product"))
    other = OTHER_KEYS[number % len(OTHER_KEYS)] if number >= N_CONFIGURATIONS else None
    if other and other["kind"] != "sphere":
        logits = "distance"
    regression, noise = draw.choice(REGRESSIONS), draw.choice(NOISES)
    treatment = draw.choice(("integrated", "drawn"))
    if noise["kind"] == "student_t":
        # Squares of drawn heavy tails would have no variance to speak of, and so no Monte Carlo error.
        treatment = "integrated"
    if regression["kind"] == "zero" and treatment == "integrated" and statistic == "bias":
        # Nothing random would be left.
        statistic = "covariance"
    known = treatment == "integrated" and other is None
    cell = minimal_cell(
        n_keys=n_keys,
        head_dim=p,
        n_features=draw.choice((max(3, 2 * p), 2 * p + 2)),
        logits=logits,
        # The narrowest are for quadrature.
        bandwidth=draw.choice(BANDWIDTHS[logits, p][1 if other else 0 :]),
        regression=regression,
        noise=noise,
        noise_treatment=treatment,
        key_distribution=other or draw.choice(KEYS),
        queries=draw.choice(QUERIES),
        # The fewer keys, the more skewed the estimates, and the cheaper.
        batch_size=1024 if n_keys >= 50 else 4096,
        seed=number,
        **_arrangement(draw, p),
        # Last, so that other levels are drawn alike with it and without.
        control=draw.choice(("none", "expansion")) if known else "none",
    )
    # Quasi-Monte Carlo takes longer than the simulation that it is compared with: that may as well be precise.
    return Configuration(number, cell, statistic, n_batches=32 if other else 16)


def _arrangement(draw: random.Random, head_dim: int) -> dict[str, Any]:
    kind = draw.choice(("rotated", "rotated", "principal_angles", "haar"))
    if kind == "rotated":
        return {"arrangement": kind, "angle": draw.choice(ANGLES)}
    if kind == "principal_angles":
        return {"arrangement": kind, "principal_angles": sorted(draw.choices(ANGLES, k=head_dim))}
    return {"arrangement": kind, "query_projections": draw.choice(("same", "haar"))}


def sensitive() -> Configuration:
    """Return a pair of narrow heads at 45 degrees, simulated to a precision that tells one degree."""
    cell = minimal_cell(
        n_keys=30,
        head_dim=1,
        n_features=2,
        bandwidth=0.3,
        arrangement="rotated",
        angle=45.0,
        batch_size=8192,
        seed=N_CONFIGURATIONS,
    )
    return Configuration(N_CONFIGURATIONS, cell, "covariance", n_batches=64)
