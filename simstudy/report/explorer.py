"""What a reader can explore: the cells of a study as plain data, with addresses, theory, and the claims on them."""

import math
from typing import Any

import numpy as np
import xarray as xr

from simstudy.design.claims import BaseClaim
from simstudy.design.document import Design
from simstudy.design.measures import MEASURES, STATISTICS, THEORIES, coordinates_of
from simstudy.design.settings.levels import level, selected
from simstudy.design.written import is_shipped
from simstudy.report.labels import level_name, measure_name, setting_name

MAX_CELLS = 4000
"""Cells that a page holds as data: about two megabytes."""
_DIGITS = 6
"""Significant digits: more than any error allows; `cells.csv` has all."""


def explored(results: xr.Dataset, design: Design) -> dict[str, Any]:
    """Return the cells of a study as a page holds them: plain data without NaN, to be written as JSON."""
    rows, measures = coordinates_of(results), _measures(results)
    replicates, failed = results["n_replicates"].values.tolist(), results["n_failed"].values.tolist()
    cells = [
        {
            "number": number,
            "levels": [level_name(level(row, factor)) for factor in design.factors[planned.grid]],
            "replicates": replicates[number],
            "failed": failed[number],
            "seed": planned.cell.simulation.seed,
            # Cells with the same see the same data; a replicate of them is told by its number.
            "data": planned.cell.data_id[:12],
            "values": [column[number] for column in measures.values()],
        }
        for number, (planned, row) in enumerate(zip(design.cells[:MAX_CELLS], rows, strict=False))
    ]
    return {
        "measures": [
            {"name": name, "label": f"diversity: {index}" if index else measure_name(measure)}
            for name in measures
            for measure, _, index in (name.partition(" "),)
        ],
        "grids": [_grid(name, design) for name in design.factors],
        "cells": cells,
        "claims": {name: _claim(claim, design) for name, claim in design.claims.items()},
        "replay": f"simstudy replay {argument(design)} --profile {design.profile}",
        "n_left_out": max(len(design.cells) - MAX_CELLS, 0),
    }


def _grid(name: str, design: Design) -> dict[str, Any]:
    numbers = [number for number, planned in enumerate(design.cells[:MAX_CELLS]) if planned.grid == name]
    return {
        "name": name,
        "title": design.titles[name],
        "factors": [{"name": factor, "label": setting_name(factor)} for factor in design.factors[name]],
        "cells": [numbers[0], numbers[-1] + 1] if numbers else [0, 0],
    }


def _claim(claim: BaseClaim, design: Design) -> dict[str, Any]:
    """Which cells a claim selects, and how they are best looked at."""
    wheres = [claim.where, claim.where | (getattr(claim, "versus", None) or {})]
    index = f" {claim.index}" if claim.index else ""
    return {
        "statement": claim.words,
        "grid": claim.grid,
        "measure": claim.measure + index,
        "x": getattr(claim, "x", ""),
        "cells": [
            number for number, planned in enumerate(design.cells[:MAX_CELLS])
            if planned.grid == claim.grid and any(selected(planned.cell.coordinates, where) for where in wheres)
        ],
    }  # fmt: skip


def _measures(results: xr.Dataset) -> dict[str, list[list[float | None] | None]]:
    """Estimate, MCSE, exact theory and leading order of each measure that some cell has, by name and cell."""
    columns = {}
    for name in MEASURES | STATISTICS:
        if name in results:
            sources = [results[name].sel(source=source).values for source in ("empirical", *THEORIES)]
            columns[name] = [sources[0], results[f"{name}_mcse"].values, *sources[1:]]
    for index in results["index"].values.tolist():
        columns[f"hdi {index}"] = [results[name].sel(index=index).values for name in ("hdi", "hdi_mcse")]
    return {
        name: [list(map(_plain, values)) if math.isfinite(values[0]) else None for values in np.transpose(column)]
        for name, column in columns.items()
        if np.isfinite(column[0]).any()
    }


def _plain(value: float) -> float | None:
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None


def argument(design: Design) -> str:
    """Return the design as a command takes it: by name if it is shipped, and by the name of its file else."""
    if design.path is None:
        return f"{design.study.name}.toml"
    return design.path.stem if is_shipped(design.path) else design.path.name
