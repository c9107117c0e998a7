"""Results as tables: verdicts for the terminal and the report, and one row for each claim, comparison and cell."""

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from rich.table import Table

from simstudy.design.document import LEVEL, Design
from simstudy.design.measures import MEASURES, THEORIES, VARIABLES, averaged_measures, stated_measures
from simstudy.execution.provenance import Status
from simstudy.execution.store import MAX_RESULTS_BYTES, Store
from simstudy.report.labels import COVERAGE, between, level_of, measure_name, number, with_error
from simstudy.report.terminal import counted, entry

VERDICT_COLOURS = {"supported": "green", "contradicted": "cyan", "undecided": "yellow"}
"""Colours of verdicts that are as expected, also if a claim is contradicted as expected; others are red."""
ROOM, NARROWEST = 0.1, 0.008
"""Shares of the width of a picture: margin on each side, and least width of a claimed interval."""
MADE_OF = ".report.json"
"""File with digests of the page, tables and figures, and of the results that they show."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_COUNTS = ("error_over", "n_replicates", "n_failed", "n_batches", "precision_reached")
_NUMBERS = ("estimate", "mcse", "claimed_lower", "claimed_upper", "confidence_lower", "confidence_upper")


class Picture(NamedTuple):
    """Positions from 0 to 1 of the claimed interval, confidence interval, estimate ± 1.96 MCSE, and estimate."""

    claimed: tuple[float, float]
    confidence: tuple[float, ...]
    error: tuple[float, ...]
    estimate: float


def pictures(compared: Sequence[dict[str, Any]]) -> list[Picture | None]:
    """Return the pictures of comparisons with the same claimed interval on one axis; None without an estimate."""
    names = ("estimate", "confidence_lower", "confidence_upper", "claimed_lower", "claimed_upper", "mcse")
    *ends, mcse = np.array([[each[name] for name in names] for each in compared], float).reshape(-1, len(names)).T
    shown, reach = np.isfinite(ends[0]), COVERAGE * np.where(np.isfinite(mcse), mcse, 0.0)
    on_line = np.array(ends)[:, shown]
    on_line = on_line[np.isfinite(on_line)]
    if not shown.any() or np.ptp(on_line) == 0.0:
        return [None] * len(compared)
    share = (np.array([*ends, ends[0] - reach, ends[0] + reach]).T - on_line.min()) / np.ptp(on_line)
    places = np.clip(ROOM + (1 - 2 * ROOM) * share, 0.0, 1.0)
    first, last = places[shown][0, 3:5].tolist()
    room = max(NARROWEST - (last - first), 0.0) / 2
    return [
        Picture((first - room, last + room), (low, high), (start, stop), estimate) if known else None
        for known, (estimate, low, high, _, _, start, stop) in zip(shown, places.tolist(), strict=True)
    ]


def _worded(found: dict[str, Any]) -> dict[str, str]:
    """Return the numbers of a comparison as text, rounded according to its error."""
    estimate, mcse = found["estimate"], found["mcse"]
    return {
        "estimate": number(estimate) if math.isnan(mcse) else with_error(estimate, mcse),
        "claimed": between(found["claimed_lower"], found["claimed_upper"]),
        "confidence": between(found["confidence_lower"], found["confidence_upper"], mcse),
    }


def verdict_lines(results: xr.Dataset) -> list[Any]:
    """Return for each claim an object with its variables, texts and picture as attributes.

    Numbers are those of the comparison that the design names as representative, or else of the decisive one.
    """
    lines, claims = [], verdict_frame(results).to_dict("records")
    rows = comparison_frame(results).to_dict("records")
    compared = {(row["claim"], row["statistic"]): {name: row[name] for name in _NUMBERS} for row in reversed(rows)}
    for claim in claims:
        statistic, why = claim["representative_statistic"] or claim["statistic"], claim["no_verdict_because"]
        shown = compared.get((claim["claim"], statistic), dict.fromkeys(_NUMBERS, math.nan))
        as_expected = claim["verdict"] == claim["expected_verdict"]
        words = {
            "expected": claim["expected_verdict"],
            "as_expected": as_expected,
            "said": f"{claim['verdict']}, {'as expected' if as_expected else 'not as expected'}",
            "outcome": "expected" if as_expected else "unexpected",
            "statistic": statistic or why,
            "decided_by": claim["statistic"] if claim["statistic"] != statistic else "",
            "why": why,
            "level": level_of(len(claims)),
            "picture": pictures([shown])[0],
        }
        p_values = {name: claim[name] for name in ("p_against", "p_in_favour")}
        words |= {name: "< 0.0001" if p < 1e-4 else number(p, 2) for name, p in p_values.items()}
        lines.append(SimpleNamespace(**claim | words | _worded(shown)))
    return lines


def comparison_lines(results: xr.Dataset) -> dict[str, list[dict[str, Any]]]:
    """Return by claim one line for each comparison; those with the same claimed interval have one axis."""
    axes, lines = defaultdict[Any, list[Any]](list), defaultdict[str, list[dict[str, Any]]](list)
    for row in comparison_frame(results).to_dict("records"):
        side = "outside" if row["p_against"] < LEVEL else "inside" if row["p_in_favour"] < LEVEL else "undecided"
        words = {"statistic": row["statistic"], "finding": row["no_verdict_because"] or side} | _worded(row)
        lines[row["claim"]].append(words)
        axes[row["claim"], row["claimed_lower"], row["claimed_upper"]].append((row, words))
    for pairs in axes.values():
        for (_, words), picture in zip(pairs, pictures([row for row, _ in pairs]), strict=True):
            words["picture"] = picture
    return lines


def sentence(lines: Sequence[Any]) -> str:
    """Return a sentence with statement, verdict and estimate of the first claim; empty without claims."""
    if not lines:
        return ""
    first = lines[0]
    found = f"{first.estimate}, claimed {first.claimed}" if first.picture else first.why
    return f"{first.statement.rstrip('.')}: {first.said}{found and f' ({found})'}."


def count_verdicts(lines: Sequence[Any]) -> str:
    """Return the number of claims by verdict, and of those not as expected, as text."""
    if not lines:
        return "The design makes no claim."
    found = ", ".join(f"{sum(line.verdict == each for line in lines)} {each}" for each in VERDICT_COLOURS)
    unexpected = sum(not line.as_expected for line in lines)
    outcome = f"{unexpected} not as expected" if unexpected else "all " * (len(lines) > 1) + "as expected"
    return f"{counted(len(lines), 'claim')}: {found}; {outcome}"


def verdict_table(lines: Sequence[Any], error: str = "MCSE", looks: str = "any number of looks") -> Table:
    """Return the verdicts as a table for the terminal, readable at 80 columns."""
    level = f" ({lines[0].level} confidence intervals, valid at {looks})" if lines else ""
    table = Table(title=f"Verdicts{level}", title_justify="left", show_lines=True)
    table.add_column("claim, and its representative comparison", overflow="fold")
    table.add_column("verdict", no_wrap=True)
    table.add_column(f"estimate ± {error}", justify="right", no_wrap=True)
    for line in lines:
        decided = f"decided by {line.decided_by}" if line.decided_by else ""
        foreseen = "as expected" if line.as_expected else f"not {line.expected}!"
        parts = (line.statistic, "dim"), (decided, "dim"), (line.verdict_draws, "italic"), (line.why, "yellow")
        table.add_row(
            entry((line.claim, "bold"), *(each for each in parts if each[0])),
            entry((line.verdict, f"bold {VERDICT_COLOURS[line.verdict] if line.as_expected else 'red'}"), foreseen),
            entry(line.estimate, f"claimed {line.claimed}", f"within {line.confidence}"),
        )
    return table


def measure_words(results: xr.Dataset, design: Design) -> str:
    """Return least and largest value of the first requested measure, with errors: the answer without claims."""
    asked = [name for each in design.cells for name in (*each.precision.relative_mcse, *each.precision.absolute_mcse)]
    asked += [*(each.y for each in design.figures.values()), *design.functions.get("measures", ())]
    name = next(each for each in (*asked, *stated_measures(results.attrs), "mse") if each in results)
    values, errors = results[name].sel(source="empirical").values, results[f"{name}_mcse"].values
    known = np.flatnonzero(np.isfinite(values))
    ends = dict.fromkeys(known[np.argsort(values[known])][[0, -1]].tolist()) if len(known) else {}
    between = " to ".join(with_error(float(values[end]), float(errors[end])) for end in ends)
    over = "; ".join(dict.fromkeys(results["error_over"].values.tolist()))
    return f"{measure_name(name)}: {between or 'undefined'} ({over})"


def verdict_frame(results: xr.Dataset) -> pd.DataFrame:
    """Return one row for each claim, with numbers in full precision."""
    names = ["claim", *(name for name, variable in VARIABLES.items() if variable.dims == ("claim",))]
    return pd.DataFrame({name: results[name].values for name in names if name in results})


def comparison_frame(results: xr.Dataset) -> pd.DataFrame:
    """Return one row for each comparison of each claim, with numbers in full precision."""
    names = [name for name, variable in VARIABLES.items() if variable.dims == ("comparison",)]
    return pd.DataFrame({name.removeprefix("comparison_"): results[name].values for name in names if name in results})


def csv_of(frame: pd.DataFrame) -> str:
    """Return a table as CSV; an apostrophe keeps text that starts like a formula from being one in spreadsheets."""
    safe = frame.map(lambda value: f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value)
    return safe.to_csv(index=False, lineterminator="\n")


def estimator_words(results: xr.Dataset) -> str:
    """Return the estimators of measures and their numbers of cells; empty if only plain averages were requested."""
    found = Counter(results["control_variate"].values.tolist() if "control_variate" in results else [])
    words = {"expansion": "averages over replicates minus an expansion of known mean"}
    return "; ".join(f"{words.get(each, each)} ({counted(count, 'cell')})" for each, count in found.most_common())


def cell_frame(results: xr.Dataset) -> pd.DataFrame:
    """Return one row for each cell: settings, counts, and each measure that is defined with its MCSE and theory."""
    settings = [str(name) for name, coordinate in results.coords.items() if coordinate.dims == ("cell",)]
    columns: dict[str, Any] = {name: results[name].values for name in sorted(settings, key=lambda name: name != "grid")}
    columns |= {name: results[name].values for name in (*_COUNTS, "control_variate") if name in results}
    for name in averaged_measures(results):
        columns[name] = results[name].sel(source="empirical").values
        columns[f"{name}_mcse"] = results[f"{name}_mcse"].values
        columns |= {f"{name}_{source}": results[name].sel(source=source).values for source in THEORIES}
        if name in MEASURES:
            columns[f"{name}_numerical_error"] = results[f"{name}_numerical_error"].values
    for index in results.index.values:
        columns[f"hdi_{index}"] = results.hdi.sel(index=index).values
        columns[f"hdi_{index}_mcse"] = results.hdi_mcse.sel(index=index).values
    columns |= {f"{source}_inapplicable": results.inapplicable.sel(source=source).values for source in THEORIES}
    return pd.DataFrame(columns).dropna(axis="columns", how="all")


def made_of(status: Status, store: Store) -> dict[str, Any]:
    """Return the identity of the current results, and digests of the stored page, tables and figures."""
    names = [name for name in store.files.names() if name.endswith((".html", ".csv"))]
    names += [f"figures/{name}" for name in store.files.at("figures").names()]
    files = {name: hashlib.sha256(store.files.read(name, MAX_RESULTS_BYTES)).hexdigest() for name in names}
    return {"made_of": [status.origin, status.results], "files": files}
