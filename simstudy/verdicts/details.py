"""What has a length of its own in each cell: contributions of blocks, heads, pairs of heads, query points.

Rows of all cells follow one another (contiguous ragged arrays of the CF conventions), so that nothing is padded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from simstudy.data.heads import query_points
from simstudy.design import measures
from simstudy.execution.account import Account
from simstudy.verdicts.predictions import Theory

ATTRIBUTES = ("study", "profile", "title", "engine", "simstudy_version", "commit")
"""Attributes of the results that their details have as well."""


def details(
    accounts: Sequence[Account],
    theories: Sequence[Mapping[str, Theory]],
    coordinates: Mapping[str, Any],
    attributes: Mapping[str, Any],
) -> xr.Dataset:
    """Return the details of all cells, as laid out in the registry of variables, with what theories say by source."""
    measured = [account.performance for account in accounts]
    queries = [_queries(account, theory) for account, theory in zip(accounts, theories, strict=True)]
    asked = list(dict.fromkeys(name for each in queries for name in each if name != "query_point"))
    n_members = [len(p.estimate["head_squared_bias"]) if p else 0 for p in measured]
    arrays: dict[str, Any] = {
        "n_blocks": [len(p.contribution["failure_rate"]) if p else 0 for p in measured],
        "n_used_blocks": [p.n_blocks if p else 0 for p in measured],
        "n_nets": [p.n_nets if p else 0 for p in measured],
        "n_members": n_members,
        "n_pairs": np.square(n_members),
        "n_queries": [len(each.get("query_point", ())) for each in queries],
        **_contributions([p.contribution for p in measured if p]),
        **{name: np.concatenate([each[name] for each in queries if each], axis=-1)
           for name in asked},
    }  # fmt: skip
    for name in sorted({name for p in measured if p for name in p.remainder}):
        arrays[f"{name}_remainder"] = [p.remainder.get(name, 0.0) if p else 0.0 for p in measured]
    for name in measures.HEAD_MEASURES | measures.PAIR_MEASURES:
        arrays[name] = np.concatenate([np.zeros(0), *(p.estimate[name].ravel() for p in measured if p)])
        for suffix, performances in both_errors(accounts):
            rows = (p.mcse[name].ravel() for p in performances if p)
            arrays[name + suffix] = np.concatenate([np.zeros(0), *rows])
    if asked:
        arrays["query_point"] = _points([each["query_point"] for each in queries if each])
    coords = {**coordinates, "index": list(measures.INDICES)} | ({"source": list(measures.SOURCES)} if asked else {})
    made = measures.labelled(arrays, coords, {name: attributes[name] for name in ATTRIBUTES})
    for dimension, count in measures.LENGTHS.items():
        made[count].attrs["sample_dimension"] = dimension
    return made


def both_errors(accounts: Sequence[Account]) -> list[tuple[str, list[Any]]]:
    """Performances by the ending of their errors: over a population where there is one, and given what was drawn."""
    over = [account.performance for account in accounts]
    return [("_mcse", over), ("_mcse_given", [p and (p.given or p) for p in over])]


def _contributions(measured: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Contributions of the blocks of all cells, by name; NaN of a measure that a cell does not have."""
    arrays = {}
    for name in dict.fromkeys(name for given in measured for name in given):
        columns = (len(measures.INDICES),) if len(measures.DETAILS[f"{name}_contribution"].dims) > 1 else ()
        rows = [given.get(name, np.full((len(given["failure_rate"]), *columns), np.nan)) for given in measured]
        arrays[f"{name}_contribution"] = np.concatenate(rows)
    return arrays


def _queries(account: Account, theories: Mapping[str, Theory]) -> dict[str, np.ndarray]:
    measured = account.performance
    if measured is None or not account.planned.by_query:
        return {}
    n_queries = account.planned.cell.n_queries
    arrays: dict[str, Any] = {"query_point": query_points(account.planned.cell)[:n_queries]}
    for measure in measures.MEASURES:
        name = f"{measure}_by_query"
        undefined = np.full(n_queries, np.nan)
        told = [theories[source].by_query.get(measure, undefined) for source in measures.THEORIES]
        arrays[name] = np.array([measured.estimate[name], *told])
        arrays[f"{name}_mcse"] = measured.mcse[name]
        arrays[f"{name}_numerical_error"] = theories["exact"].errors_by_query.get(measure, undefined)
    return arrays


def _points(points: Sequence[np.ndarray]) -> np.ndarray:
    """Query points of all cells, (query, feature); NaN beyond the features of a cell."""
    width = max(each.shape[1] for each in points)
    return np.concatenate(
        [np.pad(each.astype(float), ((0, 0), (0, width - each.shape[1])), constant_values=np.nan) for each in points]
    )
