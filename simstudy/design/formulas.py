"""Formulas that a claim may name in the place of a number, a record of parameters each; `claimed` evaluates them."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from simstudy.design.settings.records import Count, NonNegative, Part, Positive, Ratio, Real, Record, Share, told_apart

Dimension = Annotated[Count, Field(description="dimension of a head, at least 1")]


class Formula(Record):
    """The parameters of a formula."""

    kind: str


class TunedRiskRatio(Formula):
    """Least asymptotic risk of the Gaussian kernel over that of (1 − |u|²)^power, each at its best bandwidth."""

    kind: Literal["tuned_risk_ratio"]
    head_dim: Dimension
    power: Count = Field(description="power of the compact kernel, a whole number of at least 1")


class CorrelationFloor(Formula):
    """Correlation of orthogonal heads at x = 0 under noise: (1 − κ²)^{p/2}, κ = 1/(1 + b²)."""

    kind: Literal["correlation_floor"]
    head_dim: Dimension
    bandwidth: Positive


class OriginVariance(Formula):
    """Variance of a Gaussian head at x = 0 under noise of variance 1: 1/n_eff."""

    kind: Literal["origin_variance"]
    n_keys: Count
    head_dim: Dimension
    bandwidth: Positive


class DotProductFloor(Formula):
    """Correlation of orthogonal dot-product heads under noise: exp(−l²)."""

    kind: Literal["dot_product_floor"]
    length: Positive = Field(description="length l of the query that each head pulls back")


class QueryAveragedHeads(Formula):
    """Independent heads that H orthogonal ones amount to over Gaussian queries, under noise and for many keys."""

    kind: Literal["query_averaged_heads"]
    n_heads: Count
    head_dim: Dimension
    bandwidth: Positive


class LimitingSlope(Formula):
    """Slope of the best dimension of averaged heads in ln n for many keys, one bandwidth: 1/(g + ln L)."""

    kind: Literal["limiting_slope"]
    bandwidth: Positive
    query_scale: Part = Field(1.0, description="standard deviation of queries relative to keys, in (0, 1]")
    bias_rate: NonNegative = Field(
        0.0, description="rate g at which the squared bias falls with the dimension, at least 0"
    )


class FibonacciLearners(Formula):
    """Number of equally weighted heads that heads with Fibonacci weights amount to."""

    kind: Literal["fibonacci_learners"]
    n_heads: Count


class GeometricLearners(Formula):
    """Number of equally weighted heads that heads with geometric weights amount to."""

    kind: Literal["geometric_learners"]
    n_heads: Count
    ratio: Ratio = Field(description="ratio of consecutive weights, in (0, 1)")


class NoiseFactor(Formula):
    """Share of independent noise of the logits that is left in a hidden state with a memory."""

    kind: Literal["noise_factor"]
    memory: Share = Field(description="share in [0, 1) of the former hidden state")
    layers: Count


class NearestSumRate(Formula):
    """Change of the logarithm of the error of the best mask with each hidden unit: −(ln 2)/d."""

    kind: Literal["nearest_sum_rate"]
    n_features: Count


class NeededWidthRate(Formula):
    """Hidden units of each source that H heads need more for each unit of ln H: d/ln 2 in the end."""

    kind: Literal["needed_width_rate"]
    n_features: Count
    n_heads: Count
    units: Count


class BestAverageRate(Formula):
    """Change of the logarithm of the error of the best subset of H heads with each head: −(ln 2)/outputs − 1/(2H)."""

    kind: Literal["best_average_rate"]
    n_heads: Count
    outputs: Count


AnyFormula = Annotated[Formula, told_apart(Formula)]


def _kind(value: Any) -> str:
    return "a formula" if isinstance(value, (dict, Record)) else "a number"


Value = Annotated[Annotated[Real, Tag("a number")] | Annotated[AnyFormula, Tag("a formula")], Discriminator(_kind)]
"""A number, or the formula that gives it."""
