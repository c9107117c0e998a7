"""Estimates of single replicates as a long table, and performance measures from any such table."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats

from simstudy.arguments import positive, real_number
from simstudy.attention.functions import results_of
from simstudy.design.document import Design
from simstudy.design.load import Source, load_design
from simstudy.design.measures import OF_FUNCTIONS
from simstudy.design.settings.functions import as_array
from simstudy.design.settings.records import hint
from simstudy.errors import UserError
from simstudy.formulas import covers
from simstudy.judging.table import real
from simstudy.results import ESTIMATOR, METHOD, SPARSE
from simstudy.study import require_trust

RESULTS = ("estimate", "se", "lower", "upper", "reject", "truth")
"""Columns of results and truth in a table of estimates; others except data set and method are factors."""
_PIECE = 1024  # replicates that are computed together


def estimates(
    design: Design | Source | xr.DataTree,
    profile: str = "quick",
    *,
    trust: Iterable[str | Path] = (),
    replicates: int = 1000,
) -> pd.DataFrame:
    """Return the estimates of the first replicates of every cell of a study of functions, computed again.

    Parameters
    ----------
    design, profile, trust
        As for `simstudy.run`; a design may also be results of `simulate` or `run`.
    replicates
        Number of data sets for each combination of factors.

    Returns
    -------
    pandas.DataFrame
        A row for each data set and method (and estimand, if estimates are arrays), with a column for each factor;
        those of ``estimate``, ``se``, ``lower``, ``upper``, ``reject`` and ``truth`` that the functions return, NaN
        where a method returns none; and ``failure``, the error that a method raised, or an empty text.

    Raises
    ------
    UserError
        If the study has no functions or untrusted ones, or the number of replicates is impossible.
    """
    if type(replicates) is bool or not isinstance(replicates, int | np.integer) or replicates < 1:
        raise UserError(f"replicates = {replicates!r}: must be a whole number, at least 1")
    confirm = design.attrs.get("confirmation_text") or None if isinstance(design, xr.DataTree) else None
    if isinstance(given := design, xr.DataTree):
        above = [*Path(given.encoding.get("source", "")).parents][3 if confirm else 1 :]
        if not (above and (above[0] / "design.json").is_file()):
            name = given.name or given.attrs.get("study", "no study")
            raise UserError(f"results of {name}: not of simulate; give the design, and trust=[FILE]")
        design, profile = above[0] / "design.json", str(given.attrs["profile"])
    loaded = design if isinstance(design, Design) else load_design(design, profile, trust, confirm)
    if not (planned := [(each, each.cell.functions) for each in loaded.cells if each.cell.functions is not None]):
        raise UserError(f"{loaded.study.name}: no grid of functions; choose a study whose methods are functions")
    require_trust(each.cell for each, _ in planned)
    parts = []
    for each, functions in planned:
        levels = {name: each.cell.coordinates[name] for name in (METHOD, *loaded.factors[each.grid])}
        levels = ({"grid": each.grid} if len(loaded.factors) > 1 else {}) | levels
        if taken := {*levels} & {"dataset", "estimand", "failure", *RESULTS} - {"truth"}:
            raise UserError(f"{min(taken)}: a factor, and a column of estimates; give the factor another name")
        for first in range(0, replicates, _PIECE):
            rows = results_of(each.cell, first, min(_PIECE, replicates - first))
            whole = [functions.parameters | results for results, _ in rows]
            known = [{name: as_array(row[name]) for name in RESULTS if name in row} for row in whole]
            names = [name for name in RESULTS if any(name in row for row in known)]
            size = max((value.size for row in known for value in row.values()), default=1)
            if wrong := {name for row in known for name, value in row.items() if value.size not in (1, size)}:
                raise UserError(f"{min(wrong)}: shorter than others of {', '.join(names)}; give one for each estimand")
            columns: dict[str, Any] = {"dataset": np.repeat(np.arange(first, first + len(rows)), size)}
            for name in names:
                columns[name] = np.ravel([np.broadcast_to(np.ravel(row.get(name, np.nan)), size) for row in known])
            columns["failure"] = np.repeat([why for _, why in rows], size)
            columns["estimand"] = np.tile(np.arange(size), len(rows))
            parts.append(pd.DataFrame(columns).assign(**levels))
    table = pd.concat(parts, ignore_index=True)
    factors = [name for name in table if name not in ("dataset", METHOD, "estimand", *RESULTS, "failure")]
    shown = [name for name in ("estimand", *RESULTS) if name in table and (name != "estimand" or table[name].any())]
    return table[[*factors, "dataset", METHOD, *shown, "failure"]]


def performance(
    table: pd.DataFrame,
    truth: float | str = "truth",
    *,
    dataset: str = "dataset",
    method: str = METHOD,
    estimate: str = "estimate",
    se: str = "se",
    reference: Any = None,
    level: float = 0.95,
    df: float | str | None = None,
) -> xr.Dataset:
    """Compute performance measures of methods from their estimates, each with its Monte Carlo standard error.

    Formulas are those of Morris, White and Crowther (2019, Statistics in Medicine 38, 2074), Table 6.  Errors of
    empirical_se and of measures that depend on it are for normal estimates; those of `simulate` are for any.

    Parameters
    ----------
    table
        A row for each data set and method.  Columns other than those named here, and ``lower``, ``upper`` and
        ``reject``, are factors or estimands.
    truth
        True value, or the column that holds it; without a column ``truth``, measures that need it are left out.
    dataset, method, estimate, se
        Names of columns; the column of standard errors may be missing.
    reference
        Method with which precision is compared; the first by default.
    level
        Level of intervals and tests, computed from estimate and se if the table has no ``lower`` and ``upper``, or no
        ``reject``.
    df
        Degrees of freedom of these intervals and tests, or their column; normal quantiles by default.

    Returns
    -------
    xarray.Dataset
        Measures by name, and their errors as ``NAME_mcse``, along ``estimator`` (the methods), the factors (``cell``
        if few of all combinations occur), and ``replicates``: ``available`` from each method, ``common`` to all.

    Raises
    ------
    UserError, ValueError
        If a column is missing or empty in a row, a method has two rows for a data set, or the reference is unknown.
    """
    if not isinstance(table, pd.DataFrame) or table.empty:
        raise UserError(f"table: a {type(table).__name__}; give a pandas.DataFrame with rows (of polars: to_pandas())")
    if isinstance(level, str) or not 0.0 < real_number("level", level) < 1.0:
        raise UserError(f"level = {level!r}: must be between 0 and 1, such as 0.95")
    names = {estimate: "estimate", se: "se", dataset: "dataset", method: ESTIMATOR}
    interval = ("lower", "upper") if {"lower", "upper"} & {*table} else ()
    for name in (*names, *interval, *(each for each in (truth, df) if isinstance(each, str))):
        if name not in table and name not in ("se", "truth"):
            raise UserError(f"{name!r}: no column of the table; it has {', '.join(map(str, table))}")
        if (taken := names.get(name, name)) != name and taken in table:
            raise UserError(f"{taken!r}: a column, but {name!r} is the {taken}; drop or rename one of them")
    table = table.rename(columns=lambda name: names.get(name, str(name)))
    if table.columns.has_duplicates:
        raise UserError(f"{table.columns[table.columns.duplicated()][0]!r}: two columns; drop or rename one of them")
    if not isinstance(truth, str) or truth in table:
        table = table.assign(truth=table[truth] if isinstance(truth, str) else real_number("truth", truth))
    table = table.assign(**{name: real(name, table[name]) for name in (*RESULTS, str(df)) if name in table})
    errors, lower, upper, decided = (table.get(name, pd.Series(dtype=float)) for name in RESULTS[1:5])
    mistakes = {
        "se: below 0 in some row; give standard errors, and leave missing ones empty": errors < 0.0,
        "reject: neither 0 nor 1 in some row; give 1 where the test rejects, else 0": ~decided.isin([0, 1, np.nan]),
        "lower: above upper in some row; give the lower end first": (upper < lower) & (lower < np.inf),
    }
    if found := [remedy for remedy, wrong in mistakes.items() if wrong.any()]:
        raise UserError(found[0])
    index = [name for name in table if name not in (*RESULTS, "failure", truth, df)]
    several = isinstance(truth, str) and truth in table and table.groupby(truth)["dataset"].nunique().min() > 1
    index += [truth] if several and table.duplicated(index).any() else []  # truth is a factor if rows differ only in it
    if clash := {*index} & {"replicates", "n_replicates", *OF_FUNCTIONS, *(f"{name}_mcse" for name in OF_FUNCTIONS)}:
        raise UserError(f"{min(clash)}: is the name of a measure; rename or drop the column")
    named = table[index].rename(columns={each: name for name, each in names.items()})
    if (empty := named.isna().sum()).any():
        raise UserError(f"{empty.idxmax()}: empty in {empty.max()} rows; fill it, or drop the column")
    if (twice := named.duplicated()).any():
        row = ", ".join(f"{name} = {value}" for name, value in named[twice].iloc[0].items())
        raise UserError(f"two rows with {row}; leave one of them")
    methods = list(dict.fromkeys(table[ESTIMATOR]))
    reference = methods[0] if reference is None else reference
    if reference not in methods:
        known = hint(str(reference), [*map(str, methods)])
        raise UserError(f"reference = {reference!r}: no method of the table; {known}")
    if (found := table[index].nunique().drop(["dataset", ESTIMATOR])).max() * 2 * len(methods) > max(100, len(table)):
        raise UserError(f"{found.idxmax()}: another level in nearly every row, so not a factor; drop the column")
    # The column of failures marks the rows that exist.
    given = _along(index, table.assign(failure=1.0))
    rows, arrays = given["failure"] == 1.0, {name: given[name] for name in RESULTS if name in given}
    freedom = given[df] if isinstance(df, str) else np.inf if df in (None, np.inf) else positive("df", df)
    defined = rows & np.isfinite(arrays["estimate"])
    if "se" in arrays:
        half = stats.t.ppf((1 + level) / 2, freedom) * arrays["se"]
        ends = {"lower": arrays["estimate"] - half, "upper": arrays["estimate"] + half}
        arrays = ends | {"reject": (abs(arrays["estimate"]) >= half).where(half.notnull())} | arrays
        stated = np.isfinite(arrays["se"])
        defined &= stated | ~stated.any([name for name in stated.dims if name != ESTIMATOR])  # some may have none
    common = defined & (defined | ~rows.any("dataset")).all(ESTIMATOR)
    with np.errstate(invalid="ignore", divide="ignore"):  # in combinations without data sets
        parts = [_measures(arrays, counts, rows, reference) for counts in (defined, common)]
    return xr.concat(parts, xr.Variable("replicates", ["available", "common"]), data_vars="all")


def _along(index: list[str], table: pd.DataFrame) -> Any:
    """Return columns along the factors, or along ``cell`` if few of all combinations occur, as in results."""
    factors = [name for name in index if name not in ("dataset", ESTIMATOR)]
    cells = table[factors].drop_duplicates(ignore_index=True)
    if "cell" in factors or cells.nunique().prod() <= SPARSE * len(cells):
        return table.set_index(index).to_xarray()
    rows = table.merge(cells.reset_index(names="cell")).drop(columns=factors).set_index(["cell", "dataset", ESTIMATOR])
    return rows.to_xarray().assign_coords({name: ("cell", each) for name, each in cells.items()})


def _measures(arrays: dict[str, xr.DataArray], counts: xr.DataArray, rows: xr.DataArray, reference: Any) -> xr.Dataset:
    """Return measures, with their errors, over the data sets for which ``counts`` is true."""
    values = {name: each.where(counts) for name, each in arrays.items()}
    n, e = counts.sum("dataset"), values["estimate"]
    sd = e.std("dataset", ddof=1)
    baseline = e.sel({ESTIMATOR: reference})
    ratio, rho = (sd.sel({ESTIMATOR: reference}) / sd) ** 2, xr.corr(e, baseline, "dataset")
    # By degrees of freedom: Table 6 where all methods have the same data sets.
    own, other, both = (each.count("dataset") - 1 for each in (e, baseline, e + baseline))
    scatter = np.maximum(own + other - 2 * rho**2 * both, 0.0) / (2 * own * other)
    found: dict[str, Any] = {
        "convergence": _share(counts.where(rows.any(ESTIMATOR) & rows.any("dataset"))),
        "empirical_se": (sd, sd / np.sqrt(2 * (n - 1))),
        "relative_precision": (ratio - 1, 2 * ratio * np.sqrt(scatter)),
    }
    targets = {"bias_eliminated_coverage": e.mean("dataset")}
    if "truth" in values:
        truth = targets["coverage"] = values["truth"]
        relative = ((e - truth) / truth).where(truth != 0.0)
        averaged = {"bias": e - truth, "mean_squared_error": (e - truth) ** 2, "relative_bias": relative}
        found |= {k: (each.mean("dataset"), each.std("dataset", ddof=1) / np.sqrt(n)) for k, each in averaged.items()}
        root = np.sqrt(found["mean_squared_error"][0])
        found["root_mean_squared_error"] = root, found["mean_squared_error"][1] / (2 * root)
    if "se" in values:
        square = (values["se"] ** 2).mean("dataset")
        scatter = (values["se"] ** 2).var("dataset", ddof=1) / (4 * n * square**2)
        found["model_se"] = np.sqrt(square), np.sqrt(scatter * square)
        size = np.sqrt(square) / sd
        found["relative_error_of_model_se"] = size - 1, size * np.sqrt(scatter + 1 / (2 * (n - 1)))
    if "lower" in values:
        ends = values["lower"], values["upper"]
        found |= {name: _share(xr.apply_ufunc(covers, *ends, each)) for name, each in targets.items()}
    if "reject" in values:
        found["rejection_rate"] = _share(values["reject"])
    made = xr.Dataset({"n_replicates": n.where(rows.any("dataset")).assign_attrs(long_name="data sets that count")})
    for name, pair in found.items():
        attributes = {"units": OF_FUNCTIONS[name].unit, "long_name": OF_FUNCTIONS[name].meaning}
        made[name] = pair[0].assign_attrs(attributes)
        made[f"{name}_mcse"] = pair[1].assign_attrs(attributes | {"long_name": f"Monte Carlo standard error of {name}"})
    return made


def _share(values: xr.DataArray) -> tuple[Any, Any]:
    share = values.astype(float).mean("dataset")
    return share, np.sqrt(share * (1 - share) / values.notnull().sum("dataset"))
