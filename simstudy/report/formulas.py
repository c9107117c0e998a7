"""Formulas that claims name in the place of a number, as pages tell them."""

from __future__ import annotations

import inspect
from typing import NamedTuple

from simstudy.design.document import Design
from simstudy.design.settings.records import Record

EQUATIONS: dict[str, str] = {
    "tuned_risk_ratio": "tuned-risk",
    "correlation_floor": "correlation-floor",
    "origin_variance": "origin-variance",
    "dot_product_floor": "dot-product-correlation",
    "query_averaged_heads": "averaged-noise-ratio",
    "limiting_slope": "limiting-slope",
    "fibonacci_learners": "effective-learners",
    "geometric_learners": "effective-learners",
    "noise_factor": "noise-factor",
    "nearest_sum_rate": "nearest-sum-rate",
    "needed_width_rate": "needed-width-rate",
    "best_average_rate": "best-average-rate",
}
"""Label, in simstudy/theory/README.md, of the equation that each formula evaluates."""


class NamedFormula(NamedTuple):
    """The formula of a claim: its name, the values of its parameters, what it says, and the label of its equation."""

    name: str
    values: str
    meaning: str
    equation: str


def formulas_of(design: Design) -> dict[str, NamedFormula]:
    """Return the formulas that claims of a design name, by claim."""
    return {
        name: _named(value)
        for name, claim in design.claims.items()
        if isinstance(value := getattr(claim, "value", None), Record)
    }


def _named(formula: Record) -> NamedFormula:
    parameters = formula.model_dump()
    name = parameters.pop("kind")
    values = ", ".join(f"{parameter} = {value:g}" for parameter, value in parameters.items())
    return NamedFormula(name, values, inspect.getdoc(type(formula)) or "", EQUATIONS[name])
