"""Which moments of the estimates a measure and its Monte Carlo error need, and which the design has.

A measure of order r is made of means of r-th powers of errors of estimates: it exists if these have a moment of order
r, and its Monte Carlo standard error exists if they have one of order 2r.  An estimate Σ w_i Y_i has bounded weights,
so that its tails are those of the noise drawn and of m(X) where keys have weight:

- Noise drawn from t(ν) has moments below ν.  Integrated out, it enters by its variance, which exists.
- m of degree k under t(ν) keys has moments below ν/k where a far key may have most of the weight: logits q·k, whose
  weights grow along the query; normalised keys, trees, ants.
- Weights that fall with distance let no far key count but in directions that a head does not see.  There a key, given
  that its p seen coordinates are near, is t(ν + p): moments below (ν + p)/k.  In the directions seen all n keys
  must be far together: moments below nν/k.
"""

from collections.abc import Sequence
from typing import NamedTuple

from simstudy.design.claims import BaseClaim
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.mechanisms import LowRankTransformation, MergeTransformation
from simstudy.design.settings.processes import HeteroscedasticNoise, Quadratic, StudentKeys, StudentNoise

ORDER = {
    "squared_bias": 1, "mean_variance": 2, "mean_covariance": 2, "ensemble_variance": 2, "mse": 2, "correlation": 2,
    "effective_heads": 2, "direct_mse": 2, "decomposition_gap": 2, "correlation_gap": 2, "query_correlation_gap": 2,
    "equivalent_heads": 2, "mean_squared_bias": 1, "ambiguity": 2, "ambiguity_gap": 2, "output": 2, "output_rank": 2,
    "output_determinant": 2, "output_participation": 2, "linear_predictability": 2, "disagreement_outputs": 2,
}  # fmt: skip
"""Order of the measures, and of the diversity indices of outputs; all others are bounded, or numbers of geometry."""
DEGREE = {"linear": 1, "quadratic": 2, "interaction": 2}
"""Degree of regression functions that are not bounded."""


class Tail(NamedTuple):
    """Moments of the estimates of a cell: those of an order below the limit exist."""

    limit: float
    why: str


def tail(cell: Cell) -> Tail:
    """Return the order from which on estimates have no moments, and what makes it so; infinite if they have all."""
    found = [Tail(float("inf"), "")]
    if cell.functions is not None:
        return found[0]
    noise, keys = cell.data.noise, cell.data.key_distribution
    if isinstance(noise, StudentNoise) and cell.simulation.noise_treatment == "drawn" and cell.data.noise_sd > 0.0:
        found.append(Tail(noise.df, f"noise drawn from {noise.label}"))
    # Of m, and of the standard deviation of the noise.
    spread = int(isinstance(noise, HeteroscedasticNoise) and cell.data.noise_sd > 0.0)
    degree = max(spread, *(DEGREE.get(term.kind, 0) for term in cell.data.terms))
    if isinstance(keys, StudentKeys) and degree:
        found.append(Tail(_keys_with_weight(cell, keys.df) / degree, f"a degree of {degree} under keys {keys.label}"))
    return min(found)


def _keys_with_weight(cell: Cell, df: float) -> float:
    """Order from which on a far key that has weight has no moments."""
    estimator, d = cell.estimator, cell.data.n_features
    if (estimator.learner.kind, estimator.logits, estimator.key_scale) != ("nadaraya_watson", "distance", "raw"):
        return df
    transformation = estimator.transformation
    seen = cell.heads.head_dim * (cell.heads.n_heads if estimator.combination.kind == "product" else 1)
    seen = min(seen, d, transformation.rank if isinstance(transformation, LowRankTransformation) else d)
    chunk = transformation.stride if isinstance(transformation, MergeTransformation) else 1
    together = df * -(-cell.data.n_keys // chunk)
    regression = cell.data.regression
    radial = isinstance(regression, Quadratic) and len(regression.coefficients) == 1
    used = len(getattr(regression, "coefficients", ())) or d
    sees_all = cell.heads.arrangement == "aligned" and not radial and used <= cell.heads.head_dim
    return together if seen == d or sees_all else min(df + seen, together)


def order_of(claim: BaseClaim) -> int:
    """Order of what a claim speaks of: of its measure, or of the diversity index that it orders cells by."""
    return max(ORDER.get(str(name), 0) for name in (claim.measure, claim.index, getattr(claim, "against", None)))


def lacking(cells: Sequence[Cell], order: int) -> str:
    """Return what cells lack for means of powers of an order; empty if they lack nothing."""
    tails = [found for found in map(tail, cells) if found.limit <= order] if order else []
    if not tails:
        return ""
    return (
        f"that takes moments of order {order} of the estimates, and in {len(tails)} of {len(cells)} cells they have "
        f"none of order {tails[0].limit:.4g} and above ({tails[0].why})"
    )
