"""Empirical measures and theory side by side in one labelled data set: the only module that sees both.

Imports NumPy, xarray, cells, design, heads, ledger, provenance, settings, theory and variables.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from simstudy.cells import Cell
from simstudy.design import Design
from simstudy.heads import key_projections, query_points, query_projections
from simstudy.ledger import Account
from simstudy.provenance import engine, provenance
from simstudy.settings import TABLE_OF
from simstudy.theory import leading_order, measures_by_query, predicted_measures, weighting
from simstudy.theory.leading import Prediction
from simstudy.variables import HEAD_MEASURES, INDICES, MEASURES, PAIR_MEASURES, SOURCES, STATISTICS, labelled

_NUMERIC = {
    "n_keys", "n_features", "noise_sd", "n_heads", "head_dim", "total_dim", "angle", "spread", "head_seed", "bandwidth",
    "batch_size",
}  # fmt: skip


def assemble(design: Design, accounts: Sequence[Account]) -> xr.Dataset:
    """Return all measures of all cells, empirical and theoretical, as laid out in the registry of variables.

    Parameters
    ----------
    design
        The design that was run.
    accounts
        One account for each cell of the design, in its order.
    """
    theories = [predict(account.planned.cell) for account in accounts]
    arrays = _counts(accounts)
    arrays |= _by_source(accounts, theories)
    size = max(account.planned.cell.heads.n_heads for account in accounts)
    for name, variable in (HEAD_MEASURES | PAIR_MEASURES).items():
        arrays |= _padded(accounts, name, (size,) * (len(variable.dims) - 1))
    arrays |= _padded(accounts, "hdi", (len(INDICES),))
    if any(account.planned.by_query for account in accounts):
        arrays |= _queries(accounts, theories)
    coords: dict[str, Any] = coordinates(design, accounts)
    coords |= {"source": list(SOURCES), "index": list(INDICES)}
    return labelled(arrays, coords, _attributes(design))


def coordinates(design: Design, accounts: Sequence[Account]) -> dict[str, Any]:
    """Return every setting as a coordinate along ``cell``, and the grid that the cell belongs to."""
    labels = [account.planned.cell.coordinates for account in accounts]
    coords: dict[str, Any] = {"grid": ("cell", [account.planned.grid for account in accounts])}
    for name in (*TABLE_OF, "bandwidth_rule"):
        column = [row[name] for row in labels]
        if name in _NUMERIC:
            column = [np.nan if value == "" else value for value in column]
        elif name != "seed":
            column = [str(value) for value in column]
        coords[name] = ("cell", column)
    return coords


class Theory(NamedTuple):
    """Measures of a cell by theory: averaged over queries, at each query, and why they do not apply (or nothing)."""

    measures: dict[str, float]
    by_query: dict[str, np.ndarray]
    reason: str


def predict(cell: Cell) -> Theory:
    """Return the leading-order measures of a cell; NaN where the formula does not apply."""
    if reason := _outside_theory(cell):
        return Theory({}, {}, reason)
    prediction = leading_order(cell, key_projections(cell), query_projections(cell), query_points(cell))
    weights = _weights(cell, prediction)
    return Theory(predicted_measures(prediction, weights), measures_by_query(prediction, weights), prediction.reason)


def _outside_theory(cell: Cell) -> str:
    """Why no theory speaks of a cell; empty if one may."""
    if cell.heads.redrawn:
        return "heads are redrawn in every replicate: the formula holds for given heads"
    if cell.estimator.key_scale == "normalised":
        return "projected keys are normalised: the formula holds for raw ones"
    if cell.estimator.combination.rule == "fitted":
        return "weights are fitted in every replicate: the formula holds for given weights"
    return ""


def _weights(cell: Cell, prediction: Prediction) -> np.ndarray:
    """Weights of the cell, or those that are optimal by the theory's own second moments of errors."""
    combination = cell.estimator.combination
    if combination.rule != "optimal":
        return np.array(cell.weights)
    if prediction.reason:
        return np.full(cell.heads.n_heads, np.nan)
    moments = weighting.error_moments(prediction)
    if combination.within == "unconstrained":
        return weighting.unconstrained_weights(moments).weights
    return _OPTIMA[combination.within](moments.errors).weights


