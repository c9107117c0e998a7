"""Results as tables: verdicts for the terminal and the report, and one row for each claim, comparison and cell."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from rich.table import Table

from simstudy.design.claims import LEVEL
from simstudy.design.document import Design
from simstudy.design.measures import MEASURES, THEORIES, VARIABLES, averaged_measures, stated_measures
from simstudy.report.estimates import Found, Picture, claims_of, picture
from simstudy.report.labels import between, level_of, measure_name, number, with_error
from simstudy.report.progress import place
from simstudy.report.terminal import counted, entry

VERDICT_COLOURS = {"supported": "green", "contradicted": "cyan", "undecided": "yellow"}
"""Of verdicts that are as expected: to refute what is false is no failure.  Others are red."""
MAX_LISTED = 50
"""Cells that the table of measures has on a terminal; the report has them all."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_ESTIMATORS = {
    "plain": "plain averages over replicates, without control variate",
    "expansion": "averages over replicates minus a control variate of known mean",
}
_COUNTS = ("error_over", "n_replicates", "n_failed", "n_batches", "precision_reached")


class VerdictLine(NamedTuple):
    """Verdict on one claim as text, with the comparison that is shown of it, and the one that decides it."""

    claim: str
    statement: str
    origin: str
    verdict: str
    expected: str
    statistic: str
    decided_by: str
    estimate: str
    draws: str
    reason: str
    claimed: str
    confidence: str
    level: str
    p_against: str
    p_in_favour: str
    comparisons: int
    why: str
    picture: Picture | None

    @property
    def as_expected(self) -> bool:
        """True if the verdict is the one that the design expects."""
        return self.verdict == self.expected

    @property
    def said(self) -> str:
        """Verdict and expectation in words: "contradicted, as expected"."""
        return f"{self.verdict}, {'as expected' if self.as_expected else 'not as expected'}"

    @property
    def outcome(self) -> str:
        """Class of the claim on pages: "expected", or "unexpected" if the verdict is another than expected."""
        return "expected" if self.as_expected else "unexpected"


def verdict_lines(results: xr.Dataset) -> list[VerdictLine]:
    """Return a line for each claim, in order."""
    claims, lines = claims_of(results), []
    for claim in claims:
        claimed = claim["claimed_lower"], claim["claimed_upper"]
        line = VerdictLine(
            claim=claim["claim"],
            statement=claim["statement"],
            origin=claim["origin"],
            verdict=claim["verdict"],
            expected=claim["expected_verdict"],
            statistic=claim["statistic"] or claim["no_verdict_because"],
            decided_by=claim["decisive"] if claim["decisive"] != claim["statistic"] else "",
            estimate=_estimate(claim["found"]),
            draws=claim["verdict_draws"],
            reason=claim["these_draws"],
            claimed=between(*claimed),
            confidence=between(claim["confidence_lower"], claim["confidence_upper"], claim["mcse"]),
            level=level_of(len(claims)),
            p_against=p_value_text(claim["p_against"]),
            p_in_favour=p_value_text(claim["p_in_favour"]),
            comparisons=int(claim["verdict_comparisons"]),
            why=claim["no_verdict_because"],
            picture=picture(claimed, [claim["found"]]),
        )
        lines.append(line)
    return lines


def _estimate(found: Any) -> str:
    """Of a comparison: its estimate with the error, or alone where it has none."""
    return number(found.estimate) if math.isnan(found.mcse) else with_error(found.estimate, found.mcse)


def p_value_text(value: float) -> str:
    """Return a p-value as text, no smaller than anybody needs."""
    return "< 0.0001" if value < 1e-4 else number(value, 2)


def sentence(lines: Sequence[VerdictLine]) -> str:
    """Return the sentence on the first claim with its number, which answers the question; empty without a claim."""
    if not lines:
        return ""
    first = lines[0]
    found = f"{first.estimate}, claimed {first.claimed}" if first.picture else first.why
    return f"{first.statement.rstrip('.')}: {first.said}{found and f' ({found})'}."


