"""Results of several studies as one data set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from simstudy.design.document import Confirmation
from simstudy.design.measures import coordinates_of, described
from simstudy.design.settings.levels import Coordinates
from simstudy.errors import UserError
from simstudy.execution.store import CONFIRMED
from simstudy.results import FILES, OF_STUDY, factors_of, files_of, text_of

_FOUND = ["verdict", "verdict_estimate", "verdict_mcse"]
"""What tells a claim that comes again from another of its name."""
_NAMES_OF_CLAIMS = {"claim": "claim", "comparison": "comparison_claim"}
"""Dimensions of what is judged, and where the claim is named along each."""


def concat(studies: Sequence[xr.Dataset]) -> xr.Dataset:
    """Join the results of several studies along ``cell``, ``claim`` and ``comparison``.

    Study, profile and engine become settings along ``cell``.  Other attributes are kept if all studies
    agree on them.  A claim gets the name of its run: ``"my-study/quick/third-head-helps"``, or for a confirmation
    ``"my-study/quick/confirmed/457dbbb61a08/third-head-helps"``.  Its verdict is that of the run, at the level of its
    study.  Draws of figures are left out.

    Parameters
    ----------
    studies
        Results as `run` or `open_results` returned them, or parts of their cells.

    Returns
    -------
    xarray.Dataset
        Variables as in each of them, with their units; NaN where a study has none.

    Raises
    ------
    UserError
        If there are none, some are not the results of a study, a cell is in two of them, or two claims have one name.
    """
    if not studies:
        raise UserError("concat: no results are given; give a list of what open_results or run returned")
    factors: dict[str, list[str]] = {}
    for each in studies:
        for grid, names in factors_of(each).items():
            factors[grid] = [*dict.fromkeys([*factors.get(grid, []), *names])]
    parts = _of_one_kind([_part(each) for each in studies])
    _require_different([row for part in parts for row in coordinates_of(part)])
    joined = _joined(parts, "cell")
    joined = xr.merge([joined, *_tables(studies)], combine_attrs="override")
    joined.attrs["factors"] = "; ".join(f"{grid}: {', '.join(names)}" for grid, names in factors.items())
    joined.encoding[FILES] = [path for each in studies for path in files_of(each)]
    return described(joined)


def _part(results: xr.Dataset) -> xr.Dataset:
    """What lies along the cells of one study, with what tells it from others as settings."""
    apart = [name for name in ("claim", "comparison", "figure", "drawn") if name in results.dims]
    own = {name: ("cell", [results.attrs[name]] * results.sizes["cell"]) for name in OF_STUDY if name in results.attrs}
    return results.drop_dims(apart).drop_attrs(deep=False).assign_attrs(results.attrs).assign_coords(own)


def _of_one_kind(parts: Sequence[xr.Dataset]) -> list[xr.Dataset]:
    """Give all parts the same settings, of one type each: "" or NaN where one means nothing in a study."""
    names = dict.fromkeys(str(name) for part in parts for name, c in part.coords.items() if c.dims == ("cell",))
    columns: dict[str, list[np.ndarray]] = {}
    for name in names:
        given = [part[name].values for part in parts if name in part.coords]
        text = any(values.dtype.kind in "OTU" for values in given)
        columns[name] = [
            _column(part[name].values if name in part.coords else None, part.sizes["cell"], text) for part in parts
        ]
    return [
        part.assign_coords({name: ("cell", columns[name][place]) for name in names}) for place, part in enumerate(parts)
    ]


def _column(values: np.ndarray | None, size: int, text: bool) -> np.ndarray:
    if values is None:
        return np.full(size, "" if text else np.nan, object if text else float)
    if not text or values.dtype.kind in "OTU":
        return values
    return np.array(["" if math.isnan(value) else f"{value:.15g}" for value in values], object)


def _joined(parts: Sequence[xr.Dataset], dimension: str) -> xr.Dataset:
    return xr.concat(
        parts, dimension, data_vars="all", coords="different", compat="equals", join="outer",
        combine_attrs="drop_conflicts", fill_value={"look_replicates": 0},
    )  # fmt: skip


def _tables(studies: Sequence[xr.Dataset]) -> list[xr.Dataset]:
    """Return what lies along ``claim`` and along ``comparison`` in all studies, claims that come twice once."""
    known: dict[str, xr.Dataset] = {}
    tables: dict[str, list[xr.Dataset]] = {name: [] for name in _NAMES_OF_CLAIMS}
    for run in (_with_named_claims(each) for each in studies if each.sizes.get("claim")):
        own = {claim: run[_FOUND].sel(claim=claim) for claim in run.claim.values}
        for claim in known.keys() & own.keys():
            if not known[claim].equals(own[claim]):
                raise UserError(f"concat: two claims have the name {claim}; give one of the studies another name")
        for dimension, names in _NAMES_OF_CLAIMS.items():
            table = run[[name for name, values in run.data_vars.items() if values.dims == (dimension,)]]
            new = np.array([claim not in known for claim in run[names].values])
            tables[dimension].append(table.isel({dimension: new}).drop_vars("comparison", errors="ignore"))
        known |= own
    joined = {dimension: _joined(parts, dimension) for dimension, parts in tables.items() if parts}
    if joined:
        joined["comparison"]["comparison"] = np.arange(joined["comparison"].sizes["comparison"])
    return list(joined.values())


def _with_named_claims(results: xr.Dataset) -> xr.Dataset:
    """Return results whose claims are named by the folder of their run; those of joined results are already."""
    if "study" in results.coords:
        return results
    run = [results.attrs["study"], results.attrs["profile"]]
    if results.attrs.get("seal"):
        run += [CONFIRMED, Confirmation(seal=results.attrs["seal"], beacon=results.attrs["beacon"]).name]
    named = {
        name: (dimension, ["/".join([*run, claim]) for claim in results[name].values])
        for dimension, name in _NAMES_OF_CLAIMS.items()
    }
    return results.assign_coords(claim=named.pop("claim")).assign(named)


def _require_different(rows: Sequence[Coordinates]) -> None:
    """Refuse a cell that is there twice: nothing would tell its two numbers apart."""
    seen: dict[Any, Coordinates] = {}
    for row in rows:
        key = tuple((name, text_of(row, name)) for name in row if name not in ("profile", "engine"))
        if key in seen:
            both = f"profiles {seen[key].get('profile')} and {row.get('profile')}"
            levels = ", ".join(f"{name} = {text_of(row, name)}" for name in ("study", "grid", *row)
                               if name in row and text_of(row, name) != "")  # fmt: skip
            raise UserError(f"concat: a cell is in two of the results ({both}); leave one out: {levels}")
        seen[key] = row
