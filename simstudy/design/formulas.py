"""Formulas that a claim may name in the place of a number, a record of parameters each; `claimed` evaluates them."""

from typing import Annotated, Any, Literal, Union

from pydantic import Discriminator, Field, Tag, create_model

from simstudy.design.settings.records import Count, NonNegative, Part, Positive, Ratio, Real, Record


class Formula(Record):
    """The parameters of a formula."""

    kind: str


_PARAMETERS: dict[str, Any] = {
    "head_dim": (Count, Field(description="dimension of a head, at least 1")),
    "power": (Count, Field(description="power of the compact kernel, a whole number of at least 1")),
    "bandwidth": (Positive, ...),
    "n_heads": (Count, ...),
    "n_features": (Count, ...),
    "length": (Positive, Field(description="length l of the query that each head pulls back")),
    "query_scale": (Part, Field(1.0, description="standard deviation of queries relative to keys, in (0, 1]")),
    "bias_rate": (
        NonNegative,
        Field(0.0, description="rate g at which the squared bias falls with the dimension, at least 0"),
    ),
    "ratio": (Ratio, Field(description="ratio of consecutive weights, in (0, 1)")),
}
_FORMULAS: dict[str, tuple[tuple[str, ...], str]] = {
    "tuned_risk_ratio": (
        ("head_dim", "power"),
        "Least asymptotic risk of the Gaussian kernel over that of (1 − |u|²)^power, each at its best bandwidth.",
    ),
    "correlation_floor": (
        ("head_dim", "bandwidth"),
        "Correlation of orthogonal heads at x = 0 under noise: (1 − κ²)^{p/2}, κ = 1/(1 + b²).",
    ),
    "dot_product_floor": (("length",), "Correlation of orthogonal dot-product heads under noise: exp(−l²)."),
    "query_averaged_heads": (
        ("n_heads", "head_dim", "bandwidth"),
        "Independent heads that H orthogonal ones amount to over Gaussian queries, under noise and for many keys.",
    ),
    "limiting_slope": (
        ("bandwidth", "query_scale", "bias_rate"),
        "Slope of the best dimension of averaged heads in ln n for many keys, one bandwidth: 1/(g + ln L).",
    ),
    "fibonacci_learners": (
        ("n_heads",),
        "Number of equally weighted heads that heads with Fibonacci weights amount to.",
    ),
    "geometric_learners": (
        ("n_heads", "ratio"),
        "Number of equally weighted heads that heads with geometric weights amount to.",
    ),
}
_FIELDS = {kind: {name: _PARAMETERS[name] for name in names} for kind, (names, _) in _FORMULAS.items()}
# Held here, as a class holds its subclasses weakly.
_RECORDS = [
    create_model(kind, __base__=Formula, __doc__=meaning, **_FIELDS[kind] | {"kind": (Literal[kind], ...)})
    for kind, (_, meaning) in _FORMULAS.items()
]
# By their names pickle finds them.
globals().update({record.__name__: record for record in _RECORDS})
AnyFormula: Any = Annotated[Union[tuple(_RECORDS)], Field(discriminator="kind")]  # noqa: UP007 - of a tuple


def _kind(value: Any) -> str:
    return "a formula" if isinstance(value, (dict, Record)) else "a number"


Value = Annotated[Annotated[Real, Tag("a number")] | Annotated[AnyFormula, Tag("a formula")], Discriminator(_kind)]
"""A number, or the formula that gives it."""
