"""Results of several studies as one data set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from simstudy.design.measures import coordinates_of, described
from simstudy.design.settings.cell import Coordinates
from simstudy.errors import UserError
from simstudy.results import FILES, OF_STUDY, factors_of, files_of, text_of


def concat(studies: Sequence[xr.Dataset]) -> xr.Dataset:
    """Join the results of several studies along ``cell``, ``claim`` and ``comparison``.

    Study, profile and engine become settings along ``cell``; of the other attributes those are kept that all studies
    agree on.  A claim is named by its study: ``"my-study/third-head-helps"``; its verdict is that of its study, at the
    level of that study.  Draws that figures show are left out.

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
        If there are none, some are not the results of a study, or a cell is in two of them.
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
    tables = [table for dimension in ("claim", "comparison") if (table := _tables(studies, dimension)) is not None]
    joined = xr.merge([joined, *tables], combine_attrs="override")
    joined.attrs["factors"] = "; ".join(f"{grid}: {', '.join(names)}" for grid, names in factors.items())
    joined.encoding[FILES] = [path for each in studies for path in files_of(each)]
    return described(joined)


def _part(results: xr.Dataset) -> xr.Dataset:
    """What lies along the cells of one study, with what tells it from others as settings."""
    apart = [name for name in ("claim", "comparison", "figure") if name in results.dims]
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


def _tables(studies: Sequence[xr.Dataset], dimension: str) -> xr.Dataset | None:
    """Return what lies along ``claim`` or ``comparison`` in all studies, claims named by their study."""
    parts = []
    for each in (each for each in studies if dimension in each.dims):
        study = each.attrs.get("study", "")
        table = each[[name for name, values in each.data_vars.items() if values.dims == (dimension,)]]
        if dimension == "claim":
            table = table.assign_coords(claim=[f"{study}/{name}" for name in each.claim.values])
        else:
            table = table.drop_vars("comparison")
            table["comparison_claim"] = dimension, [f"{study}/{name}" for name in each.comparison_claim.values]
        parts.append(table)
    if not parts:
        return None
    joined = _joined(parts, dimension)
    return joined if dimension == "claim" else joined.assign_coords(comparison=np.arange(joined.sizes["comparison"]))


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