def count_verdicts(lines: Sequence[VerdictLine]) -> str:
    """Return how many claims got which verdict, and whether that is as expected."""
    if not lines:
        return "The design makes no claim."
    tally = Counter(line.verdict for line in lines)
    found = ", ".join(f"{tally[verdict]} {verdict}" for verdict in VERDICT_COLOURS)
    unexpected = sum(not line.as_expected for line in lines)
    outcome = f"{unexpected} not as expected" if unexpected else "all " * (len(lines) > 1) + "as expected"
    return f"{counted(len(lines), 'claim')}: {found}; {outcome}"


def verdict_table(lines: Sequence[VerdictLine], error: str = "MCSE", looks: str = "any number of looks") -> Table:
    """Return the verdicts as a table for the terminal, readable at 80 columns."""
    level = f" ({lines[0].level} confidence intervals, valid at {looks})" if lines else ""
    table = Table(title=f"Verdicts{level}", title_justify="left", show_lines=True)
    table.add_column("claim, and its representative comparison", overflow="fold")
    table.add_column("verdict", no_wrap=True)
    table.add_column(f"estimate ± {error}", justify="right", no_wrap=True)
    for line in lines:
        decided = f"decided by {line.decided_by}" if line.decided_by else ""
        foreseen = "as expected" if line.as_expected else f"not {line.expected}!"
        told = (line.statistic, "dim"), (decided, "dim"), (line.draws, "italic"), (line.why, "yellow")
        table.add_row(
            entry((line.claim, "bold"), *(each for each in told if each[0])),
            entry((line.verdict, f"bold {VERDICT_COLOURS[line.verdict] if line.as_expected else 'red'}"), foreseen),
            entry(line.estimate, f"claimed {line.claimed}", f"within {line.confidence}"),
        )
    return table


def asked_measures(results: xr.Dataset, design: Design) -> list[str]:
    """Return the measures that a design asks for, by its precision or figures, or else those that it states."""
    precisions = {id(planned.precision): planned.precision for planned in design.cells}.values()
    asked = [name for each in precisions for name in (*each.relative_mcse, *each.absolute_mcse)]
    asked += [figure.y for figure in design.figures.values()]
    return list(dict.fromkeys(asked)) or [*stated_measures(results.attrs)] or ["mse"]


def measure_words(results: xr.Dataset, design: Design) -> str:
    """Return how small and how large the measure that is first asked for is, with errors: the answer without claims."""
    name = asked_measures(results, design)[0]
    values, errors = results[name].sel(source="empirical").values, results[f"{name}_mcse"].values
    known = np.flatnonzero(np.isfinite(values))
    ends = dict.fromkeys(known[np.argsort(values[known])][[0, -1]].tolist()) if len(known) else {}
    told = " to ".join(with_error(float(values[end]), float(errors[end])) for end in ends)
    over = "; ".join(dict.fromkeys(results["error_over"].values.tolist()))
    return f"{measure_name(name)}: {told or 'undefined'} ({over})"


def measure_table(results: xr.Dataset, design: Design) -> Table:
    """Return the measures that a design asks for of each cell, for the terminal."""
    names = asked_measures(results, design)
    over = "; ".join(dict.fromkeys(results["error_over"].values.tolist()))
    table = Table("cell", *map(measure_name, names), title=f"Estimates ± MCSE ({over})", title_justify="left")
    for i, planned in enumerate(design.cells[:MAX_LISTED]):
        cell = results.isel(cell=i).sel(source="empirical")
        estimates = (with_error(float(cell[name]), float(cell[f"{name}_mcse"])) for name in names)
        table.add_row(f"{planned.grid}: {place(planned, design)}", *estimates)
    if len(design.cells) > MAX_LISTED:
        table.add_row(f"and {len(design.cells) - MAX_LISTED} more, in cells.csv")
    return table


