"""Tables with one number for each unit and condition, and estimates of their means."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import narwhals as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import Field
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from simstudy.design.answerable import Coordinates
from simstudy.design.document import LEVEL
from simstudy.design.settings.records import Line, Record, hint
from simstudy.errors import UserError, printable
from simstudy.verdicts.estimates import Estimates

SMALLEST, LARGEST = 1e-60, 1e100
"""Magnitudes of numbers between which sums of powers neither underflow nor overflow."""
MANY = 8
"""Least rows of successive integers that are taken for row numbers; most conditions that may have one row each."""
MOST = 20_000
"""Most conditions of a table, for computing time."""


class Columns(Record):
    """Roles of the columns of a table; in a file of claims, the table [numbers].

    ``unit`` names the task, seed or question.  In a table with a row for each unit and condition, ``value`` is the
    column of numbers, and ``factors`` are those that define conditions, by default all others.  Units with the same
    name in ``cluster`` are dependent.  With missing = "drop", a unit is left out of comparisons for which it lacks a
    number.  ``looks`` is "one" if the number of units was fixed beforehand.
    """

    unit: Line | None = None
    value: Line | None = None
    factors: tuple[Line, ...] = Field((), strict=False)
    cluster: Line | None = None
    missing: Literal["refuse", "drop"] = "refuse"
    looks: Literal["any", "one"] = "any"


class Table(NamedTuple):
    """Numbers (unit, condition), NaN where missing; units with the same entry of ``clusters`` (unit,) are dependent."""

    conditions: Sequence[Coordinates]
    units: pd.Index
    values: NDArray[np.float64]
    clusters: NDArray[np.intp]
    independent: str = "unit"
    missing: str = "refuse"
    one_look: float = 0.0  # Level of a claim at one look; 0 at any number of looks

    def at(self, condition: int) -> str:
        """Return the levels of a condition as text."""
        return ", ".join(f"{name} = {level}" for name, level in self.conditions[condition].items())


class Numbers(NamedTuple):
    """Means over the units ``used`` (unit,), and a mask ``missing`` (unit, condition) of numbers that are lacking."""

    estimates: Estimates
    used: NDArray[np.bool_]
    missing: NDArray[np.bool_]


def table_of(numbers: Any, columns: Columns) -> Table:
    """Return the table of a data frame or mapping of arrays; UserError if it is not one."""
    if isinstance(numbers, Mapping):
        try:
            numbers = pd.DataFrame({name: each for name, each in numbers.items()})
        except (ValueError, TypeError) as error:
            raise UserError(f"numbers: {error}; give arrays of one length, one for each condition") from None
    if not isinstance(numbers, pd.DataFrame):
        found = nw.from_native(numbers, pass_through=True)
        found = found.collect() if isinstance(found, nw.LazyFrame) else found
        if not isinstance(found, nw.DataFrame):
            raise UserError(f"numbers of type {type(numbers).__name__}; give a data frame, or arrays by condition")
        numbers = pd.DataFrame({each.name: each.to_numpy() for each in found.iter_columns()})
    if numbers.empty:
        raise UserError("numbers: empty; give a number for each unit and condition")
    wide, clusters = (_from_wide if columns.value is None else _from_long)(numbers, columns)
    names = wide.columns
    factors = [str(each) if each is not None else "condition" for each in names.names]
    if len(set(factors)) < len(factors):
        raise UserError("numbers: columns have several levels without names; name each, as a factor")
    rows = names.to_frame().itertuples(index=False, name=None)
    # Levels of factors of each condition, as text unless they are numbers or truth values.
    plain = ((each if isinstance(each, bool | int | float) else printable(str(each)) for each in row) for row in rows)
    conditions: list[Coordinates] = [dict(zip(factors, row, strict=True)) for row in plain]
    if len(conditions) > MOST:
        raise UserError(f"numbers: {len(conditions):,} conditions; judge at most {MOST:,} together, in several tables")
    if undefined := [name for each in conditions for name, level in each.items() if level != level]:
        raise UserError(f"{undefined[0]}: a level is NaN, which no claim can select; name it, or remove the column")
    if not conditions or names.has_duplicates:
        found = f"two columns {conditions[names.duplicated().argmax()]}" if conditions else "no column"
        raise UserError(f"numbers: {found}; give one for each condition")
    values = np.stack([real(printable(str(name)), wide.iloc[:, j]) for j, name in enumerate(names)], axis=1)
    codes = np.arange(len(wide)) if clusters is None else pd.factorize(clusters)[0]
    if (codes < 0).any():
        raise UserError(f"{columns.cluster}: empty for a unit; name the cluster of each unit")
    rest = "unit" if clusters is None else "cluster", columns.missing, LEVEL * (columns.looks == "one")
    return Table(conditions, wide.index, values, codes, *rest)


def numbers_of(table: Table, compared: Iterable[Sequence[int]] | None = None) -> Numbers:
    """Return means for groups of conditions that are compared, by default for all conditions together.

    A mean is over the units that have all numbers of its group.  Conditions without common units are independent.
    """
    present, every = ~np.isnan(table.values), range(len(table.conditions))
    groups = [every] if compared is None else list(compared)
    chosen = np.isin(every, [j for group in groups for j in group])
    patterns = np.unique(present, axis=0) if not present.all() else present[:1]
    # A number is missing if the condition shares units with those of this unit; other experiments do not count.
    experiment = _parts(patterns, [every])
    of_unit = experiment[present.argmax(axis=1)]
    missing = chosen & ~present & ((of_unit[:, None] == experiment) | ~present.any(axis=1, keepdims=True))
    beyond = chosen & (np.abs(table.values) > LARGEST)
    if beyond.any() or (missing.any() and table.missing == "refuse"):
        row, column = np.argwhere(beyond if beyond.any() else missing)[0].tolist()
        place = f"unit {table.units[row]}, {table.at(column)}"
        if beyond.any():
            raise UserError(f"{place}: infinite, or beyond {LARGEST:g}; mend it, or remove the unit")
        lacking = f"no number, and {int(missing.any(axis=1).sum())} of {len(missing)} units lack one"
        remedy = 'mend that, or state missing = "drop" (option --drop) if it is missing by chance alone'
        raise UserError(f"{place}: {lacking}; {remedy}; units of separate experiments need separate names")
    if 0.0 < np.abs(table.values[:, chosen]).max(initial=0.0, where=present[:, chosen]) < SMALLEST:
        raise UserError(f"numbers: all below {SMALLEST:g}, so that their squares vanish; give them in another unit")
    part = _parts(patterns, groups)
    estimates, used = _means(table, present, [np.flatnonzero(chosen & (part == k)) for k in np.unique(part[chosen])])
    return Numbers(estimates, used, missing)


def _parts(present: NDArray[np.bool_], groups: Sequence[Sequence[int]]) -> NDArray[np.intp]:
    """Return the number of the part of each condition; conditions of a group with a common unit are in one part."""
    n_units, n = present.shape
    ends = []
    for k, group in enumerate(groups):
        unit, place = np.nonzero(present[:, group])
        ends.append((np.asarray(group)[place], n + k * n_units + unit))
    edges, size = np.concatenate(ends, axis=1), n + len(groups) * n_units
    return np.asarray(connected_components(coo_array((np.ones(len(edges[0]), bool), edges), (size, size)))[1][:n])


def _means(
    table: Table, present: NDArray[np.bool_], parts: Sequence[NDArray[np.intp]]
) -> tuple[Estimates, NDArray[np.bool_]]:
    """Return the means for parts of the conditions, with contributions of clusters, and a mask of the units used."""
    n, finite = len(table.conditions), table.values[np.abs(table.values) <= LARGEST]
    spread = float(finite.max(initial=-np.inf) - finite.min(initial=np.inf)) or float(np.abs(finite).max()) or 1.0
    values, shares = np.full(n, np.nan), np.zeros((table.clusters.max() + 1, n))
    n_blocks, trials, used = np.zeros(n), np.zeros(n), np.zeros(len(present), bool)
    events = np.full(present.shape, -1, np.int8)
    for part in parts:
        if not (kept := present[:, part].all(axis=1)).any():
            others = " and all conditions compared with it" if len(part) > 1 else ""
            remedy = "give them, or select other conditions in where"
            raise UserError(f"numbers: no unit has numbers under {table.at(part[0])}{others}; {remedy}")
        inside, clusters = table.values[np.ix_(kept, part)], table.clusters[kept]
        values[part] = inside[0] + (inside - inside[0]).mean(axis=0)  # centred, as sums of large numbers lose digits
        np.add.at(shares, (clusters[:, None], part), (inside - values[part]) / len(inside))
        sizes = np.bincount(clusters)
        count, likeness = int(np.count_nonzero(sizes)), (sizes / sizes.max()) ** 2
        # Degrees of freedom by Satterthwaite for perfectly correlated units in a cluster: fewer for unequal sizes.
        n_blocks[part] = round(likeness.sum() ** 2 / (likeness**2).sum(), 2) if table.one_look else count
        shares[:, part] *= np.sqrt(count / max(count - 1, 1))
        trials[part] = len(inside) / int(sizes.max()) / spread
        used |= kept
        counted = part[((inside == 0.0) | (inside == 1.0)).all(axis=0)]
        events[np.ix_(kept, counted)] = table.values[np.ix_(kept, counted)]
    found = Estimates(table.conditions, values, list(shares.T), [(0, 0)] * n, n_blocks, np.zeros(n), trials)
    exact = table.one_look > 0.0 and table.independent == "unit"
    return replace(found, one_look=table.one_look, events=events if exact else None), used


def _from_wide(frame: pd.DataFrame, columns: Columns) -> tuple[pd.DataFrame, NDArray | None]:
    stated = {"unit": columns.unit, "cluster": columns.cluster}
    taken = {name: _column(frame, key, name) for key, name in stated.items() if name is not None}
    wide = frame.drop(columns=[name for name in taken if name in frame.columns])
    if columns.unit is not None:
        wide = wide.set_axis(pd.Index(taken[columns.unit]))
        if wide.index.has_duplicates:
            twice = wide.index[wide.index.duplicated()][0]
            remedy = f"give one for each unit, state value, or state {columns.unit} as cluster instead"
            raise UserError(f"{columns.unit} = {twice}: two rows; {remedy}")
    for name, each in wide.items() if columns.unit is None and len(wide) >= MANY else ():
        if pd.api.types.is_integer_dtype(each) and (each.sort_values().diff().iloc[1:] == 1).all():
            remedy = f"state unit = {str(name)!r} (option --unit), or remove the column"
            raise UserError(f"{name}: successive integers number the rows and are no condition; {remedy}")
    return wide, taken.get(columns.cluster) if columns.cluster is not None else None


def _from_long(frame: pd.DataFrame, columns: Columns) -> tuple[pd.DataFrame, NDArray | None]:
    unit, value = columns.unit, columns.value
    if unit is None or value is None:
        raise UserError("unit: missing; name the column of units, by which conditions are paired")
    stated = {unit: "unit", value: "value", **dict.fromkeys(columns.factors, "factors")}
    stated |= {} if columns.cluster is None else {columns.cluster: "cluster"}
    table = {name: _column(frame, key, name) for name, key in stated.items()}
    if not columns.factors:
        table |= {name: _column(frame, "factors", name) for name in frame.columns if name not in table}
    factors = list(dict.fromkeys(columns.factors)) or [name for name in table if name not in stated]
    if not factors:
        raise UserError("factors: none; a table with a row for each unit and condition names conditions in columns")
    long, remedy = pd.DataFrame(table), "name in factors the columns that tell conditions apart"
    if (n_conditions := len(long.drop_duplicates(factors))) > max(MANY, len(long) / 2):
        most = max(factors, key=lambda name: long[name].nunique())
        raise UserError(f"numbers: {n_conditions:,} conditions in {len(long):,} rows, told apart by {most}; {remedy}")
    for name in (unit, *factors):
        if (empty := long[name].isna()).any():
            row = long[empty].iloc[0]
            raise UserError(f"{name}: empty at {unit} = {row[unit]}, {value} = {row[value]}; fill it, or {remedy}")
    if (twice := long.duplicated([unit, *factors])).any():
        found = long.loc[twice, [unit, *factors]].iloc[0].to_dict()
        at = ", ".join(f"{name} = {each}" for name, each in found.items())
        raise UserError(f"{at}: two numbers; average them, or name in factors what tells them apart")
    # By codes in order of appearance, as pandas 2 mislabels values that are unsorted.
    codes = [long[unit].factorize()[0], long.groupby(factors, sort=False).ngroup().to_numpy()]
    wide = pd.Series(real(value, long[value]), codes).unstack()
    wide.index, wide.columns = pd.Index(long[unit].unique()), pd.MultiIndex.from_frame(long[factors].drop_duplicates())
    if columns.cluster is None:
        return wide, None
    by_unit = long.groupby(unit, sort=False)[columns.cluster]
    if (by_unit.nunique() > 1).any():
        raise UserError(f"{unit} = {by_unit.nunique().idxmax()}: in several clusters; a unit has one")
    return wide, by_unit.first().reindex(wide.index).to_numpy()


def _column(frame: pd.DataFrame, key: str, name: str) -> NDArray:
    if name in frame.index.names:
        return frame.index.get_level_values(name).to_numpy()
    if name not in frame.columns or frame.columns.nlevels > 1:
        known = [str(each) for each in (*frame.index.names, *frame.columns) if isinstance(each, str)]
        raise UserError(f"{key} = {name!r}: no column of the numbers; {hint(name, known)}")
    if (found := frame[name]).ndim > 1:
        raise UserError(f"{key} = {name!r}: the name of {found.shape[1]} columns; rename all but one")
    return found.to_numpy()


def real(name: str, column: pd.Series) -> NDArray[np.float64]:
    """Return a column as real numbers, NaN where it is empty; UserError if it has others."""
    plain = column.dtype == object or isinstance(column.dtype, pd.ArrowDtype)
    found = column.convert_dtypes(dtype_backend="numpy_nullable") if plain else column
    if not pd.api.types.is_numeric_dtype(found) or pd.api.types.is_complex_dtype(found):
        texts = [each for each in column[pd.to_numeric(column, errors="coerce").isna()] if isinstance(each, str)]
        example = f" ({printable(texts[0])[:40]!r} is none)" if texts else ""
        remedy = "give numbers with a decimal point, or name it as unit, cluster or factor"
        raise UserError(f"{name}: of type {column.dtype}, no real numbers{example}; {remedy}")
    return np.asarray(found.to_numpy(np.float64, na_value=np.nan))
