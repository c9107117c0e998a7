"""What theory says between the levels of a factor, so that figures show it as curves and not as joined points."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import xarray as xr
from pydantic import ValidationError
from threadpoolctl import threadpool_limits

from simstudy.design.document import Design, PlannedCell
from simstudy.design.feasibility import impossibilities
from simstudy.design.figures import CurveFigure
from simstudy.design.measures import SOURCES, THEORIES, labelled
from simstudy.design.settings import TABLE_OF, FileKeys, GaussianKeys, Record
from simstudy.design.settings.cell import Cell, by_levels, selected
from simstudy.design.settings.ensembles import FixedBandwidth
from simstudy.verdicts.assemble import coordinates
from simstudy.verdicts.predictions import predict

MOST_ON_A_LINE = 16
"""Cells between the levels of one line at most: more would not make a curve look smoother."""
MOST_BETWEEN = 12
"""Cells between two neighbouring levels at most."""
BUDGET = {"exact": 100, "leading": 400}
"""Cells of one figure for which a theory is evaluated, so that a report takes seconds; see `_weight`."""
_UNIT = {"exact": 8, "leading": 64}
"""Pairs of heads times query points that cost as much as one cell of the budget."""
_SLOWER = 50
"""Times that exact theory takes longer where it cannot sum on one axis."""
_KEYS_UNIT = 256
"""Keys that cost as much, where they are merged: theory then sums over them."""
TOLD_BY = "told_by"
"""Coordinate along ``cell``: the theory that is evaluated for a cell between two levels."""


def theory_between(design: Design, figure: CurveFigure, cells: xr.Dataset) -> xr.Dataset:
    """Return what theory says of the measure of a figure between the levels of its factor x.

    Only along lines of cells of which two or more have a value by that theory, and where the setting may take values
    between its levels.  The number of cells is bounded, so that expensive theory may say nothing between the levels.

    Parameters
    ----------
    design
        That of the results.
    figure
        What the design declares.
    cells
        Results of the cells that the figure selects, in the order of the design.

    Returns
    -------
    xarray.Dataset
        The measure along ``source`` and ``cell``, with every setting as a coordinate, and ``told_by``: the theory that
        the cell is for.  NaN where that does not apply.
    """
    planned = [each for each in design.cells
               if each.grid == figure.grid and selected(each.cell.coordinates, figure.where)]  # fmt: skip
    between = {source: list(_between(source, figure, planned, cells, design.factors[figure.grid]))
               for source in THEORIES}  # fmt: skip
    every = [each for inside in between.values() for each in inside]
    told_by = np.repeat(THEORIES, [len(inside) for inside in between.values()])
    values = np.full((len(SOURCES), len(every)), np.nan)
    # Matrices of theory are small: threads of the numerical library would wait for one another.
    with threadpool_limits(1):
        for column, (theory, source) in enumerate(zip(predict(every), told_by, strict=True)):
            values[SOURCES.index(source), column] = theory[source].measures.get(figure.y, np.nan)
    found = labelled({figure.y: values}, {"source": list(SOURCES)}, {"factors": cells.attrs["factors"]})
    dense = design.model_copy(update={"cells": tuple(every)})
    return found.assign_coords({**coordinates(dense), TOLD_BY: ("cell", told_by)})


def _between(
    source: str, figure: CurveFigure, planned: Sequence[PlannedCell], cells: xr.Dataset, factors: tuple[str, ...]
) -> Iterator[PlannedCell]:
    """Yield the cells between neighbouring levels for which a theory is evaluated, line by line."""
    rows, along = [each.cell.coordinates for each in planned], cells[figure.x].values.astype(float)
    told = np.isfinite(cells[figure.y].sel(source=source).values)
    strata = by_levels(rows, [name for name in factors if name != figure.x], range(len(rows)))
    lines = [sorted(stratum, key=lambda cell: along[cell]) for stratum in strata if told[stratum].sum() > 1]
    n = _affordable(source, planned, lines)
    for low, high in (pair for line in lines for pair in itertools.pairwise(line)):
        for value in _values(along[low], along[high], n, figure.x_scale, _stands(planned[low].cell, figure.x)):
            cell = _moved(planned[low].cell, figure.x, value)
            if cell is not None:
                yield planned[low].model_copy(update={"cell": cell, "exact": source == "exact"})


def _affordable(source: str, planned: Sequence[PlannedCell], lines: Sequence[Sequence[int]]) -> int:
    """Return how many cells between two levels the budget of a theory allows on every line."""
    weight = sum(_weight(source, planned[high].cell) for line in lines for high in line[1:])
    gaps = max((len(line) - 1 for line in lines), default=1)
    return min(MOST_BETWEEN, -(-MOST_ON_A_LINE // gaps), int(BUDGET[source] / weight)) if weight else 0


def _weight(source: str, cell: Cell) -> float:
    """Time that a theory takes for a cell, which grows with the pairs of heads at each query point."""
    merged = cell.data.n_keys / _KEYS_UNIT if cell.estimator.transformation.kind == "merge" else 0.0
    slower = _SLOWER if source == "exact" and not _on_one_axis(cell) else 1
    return slower * max(1.0, merged, cell.heads.n_heads**2 * cell.n_queries / _UNIT[source])


def _on_one_axis(cell: Cell) -> bool:
    """Whether a kernel depends on one linear function of a Gaussian key; or exact theory is a formula, or over rows."""
    if cell.instance is not None or not cell.estimator.plain or isinstance(cell.data.key_distribution, FileKeys):
        return True
    linear = cell.estimator.logits == "dot_product" or cell.heads.head_dim == 1
    return linear and isinstance(cell.data.key_distribution, GaussianKeys)


def _values(low: float, high: float, n: int, scale: str, stands: Any) -> list[float]:
    """Return n values between two levels, evenly spread on the axis; whole ones where the setting is a count."""
    spread = np.geomspace if scale == "log" and low > 0 else np.linspace
    values = spread(low, high, n + 2)[1:-1]
    if isinstance(stands, int):
        values = np.unique(values.round())
    return [value for value in values.tolist() if low < value < high]


def _stands(cell: Cell, factor: str) -> Any:
    """Return the value of a factor that stands in a cell."""
    name, _, parameter = factor.partition(".")
    setting = getattr(getattr(cell, TABLE_OF[name]), name)
    return getattr(setting, parameter) if parameter else setting


def _moved(cell: Cell, factor: str, value: float) -> Cell | None:
    """Return a cell with another value of a numeric factor; None if there is no such cell."""
    name, _, parameter = factor.partition(".")
    table, stands = getattr(cell, TABLE_OF[name]), _stands(cell, factor)
    # A budget of dimensions ties the number of heads to theirs, and only divisors of it are levels.
    if cell.heads.total_dim is not None and TABLE_OF[name] == "heads":
        return None
    if isinstance(stands, FixedBandwidth):
        parameter = "value"
    number = round(value) if isinstance(stands, int) else value
    try:
        setting = _with(getattr(table, name), parameter, number) if parameter else number
        changed = {TABLE_OF[name]: _with(table, name, setting)}
    except ValidationError:
        return None
    # Not a copy: that would keep what the other cell has cached of its identity.
    moved = Cell.model_construct(**{field: getattr(cell, field) for field in Cell.model_fields} | changed)
    return None if impossibilities(moved) else moved


def _with(record: Record, field: str, value: Any) -> Record:
    """Return a record with another value in one field, checked as a whole."""
    return type(record).model_validate(
        {name: getattr(record, name) for name in type(record).model_fields} | {field: value}
    )
