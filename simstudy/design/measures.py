"""Registry of every labelled variable that results may hold: dimensions, unit, meaning, formula.

Data sets are created through `labelled`, so a stored file explains
itself and cannot hold a variable that is not described here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from simstudy.design.settings.systems import QUANTITIES

SOURCES = ("empirical", "exact", "leading")
"""Monte Carlo; theory without approximation in n; theory at leading order in n."""
THEORIES = SOURCES[1:]
INDICES = ("chordal", "participation", "entropy", "logdet", "volume", "vendi", "min_angle", "output")
ATTRIBUTES = (
    "study", "profile", "title", "aim", "design", "design_hash", "factors", "seed", "engine", "simstudy_version",
    "commit", "libraries", "missing_values", "run",
)  # fmt: skip
"""Global attributes of the results of a study."""


@dataclass(frozen=True)
class Variable:
    """Description of one labelled variable."""

    dims: tuple[str, ...]
    unit: str
    meaning: str
    formula: str = ""


_BY_SOURCE = ("source", "cell")
_PAIRS = ("cell", "head_i", "head_j")

MEASURES: dict[str, Variable] = {
    "squared_bias": Variable(
        _BY_SOURCE, "Y^2", "squared bias of the ensemble, averaged over queries; estimated without bias, so it may be "
        "slightly negative", "mean_q (E f(x_q) - m(x_q))^2",
    ),
    "mean_variance": Variable(
        _BY_SOURCE, "Y^2", "variance of one head over redraws of the data, averaged over heads and queries",
        "mean_q mean_h Var f_h(x_q)",
    ),
    "mean_covariance": Variable(
        _BY_SOURCE, "Y^2", "covariance of two different heads over redraws, averaged over pairs and queries",
        "mean_q mean_{h!=g} Cov(f_h(x_q), f_g(x_q))",
    ),
    "ensemble_variance": Variable(
        _BY_SOURCE, "Y^2", "variance of the combined estimate, averaged over queries", "mean_q a' C(x_q) a"
    ),
    "mse": Variable(
        _BY_SOURCE, "Y^2", "mean squared error of the combined estimate, averaged over queries",
        "squared_bias + ensemble_variance",
    ),
    "correlation": Variable(
        _BY_SOURCE, "1", "correlation of two different heads over redraws at a fixed query, averaged over pairs and "
        "queries", "mean_q mean_{h!=g} C_hg / sqrt(C_hh C_gg)",
    ),
    "effective_heads": Variable(
        _BY_SOURCE, "1", "number of uncorrelated heads that would average to the same variance",
        "mean_variance / (mean_variance / H + (1 - 1/H) mean_covariance)",
    ),
}  # fmt: skip

STATISTICS: dict[str, Variable] = {
    "direct_mse": Variable(
        _BY_SOURCE, "Y^2", "mean squared error of the uniform average, averaged over replicates and queries without "
        "the decomposition", "mean_r mean_q (mean_h f_h(x_q) - m(x_q))^2, noise integrated out where it is",
    ),
    "query_correlation": Variable(
        _BY_SOURCE, "1", "correlation of two different heads over query points in one replicate, averaged over pairs "
        "and replicates; not the correlation over redraws", "mean_r mean_{h!=g} corr_q(f_h(x_q), f_g(x_q))",
    ),
    "discrepancy": Variable(
        _BY_SOURCE, "1", "difference between the combined estimate and the reference computation, relative to the size "
        "of the latter, averaged over replicates", "mean_r sqrt(mean_q (f - f_ref)^2 / mean_q f_ref^2)",
    ),
    **{
        name: Variable(_BY_SOURCE, quantity.unit, f"{quantity.meaning}, averaged over replicates", quantity.formula)
        for kind in QUANTITIES.values() for name, quantity in kind.items()
    },
    "failure_rate": Variable(
        _BY_SOURCE, "1", "share of replicates without a defined estimate, which enter no other measure; its Monte "
        "Carlo standard error is never below that of Agresti and Coull", "n_failed / (n_replicates + n_failed)",
    ),
    "decomposition_gap": Variable(
        _BY_SOURCE, "1", "relative difference of the bias-variance-covariance decomposition of the uniform average "
        "from its mean squared error", "(b^2 + V/H + (1 - 1/H) C) / direct_mse - 1",
    ),
    "correlation_gap": Variable(
        _BY_SOURCE, "1", "the same with covariance told by the mean variance and the correlation over redraws",
        "(b^2 + V/H + (1 - 1/H) correlation V) / direct_mse - 1",
    ),
    "query_correlation_gap": Variable(
        _BY_SOURCE, "1", "the same with the correlation over query points in place of that over redraws",
        "(b^2 + V/H + (1 - 1/H) query_correlation V) / direct_mse - 1",
    ),
    "equivalent_heads": Variable(
        _BY_SOURCE, "1", "number of heads whose uniform average would have the variance of the combined estimate, at "
        "the same mean variance and covariance",
        "(mean_variance - mean_covariance) / (ensemble_variance - mean_covariance)",
    ),
}  # fmt: skip
"""Measures beside those of an ensemble, NaN where they have no meaning: those computed of each replicate by itself and
averaged, numbers of random instances among them, and below them those that follow from other measures."""

INDEXED_MEASURES: dict[str, Variable] = {
    "hdi": Variable(
        ("cell", "index"), "see index", "head diversity indices; `output` comes from the estimates, the others from "
        "the geometry of the projections", "see the names along `index`",
    ),
}  # fmt: skip

HEAD_MEASURES: dict[str, Variable] = {
    "head_squared_bias": Variable(
        ("cell", "head"), "Y^2", "squared bias of each head, averaged over queries; estimated without bias",
        "mean_q (E f_h(x_q) - m(x_q))^2",
    ),
    "combination_weight": Variable(
        ("cell", "head"), "1", "weight of each head in the ensemble; with a Monte Carlo error where it follows from "
        "estimated errors of heads", "a_h",
    ),
}  # fmt: skip

PAIR_MEASURES: dict[str, Variable] = {
    "head_covariance": Variable(
        _PAIRS, "Y^2", "covariance of heads over redraws, averaged over queries; variances on the diagonal",
        "mean_q Cov(f_i(x_q), f_j(x_q))",
    ),
    "head_error_moment": Variable(
        _PAIRS, "Y^2", "second moment of head errors, averaged over queries; mean squared errors on the diagonal",
        "mean_q E (f_i - m)(f_j - m)",
    ),
}  # fmt: skip

_COUNTS: dict[str, Variable] = {
    "n_replicates": Variable(("cell",), "1", "replicates that entered the measures"),
    "n_failed": Variable(("cell",), "1", "replicates without a defined estimate: counted, never redrawn"),
    "n_batches": Variable(("cell",), "1", "batches folded into the measures"),
    "precision_reached": Variable(("cell",), "bool", "whether every wanted Monte Carlo error was met"),
    "n_looks": Variable(("cell",), "1", "looks at the cell so far: each decided whether more replicates are wanted"),
    "look_replicates": Variable(("cell", "look"), "1", "replicates at each look, failed ones included; then 0"),
    "query_point": Variable(("cell", "query", "feature"), "X", "query points of the cells that report by query"),
    "inapplicable": Variable(
        _BY_SOURCE, "text", "why a theory does not apply to a cell; empty where it does"
    ),
    "optimum_share": Variable(
        ("figure", "cell"), "1", "share of draws from the joint distribution of the estimates in which the cell has "
        "the least value among those that a figure of an optimum compares; NaN in other cells",
    ),
    "wrong_pair_share": Variable(
        ("figure", "cell", "index"), "1", "share of pairs of cells of which that with the larger diversity index has "
        "the larger value, among the cells that a figure of an ordering compares with this one; NaN in other cells",
    ),
    "wrong_pair_share_mcse": Variable(
        ("figure", "cell", "index"), "1", "Monte Carlo standard error of wrong_pair_share, over draws from the joint "
        "distribution of the estimates",
    ),
}  # fmt: skip

_LEVEL = "corrected for the numbers of comparisons and claims, holding at all looks together"
_VERDICTS: dict[str, Variable] = {
    "verdict": Variable(("claim",), "text", "supported, contradicted or inconclusive"),
    "declared_verdict": Variable(("claim",), "text", "verdict that the design declared before the run"),
    "statement": Variable(("claim",), "text", "the claim in words"),
    "statistic": Variable(("claim",), "text", "what was estimated, in the cell or pair that decides the claim"),
    "no_verdict_because": Variable(("claim",), "text", "why the deciding statistic allows no verdict, if so"),
    "verdict_estimate": Variable(("claim",), "see statistic", "estimate of the deciding statistic"),
    "verdict_mcse": Variable(
        ("claim",), "see statistic", "error of verdict_estimate: Monte Carlo, and numerical of exact theory; over the "
        "population that verdict_draws names, if any; NaN of a statistic that is no smooth function of estimates",
    ),
    "verdict_mcse_given": Variable(
        ("claim",), "see statistic", "the same given the query points and heads that were drawn"
    ),
    "verdict_draws": Variable(
        ("claim",), "text", "which random query points and heads the claim rests on: a population, or drawn once"
    ),
    "these_draws": Variable(("claim",), "text", "why the claim speaks of the draw alone, as its design says"),
    "claimed_value": Variable(("claim",), "see statistic", "value or bound claimed"),
    "claimed_lower": Variable(("claim",), "see statistic", "lower end of the interval claimed, margin included"),
    "claimed_upper": Variable(("claim",), "see statistic", "upper end of the interval claimed, margin included"),
    "confidence_lower": Variable(("claim",), "see statistic", "the truth lies below with no more than the level"),
    "confidence_upper": Variable(("claim",), "see statistic", "the truth lies above with no more than the level"),
    "p_against": Variable(("claim",), "1", f"p-value against the claim, {_LEVEL}: below the level it is contradicted"),
    "p_in_favour": Variable(("claim",), "1", f"p-value for the claim, {_LEVEL}: below the level it is supported"),
    "verdict_comparisons": Variable(("claim",), "1", "number of comparisons in the claim"),
    "comparison_claim": Variable(("comparison",), "text", "claim that the comparison belongs to"),
    "comparison_statistic": Variable(("comparison",), "text", "what was estimated"),
    "comparison_part_of": Variable(("comparison",), "text", "comparison that it is a part of, if it is one"),
    "comparison_estimate": Variable(("comparison",), "see comparison_statistic", "estimate"),
    "comparison_mcse": Variable(("comparison",), "see comparison_statistic", "its error, as of verdict_mcse"),
    "comparison_mcse_given": Variable(("comparison",), "see comparison_statistic", "as verdict_mcse_given"),
    "comparison_claimed_lower": Variable(("comparison",), "see comparison_statistic", "as claimed_lower"),
    "comparison_claimed_upper": Variable(("comparison",), "see comparison_statistic", "as claimed_upper"),
    "comparison_confidence_lower": Variable(("comparison",), "see comparison_statistic", "as confidence_lower"),
    "comparison_confidence_upper": Variable(("comparison",), "see comparison_statistic", "as confidence_upper"),
    "comparison_p_against": Variable(("comparison",), "1", "as p_against, by Holm's method; of parts uncorrected"),
    "comparison_p_in_favour": Variable(("comparison",), "1", "as p_in_favour"),
    "comparison_no_verdict_because": Variable(("comparison",), "text", "as no_verdict_because"),
}  # fmt: skip


def _mcse(name: str, variable: Variable) -> tuple[str, Variable]:
    dims = tuple(d for d in variable.dims if d != "source")
    meaning = f"standard error of {name}: over the population of a cell that has one, else given its draws"
    return f"{name}_mcse", Variable(dims, variable.unit, meaning)


def _mcse_given(name: str, variable: Variable) -> tuple[str, Variable]:
    dims = tuple(d for d in variable.dims if d != "source")
    meaning = f"Monte Carlo standard error of {name} given the query points and heads that were drawn"
    return f"{name}_mcse_given", Variable(dims, variable.unit, meaning)


def _gain(name: str, variable: Variable) -> tuple[str, Variable]:
    meaning = f"variance of {name} over a population of query points, over what theory as a control leaves"
    return f"{name}_gain", Variable(("cell",), "1", meaning)


def _numerical_error(name: str, variable: Variable) -> tuple[str, Variable]:
    dims = tuple(d for d in variable.dims if d != "source")
    meaning = f"bound of the numerical error of {name} by exact theory, estimated on coarser grids or by randomisation"
    return f"{name}_numerical_error", Variable(dims, variable.unit, meaning)


def _by_query(name: str, variable: Variable) -> tuple[str, Variable]:
    meaning = variable.meaning.replace(", averaged over queries", "").replace(" and queries", "")
    return f"{name}_by_query", Variable((*variable.dims, "query"), variable.unit, f"{meaning}, at each query")


def _registry() -> dict[str, Variable]:
    measured = MEASURES | STATISTICS | INDEXED_MEASURES | HEAD_MEASURES | PAIR_MEASURES
    by_query = dict(_by_query(*item) for item in MEASURES.items())
    with_errors = measured | by_query
    mcse = dict(_mcse(*item) for item in with_errors.items())
    mcse |= dict(_mcse_given(*item) for item in measured.items())
    numerical = dict(_numerical_error(*item) for item in (MEASURES | by_query).items())
    gain = dict(_gain(*item) for item in MEASURES.items())
    return with_errors | mcse | gain | numerical | _COUNTS | _VERDICTS


VARIABLES: dict[str, Variable] = _registry()


def labelled(arrays: Mapping[str, Any], coords: Mapping[str, Any], attrs: Mapping[str, Any]) -> xr.Dataset:
    """Return a data set of registered variables, each with its meaning in its attributes.

    Parameters
    ----------
    arrays
        Array of each variable, by registered name; its shape must fit the registered dimensions.
    coords, attrs
        Coordinates and global attributes, as `xarray.Dataset` takes them.

    Raises
    ------
    KeyError
        If a name is not registered.
    ValueError
        If an array does not have the registered dimensions.
    """
    variables = {}
    for name, array in arrays.items():
        described = VARIABLES[name]
        if np.ndim(array) != len(described.dims):
            raise ValueError(f"{name} has {np.ndim(array)} dimensions; {described.dims} are registered")
        text = {"long_name": described.meaning, "units": described.unit, "formula": described.formula}
        variables[name] = (described.dims, array, {k: v for k, v in text.items() if v})
    return xr.Dataset(variables, coords=coords, attrs=dict(attrs))


def coordinates_of(cells: xr.Dataset) -> list[dict[str, Any]]:
    """Return the settings of each cell by name, for `level`, `selected` and `by_levels`."""
    columns = {str(name): values for name, values in cells.coords.items() if values.dims == ("cell",)}
    rows = zip(*(values.values.tolist() for values in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]