_OPTIMA = {
    "affine": weighting.optimal_weights,
    "simplex": weighting.simplex_weights,
    "front_greater": weighting.front_greater_weights,
}


def _counts(accounts: Sequence[Account]) -> dict[str, Any]:
    total = np.array([account.done * account.batch_size for account in accounts])
    failed = np.array([account.n_failed for account in accounts])
    # Agresti and Coull (1998): two failures and two successes are added, so that no failure does not mean no error.
    share = (failed + 2) / (total + 4)
    return {
        "n_replicates": total - failed,
        "n_failed": failed,
        "failure_rate": failed / np.maximum(total, 1),
        "failure_rate_mcse": np.sqrt(share * (1 - share) / (total + 4)),
        "n_batches": np.array([account.done for account in accounts]),
        "precision_reached": np.array([account.reached for account in accounts]),
    }


def _by_source(accounts: Sequence[Account], theories: Sequence[Theory]) -> dict[str, Any]:
    reasons = [["" for _ in accounts], [theory.reason for theory in theories]]
    arrays: dict[str, Any] = {"inapplicable": np.array(reasons, dtype=object)}
    for name in MEASURES | STATISTICS:
        empirical = [float(a.performance.estimate[name]) if a.performance else np.nan for a in accounts]
        leading = [float(theory.measures.get(name, np.nan)) for theory in theories]
        arrays[name] = np.array([empirical, leading])
        arrays[f"{name}_mcse"] = np.array(
            [float(a.performance.mcse[name]) if a.performance else np.nan for a in accounts]
        )
    return arrays


def _padded(accounts: Sequence[Account], name: str, shape: tuple[int, ...]) -> dict[str, Any]:
    """Estimates and MCSEs of an array-valued measure, NaN beyond the size of a cell."""
    arrays = {}
    for suffix, field in (("", "estimate"), ("_mcse", "mcse")):
        column = np.full((len(accounts), *shape), np.nan)
        for row, account in zip(column, accounts, strict=True):
            if account.performance:
                values = getattr(account.performance, field)[name]
                row[tuple(slice(0, size) for size in values.shape)] = values
        arrays[name + suffix] = column
    return arrays


def _queries(accounts: Sequence[Account], theories: Sequence[Theory]) -> dict[str, Any]:
    """Measures at each query in the cells that ask for it, NaN elsewhere."""
    asked = [(i, a.performance) for i, a in enumerate(accounts) if a.planned.by_query and a.performance]
    size = max((len(measured.estimate["mse_by_query"]) for _, measured in asked), default=1)
    n_features = max(account.planned.cell.data.n_features for account in accounts)
    points = np.full((len(accounts), size, n_features), np.nan)
    for i, _ in asked:
        given = query_points(accounts[i].planned.cell)
        points[i, : given.shape[0], : given.shape[1]] = given
    arrays: dict[str, Any] = {"query_point": points}
    for measure in MEASURES:
        name = f"{measure}_by_query"
        values = arrays[name] = np.full((len(SOURCES), len(accounts), size), np.nan)
        errors = arrays[f"{name}_mcse"] = np.full((len(accounts), size), np.nan)
        for i, measured in asked:
            n_queries = len(measured.estimate[name])
            values[0, i, :n_queries] = measured.estimate[name]
            values[1, i, :n_queries] = theories[i].by_query.get(measure, np.nan)
            errors[i, :n_queries] = measured.mcse[name]
    return arrays


def _attributes(design: Design) -> dict[str, Any]:
    source = provenance()
    seeds = sorted({planned.cell.simulation.seed for planned in design.cells})
    return {
        "seed": ", ".join(map(str, seeds)),
        "title": design.study.title,
        "study": design.study.name,
        "profile": design.profile,
        "aim": design.study.aim,
        "design": design.text,
        "design_hash": hashlib.sha256(design.text.encode()).hexdigest(),
        "engine": engine(),
        "simstudy_version": source["simstudy"],
        "commit": source["commit"],
        "libraries": ", ".join(f"{name} {version}" for name, version in source["libraries"].items()),
        "factors": "; ".join(f"{grid}: {', '.join(names)}" for grid, names in design.factors.items()),
        "missing_values": "NaN where a measure is undefined or a formula does not apply; see `inapplicable`",
    }
