"""Empirical measures and theory side by side in one labelled data set."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import xarray as xr

from simstudy.data.heads import query_points
from simstudy.design.document import Design
from simstudy.design.figures import BaseFigure
from simstudy.design.measures import (
    HEAD_MEASURES,
    INDICES,
    MEASURES,
    PAIR_MEASURES,
    SOURCES,
    STATISTICS,
    THEORIES,
    labelled,
)
from simstudy.design.settings import TABLE_OF
from simstudy.design.settings.systems import NAMES
from simstudy.execution.ledger import Account
from simstudy.execution.provenance import provenance
from simstudy.verdicts.figure_data import stored_numbers
from simstudy.verdicts.predictions import Theory, predict

_NUMERIC = {
    "n_keys", "n_features", "noise_sd", "n_heads", "head_dim", "total_dim", "angle", "spread", "head_seed", "bandwidth",
    "batch_size",
}  # fmt: skip


def assemble(
    design: Design, accounts: Sequence[Account], tell: Callable[[int], None] = lambda _: None, device: str = "cpu"
) -> xr.Dataset:
    """Return all measures of all cells, empirical and theoretical, as laid out in the registry of variables.

    Parameters
    ----------
    design
        The design that was run.
    accounts
        One account for each cell of the design, in its order.
    tell
        Called before the theory of each cell is evaluated, with the number of cells before it.
    device
        Device that computed the batches.
    """
    theories: list[dict[str, Theory]] = []
    predicted = predict([account.planned for account in accounts])
    for _ in accounts:
        tell(len(theories))
        theories.append(next(predicted))
    arrays = _counts(accounts)
    arrays |= _by_source(accounts, theories)
    size = max(account.planned.cell.heads.n_heads for account in accounts)
    for name, variable in (HEAD_MEASURES | PAIR_MEASURES).items():
        arrays |= _padded(accounts, name, (size,) * (len(variable.dims) - 1))
    arrays |= _padded(accounts, "hdi", (len(INDICES),))
    if any(account.planned.by_query for account in accounts):
        arrays |= _queries(accounts, theories)
    coords: dict[str, Any] = coordinates(design)
    coords |= {"source": list(SOURCES), "index": list(INDICES)}
    figures = {name: figure for name, figure in design.figures.items() if figure.stored}
    if figures:
        coords["figure"] = list(figures)
        arrays |= _drawn(design, accounts, list(figures.values()))
    return labelled(arrays, coords, _attributes(design, device))


def coordinates(design: Design) -> dict[str, Any]:
    """Return every setting as a coordinate along ``cell``, and the grid that the cell belongs to."""
    labels = [planned.cell.coordinates for planned in design.cells]
    coords: dict[str, Any] = {"grid": ("cell", [planned.grid for planned in design.cells])}
    parameters = sorted({name for factors in design.factors.values() for name in factors if "." in name})
    for name in (*TABLE_OF, "bandwidth_rule", *parameters):
        column = [row.get(name, "") for row in labels]
        if name in _NUMERIC or ("." in name and not any(isinstance(value, str) and value for value in column)):
            column = [np.nan if value == "" else value for value in column]
        elif name != "seed":
            column = [str(value) for value in column]
        coords[name] = ("cell", column)
    return coords


def _counts(accounts: Sequence[Account]) -> dict[str, Any]:
    total = np.array([account.done * account.batch_size for account in accounts])
    failed = np.array([account.n_failed for account in accounts])
    looks = np.zeros((len(accounts), max(len(account.looks) for account in accounts)), int)
    for row, account in zip(looks, accounts, strict=True):
        row[: len(account.looks)] = np.array(account.looks) * account.batch_size
    return {
        "n_replicates": total - failed,
        "n_failed": failed,
        "n_batches": np.array([account.done for account in accounts]),
        "precision_reached": np.array([account.reached for account in accounts]),
        "n_looks": np.array([len(account.looks) for account in accounts]),
        "look_replicates": looks,
    }


def _drawn(design: Design, accounts: Sequence[Account], figures: Sequence[BaseFigure]) -> dict[str, np.ndarray]:
    """What figures show of draws from the joint distribution of the estimates: optima, and pairs in the wrong order."""
    arrays: dict[str, np.ndarray] = {}
    for position, figure in enumerate(figures):
        inside = [i for i, account in enumerate(accounts) if account.planned.grid == figure.grid]
        numbers = stored_numbers(figure, [accounts[i] for i in inside], design.factors[figure.grid])
        for name, values in numbers.items():
            whole = np.full((len(figures), len(accounts), *values.shape[1:]), np.nan)
            arrays.setdefault(name, whole)[position, inside] = values
    return arrays


def _by_source(accounts: Sequence[Account], theories: Sequence[dict[str, Theory]]) -> dict[str, Any]:
    reasons = [["" for _ in accounts], *([theory[name].reason for theory in theories] for name in THEORIES)]
    arrays: dict[str, Any] = {"inapplicable": np.array(reasons, dtype=object)}
    measured = {name for account in accounts for name in account.planned.cell.statistics}
    for name in [name for name in MEASURES | STATISTICS if name not in NAMES or name in measured]:
        empirical = [float(a.performance.estimate.get(name, np.nan)) if a.performance else np.nan for a in accounts]
        predicted = [[float(theory[source].measures.get(name, np.nan)) for theory in theories] for source in THEORIES]
        arrays[name] = np.array([empirical, *predicted])
        arrays[f"{name}_mcse"] = np.array(
            [float(a.performance.mcse.get(name, np.nan)) if a.performance else np.nan for a in accounts]
        )
    # Also where so many replicates failed that there is no Monte Carlo error.
    arrays["failure_rate"][0] = [a.n_failed / max(a.done * a.batch_size, 1) for a in accounts]
    for name in MEASURES:
        arrays[f"{name}_numerical_error"] = np.array([theory["exact"].errors.get(name, np.nan) for theory in theories])
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


def _queries(accounts: Sequence[Account], theories: Sequence[dict[str, Theory]]) -> dict[str, Any]:
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
        errors, numerical = (np.full((len(accounts), size), np.nan) for _ in range(2))
        arrays |= {f"{name}_mcse": errors, f"{name}_numerical_error": numerical}
        for i, measured in asked:
            n_queries = len(measured.estimate[name])
            values[0, i, :n_queries] = measured.estimate[name]
            for position, source in enumerate(THEORIES, start=1):
                values[position, i, :n_queries] = theories[i][source].by_query.get(measure, np.nan)
            numerical[i, :n_queries] = theories[i]["exact"].errors_by_query.get(measure, np.nan)
            errors[i, :n_queries] = measured.mcse[name]
    return arrays


def _attributes(design: Design, device: str) -> dict[str, Any]:
    source = provenance(device, [planned.cell for planned in design.cells])
    seeds = sorted({planned.cell.simulation.seed for planned in design.cells})
    return {
        "seed": ", ".join(map(str, seeds)),
        "title": design.study.title,
        "study": design.study.name,
        "profile": design.profile,
        "aim": design.study.aim,
        "design": design.text,
        "design_hash": hashlib.sha256(design.text.encode()).hexdigest(),
        "engine": source["engine"],
        "simstudy_version": source["simstudy"],
        "commit": source["commit"],
        "libraries": ", ".join(f"{name} {version}" for name, version in source["libraries"].items()),
        "data": ", ".join(f"{path} {digest}" for digest, path in source["data"].items()) or "generated",
        "factors": "; ".join(f"{grid}: {', '.join(names)}" for grid, names in design.factors.items()),
        "missing_values": "NaN where a measure is undefined or a formula does not apply; see `inapplicable`",
    }