def verdict_frame(results: xr.Dataset) -> pd.DataFrame:
    """Return one row for each claim, all digits kept."""
    names = ["claim", *(name for name, variable in VARIABLES.items() if variable.dims == ("claim",))]
    return pd.DataFrame({name: results[name].values for name in names if name in results})


def comparison_frame(results: xr.Dataset) -> pd.DataFrame:
    """Return one row for each comparison of each claim, all digits kept."""
    names = [name for name, variable in VARIABLES.items() if variable.dims == ("comparison",)]
    columns = {name.removeprefix("comparison_"): results[name].values for name in names if name in results}
    return pd.DataFrame(columns)


def csv_of(frame: pd.DataFrame) -> str:
    """Return a table as CSV, in which no text is a formula to a spreadsheet: an apostrophe marks it as text."""
    safe = frame.map(lambda value: f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value)
    return safe.to_csv(index=False, lineterminator="\n")


def estimator_words(results: xr.Dataset) -> str:
    """Return which estimators the measures rest on, and in how many cells; empty where none but the plain was asked."""
    found = Counter(results["control_variate"].values.tolist() if "control_variate" in results else [])
    texts = []
    for estimator, count in found.most_common():
        kind, colon, why = estimator.partition(":")
        texts.append(f"{_ESTIMATORS.get(kind, kind)} ({counted(count, 'cell')}){colon}{why}")
    return "; ".join(texts)


def cell_frame(results: xr.Dataset) -> pd.DataFrame:
    """Return one row for each cell: settings, counts, and each measure with its MCSE and theory."""
    settings = [str(name) for name, coordinate in results.coords.items() if coordinate.dims == ("cell",)]
    columns: dict[str, Any] = {name: results[name].values for name in sorted(settings, key=lambda name: name != "grid")}
    columns |= {name: results[name].values for name in (*_COUNTS, "control_variate") if name in results}
    for name in averaged_measures(results):
        columns[name] = results[name].sel(source="empirical").values
        columns[f"{name}_mcse"] = results[f"{name}_mcse"].values
        if name in MEASURES or np.isfinite(results[name].sel(source=list(THEORIES))).any():
            columns |= {f"{name}_{source}": results[name].sel(source=source).values for source in THEORIES}
        if name in MEASURES:
            columns[f"{name}_numerical_error"] = results[f"{name}_numerical_error"].values
    for index in results.index.values:
        columns[f"hdi_{index}"] = results.hdi.sel(index=index).values
        columns[f"hdi_{index}_mcse"] = results.hdi_mcse.sel(index=index).values
    columns |= {f"{source}_inapplicable": results.inapplicable.sel(source=source).values for source in THEORIES}
    return pd.DataFrame(columns)


def comparison_lines(results: xr.Dataset) -> dict[str, list[dict[str, Any]]]:
    """Return, by claim, one line for each comparison; those of one interval claimed on one axis."""
    axes, lines = defaultdict[Any, list[Found]](list), defaultdict[str, list[dict[str, Any]]](list)
    rows = list(comparison_frame(results).itertuples())
    for row in rows:
        found = Found(row.estimate, row.mcse, (row.confidence_lower, row.confidence_upper))
        axes[row.claim, row.claimed_lower, row.claimed_upper].append(found)
    drawn = {(claim, *claimed): picture(claimed, found) for (claim, *claimed), found in axes.items()}
    marks = {axis: iter(shared.marks) for axis, shared in drawn.items() if shared}
    for row in rows:
        axis = row.claim, row.claimed_lower, row.claimed_upper
        shared = drawn[axis]
        side = "outside" if row.p_against < LEVEL else "inside" if row.p_in_favour < LEVEL else "undecided"
        lines[row.claim].append(
            {
                "statistic": row.statistic,
                "estimate": _estimate(row),
                "claimed": between(row.claimed_lower, row.claimed_upper),
                "confidence": between(row.confidence_lower, row.confidence_upper, row.mcse),
                "finding": row.no_verdict_because or side,
                "picture": shared and shared._replace(marks=(next(marks[axis]),)),
            }
        )
    return lines
