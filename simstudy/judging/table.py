"""One number for each unit and condition, whatever table holds them, as estimates that the engine judges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from pydantic import Field

from simstudy.design.mistakes import hint
from simstudy.design.settings.levels import Coordinates
from simstudy.design.settings.records import Line, Record
from simstudy.errors import UserError
from simstudy.text import printable
from simstudy.verdicts.estimates import Estimates

LARGEST = 1e100
"""Magnitude of a number beyond which sums of squares overflow."""
LONGEST = 40
"""Characters of a text that a message shows where a number should be."""
CONDITION = "condition"
"""What the factor is called whose levels are the columns of a table, if the table does not say."""


class Columns(Record):
    """Which columns of a table are what; in a file of claims the table [numbers]."""

    unit: Line | None = Field(None, description="the column that names the unit: the task, seed or question")
    value: Line | None = Field(
        None, description="the column of numbers, of a table with a row for each unit and condition"
    )
    factors: tuple[Line, ...] = Field(
        (), strict=False, description="the columns that tell conditions apart, beside value; by default all others"
    )
    cluster: Line | None = Field(None, description="the column of equal names for units that are not independent")
    missing: Literal["refuse", "drop"] = Field(
        "refuse", description='"drop" leaves out each unit that lacks a number, in all conditions'
    )


class Numbers(NamedTuple):
    """The mean under each condition, factors, units judged and left out; ``independent`` are units or clusters."""

    estimates: Estimates
    factors: tuple[str, ...]
    n_units: int
    n_dropped: int = 0
    independent: str = "unit"


def numbers_of(numbers: Any, columns: Columns) -> Numbers:
    """Return the estimates that a table gives."""
    if isinstance(numbers, Estimates):
        factors = columns.factors or tuple(numbers.conditions[0])
        return Numbers(numbers, factors, int(np.max(numbers.n_blocks)))
    wide, clusters = _laid_out(numbers, columns)
    conditions = _conditions(wide.columns)
    values = np.column_stack([_real(printable(str(wide.columns[j])), wide.iloc[:, j]) for j in range(wide.shape[1])])
    kept = _complete(values, wide.index, conditions, columns.missing)
    values, codes = values[kept], None if clusters is None else pd.factorize(clusters[kept])[0]
    if codes is not None and (codes < 0).any():
        raise UserError(f"{columns.cluster}: empty for a unit; name the cluster of each unit")
    if not len(values):
        raise UserError("numbers: no unit with a number under each condition")
    independent = "unit" if codes is None else "cluster"
    estimates = means(conditions, values, codes)
    return Numbers(estimates, tuple(conditions[0]), len(values), int((~kept).sum()), independent)


def means(conditions: Sequence[Coordinates], values: NDArray[np.float64], clusters: NDArray | None) -> Estimates:
    """Return the means of values (unit, condition), with contributions of units or of their clusters (unit,)."""
    n_units, n_conditions = values.shape
    mean = values.mean(axis=0)
    sums, largest = (values - mean) / n_units, 1
    if clusters is not None:
        largest = int(np.bincount(clusters).max())
        sums = pd.DataFrame(sums).groupby(clusters).sum().to_numpy()
    n_blocks = len(sums)
    shares = sums * np.sqrt(n_blocks / max(n_blocks - 1, 1))
    spread = float(np.ptp(values)) or float(np.abs(values).max()) or 1.0
    return Estimates(
        conditions, mean, list(shares.T.copy()), [(0, 0)] * n_conditions, np.full(n_conditions, n_blocks),
        np.zeros(n_conditions), np.full(n_conditions, n_units / largest / spread),
    )  # fmt: skip


def _laid_out(numbers: Any, columns: Columns) -> tuple[pd.DataFrame, NDArray | None]:
    if isinstance(numbers, xr.DataArray):
        return _from_array(numbers, columns)
    if isinstance(numbers, Mapping):
        try:
            numbers = pd.DataFrame({name: each for name, each in numbers.items()})
        except (ValueError, TypeError) as error:
            raise UserError(f"numbers: {error}; give arrays of one length, one for each condition") from None
    if not isinstance(numbers, pd.DataFrame):
        kind = type(numbers).__name__
        raise UserError(
            f"numbers of type {kind}; give a DataFrame, a DataArray, or arrays by the name of the condition"
        )
    if numbers.empty:
        raise UserError("numbers: empty; give a number for each unit and condition")
    return _from_wide(numbers, columns) if columns.value is None else _from_long(numbers, columns)


def _from_array(numbers: xr.DataArray, columns: Columns) -> tuple[pd.DataFrame, NDArray | None]:
    unit = str(numbers.dims[0]) if columns.unit is None else columns.unit
    factors = [str(name) for name in numbers.dims if name != unit]
    if unit not in numbers.dims or not factors:
        raise UserError(
            f"numbers: dimensions {numbers.dims}; give one for units, named by unit=, and others for conditions"
        )
    _real("numbers", pd.Series(numbers.values.ravel()[:1]))
    clusters = None if columns.cluster is None else numbers.coords.get(columns.cluster)
    if columns.cluster is not None and (clusters is None or clusters.dims != (unit,)):
        raise UserError(f"cluster = {columns.cluster!r}: no coordinate along {unit}")
    wide = numbers.transpose(unit, *factors).to_series().unstack(factors, sort=False)
    return wide, None if clusters is None else clusters.values


def _from_wide(frame: pd.DataFrame, columns: Columns) -> tuple[pd.DataFrame, NDArray | None]:
    taken = {name: _column(frame, name) for name in (columns.unit, columns.cluster) if name is not None}
    wide = frame.drop(columns=[name for name in taken if name in frame.columns])
    if columns.unit is not None:
        wide = wide.set_axis(pd.Index(taken[columns.unit]))
        if wide.index.has_duplicates:
            twice = wide.index[wide.index.duplicated()][0]
            remedy = f"give one for each unit, state value, or state {columns.unit} as cluster instead"
            raise UserError(f"{columns.unit} = {twice}: two rows; {remedy}")
    return wide, taken.get(columns.cluster) if columns.cluster is not None else None


def _from_long(frame: pd.DataFrame, columns: Columns) -> tuple[pd.DataFrame, NDArray | None]:
    unit, value = columns.unit, columns.value
    if unit is None or value is None:
        raise UserError("unit: missing; name the column of units, by which conditions are paired")
    stated = [unit, value, *columns.factors, *([columns.cluster] if columns.cluster else [])]
    table = {name: _column(frame, name) for name in stated}
    if not columns.factors:
        table |= {name: frame[name].to_numpy() for name in frame.columns if name not in table}
    factors = list(columns.factors) or [name for name in table if name not in stated]
    if not factors:
        raise UserError("factors: none; a table with a row for each unit and condition names conditions in columns")
    long = pd.DataFrame(table)
    for name in (unit, *factors):
        if long[name].isna().any():
            raise UserError(f"{name}: empty in row {int(long[name].isna().to_numpy().argmax())}, from 0; fill it")
    twice = long.duplicated([unit, *factors])
    if twice.any():
        found = long.loc[twice, [unit, *factors]].iloc[0].to_dict()
        at = ", ".join(f"{name} = {each}" for name, each in found.items())
        raise UserError(f"{at}: two numbers; average them, or name in factors what tells them apart")
    n_conditions = len(long.drop_duplicates(factors))
    if long[unit].value_counts().max() < n_conditions:
        told = f"{n_conditions:,} conditions, which {', '.join(factors)} tell apart"
        raise UserError(f"numbers: no unit has a number under each of {told}; name fewer columns in factors")
    long[value] = _real(value, long[value])
    wide = long.set_index([unit, *factors])[value].unstack(factors, sort=False)
    if columns.cluster is None:
        return wide, None
    by_unit = long.groupby(unit, sort=False)[columns.cluster]
    if (by_unit.nunique() > 1).any():
        raise UserError(f"{unit} = {by_unit.nunique().idxmax()}: in several clusters; a unit has one")
    return wide, by_unit.first().reindex(wide.index).to_numpy()


def _column(frame: pd.DataFrame, name: str) -> NDArray:
    if name in frame.index.names:
        return frame.index.get_level_values(name).to_numpy()
    if name not in frame.columns or frame.columns.nlevels > 1:
        known = [str(each) for each in (*frame.index.names, *frame.columns) if isinstance(each, str)]
        raise UserError(f"{name!r}: no column of the numbers; {hint(name, known)}")
    return frame[name].to_numpy()


def _conditions(names: pd.Index) -> list[Coordinates]:
    """Levels of factors in each column; names that are all written as numbers are numbers."""
    levels = [names.get_level_values(k) for k in range(names.nlevels)]
    factors = [str(each) if each is not None else CONDITION for each in names.names]
    if len(set(factors)) < len(factors):
        raise UserError("numbers: several levels of columns without a name; name them, as their factors")
    conditions = [dict(zip(factors, row, strict=True)) for row in zip(*map(_levels, levels), strict=True)]
    twice = next((each for k, each in enumerate(conditions) if each in conditions[:k]), None)
    if not conditions or twice is not None:
        found = "no column" if twice is None else f"two columns {twice}"
        raise UserError(f"numbers: {found}; give one for each condition")
    return conditions


def _levels(column: pd.Index) -> list[Any]:
    written = pd.Series(column.to_numpy())
    if all(isinstance(each, str) for each in column):
        as_numbers = pd.to_numeric(written, errors="coerce")
        written = written if as_numbers.isna().any() else as_numbers
    plain = written.tolist()
    return [each if isinstance(each, (bool, int, float)) else printable(str(each)) for each in plain]


def _real(name: str, column: pd.Series) -> NDArray[np.float64]:
    found = column.infer_objects()
    if not pd.api.types.is_numeric_dtype(found) or pd.api.types.is_complex_dtype(found):
        texts = [each for each in column[pd.to_numeric(column, errors="coerce").isna()] if isinstance(each, str)]
        example = f" ({printable(texts[0])[:LONGEST]!r} is none)" if texts else ""
        remedy = "give numbers with a decimal point, or name it as unit, cluster or factor"
        raise UserError(f"{name}: of type {column.dtype}, no real numbers{example}; {remedy}")
    return np.asarray(found.to_numpy(np.float64, na_value=np.nan))


def _complete(
    values: NDArray[np.float64], units: pd.Index, conditions: Sequence[Coordinates], missing: str
) -> NDArray[np.bool_]:
    def first(wrong: NDArray[np.bool_]) -> str:
        row, column = (int(each) for each in np.argwhere(wrong)[0])
        at = ", ".join(f"{name} = {level}" for name, level in conditions[column].items())
        return f"unit {units[row]}, {at}"

    beyond = np.abs(np.nan_to_num(values, nan=0.0)) > LARGEST
    if beyond.any():
        raise UserError(f"{first(beyond)}: infinite, or beyond {LARGEST:g}; mend it, or remove the unit")
    gaps = np.isnan(values)
    if gaps.any() and missing == "refuse":
        remedy = 'mend that, or state missing = "drop" if it is missing by chance alone'
        message = f"{first(gaps)}: no number, and {int(gaps.any(axis=1).sum())} of {len(gaps)} units lack one"
        raise UserError(f"{message}; {remedy}")
    return np.asarray(~gaps.any(axis=1))
