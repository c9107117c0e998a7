"""The runs of a study that lie in a folder, its pilot and its confirmations, and what they found of each claim."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import xarray as xr

from simstudy.design.document import Design, confirmatory
from simstudy.errors import UserError
from simstudy.execution.seal import OWN_WORD, Begun, confirmations
from simstudy.execution.store import Store, store_of
from simstudy.results import open_results

COVERAGE = 1.96
"""Half-width of an error bar in MCSE: a 95 % interval."""
ROOM, NARROWEST = 0.1, 0.008
"""Of the line of a picture: on either side of what is shown, and width of an interval claimed, if it is narrower."""
_NUMBERS = ("estimate", "mcse", "mcse_given", "claimed_lower", "claimed_upper", "confidence_lower", "confidence_upper")

Standing = Mapping[str, str]
"""By claim, the statistic of the comparison that stands for it."""


class Found(NamedTuple):
    """What one run found of a claim: its verdict, estimate with MCSE, and the interval in which the truth lies."""

    verdict: str
    estimate: float
    mcse: float
    confidence: tuple[float, float]


class Mark(NamedTuple):
    """Places of one run from 0 to 1: the interval in which the truth lies, estimate ± 1.96 MCSE, and the estimate."""

    confidence: tuple[float, ...]
    error: tuple[float, ...]
    estimate: float


class Picture(NamedTuple):
    """Places from 0 to 1: the interval claimed, and the marks of every run."""

    claimed: tuple[float, float]
    marks: tuple[Mark | None, ...]


def picture(claimed: Sequence[float], runs: Sequence[Found]) -> Picture | None:
    """Return the places of the interval claimed and of what runs found, on one line; None without any estimate."""
    shown = [run for run in runs if math.isfinite(run.estimate)]
    ends = [end for run in shown for end in (run.estimate, *run.confidence)] + list(claimed)
    ends = [end for end in ends if math.isfinite(end)]
    if not shown or max(ends) == min(ends):
        return None
    low, width = min(ends), max(ends) - min(ends)

    def places(*values: float) -> tuple[float, ...]:
        return tuple(min(max(ROOM + (1 - 2 * ROOM) * (value - low) / width, 0.0), 1.0) for value in values)

    def mark(run: Found) -> Mark:
        reach = COVERAGE * run.mcse if math.isfinite(run.mcse) else 0.0
        around = places(run.estimate - reach, run.estimate + reach)
        return Mark(places(*run.confidence), around, *places(run.estimate))

    first, last = places(*claimed)
    room = max(NARROWEST - (last - first), 0.0) / 2
    return Picture((first - room, last + room), tuple(mark(run) if run in shown else None for run in runs))


def standing_of(results: xr.Dataset) -> dict[str, str]:
    """Return what stands for each claim: the comparison that theory names, or else the one that decides this run."""
    return {row["claim"]: row["standing_statistic"] or row["statistic"] for row in _rows(results, "claim")}


def claims_of(results: xr.Dataset, standing: Standing | None = None) -> list[dict[str, Any]]:
    """Return the variables of each claim, with the numbers of what stands for it; NaN if the run does not have it."""
    standing = standing_of(results) if standing is None else standing
    compared: dict[tuple[str, str], dict[str, float]] = {}
    for row in _rows(results, "comparison"):
        if not row["comparison_part_of"]:
            numbers = {name: row[f"comparison_{name}"] for name in _NUMBERS}
            compared.setdefault((row["comparison_claim"], row["comparison_statistic"]), numbers)
    found = []
    for claim in _rows(results, "claim"):
        statistic = standing.get(claim["claim"], claim["statistic"])
        own = compared.get((claim["claim"], statistic), dict.fromkeys(_NUMBERS, math.nan))
        confidence = own["confidence_lower"], own["confidence_upper"]
        seen = Found(claim["verdict"], own["estimate"], own["mcse"], confidence)
        found.append(claim | own | {"statistic": statistic, "decisive": claim["statistic"], "found": seen})
    return found


def _rows(results: xr.Dataset, dimension: str) -> list[dict[str, Any]]:
    """The variables along a dimension, by columns: to take one entry of a data set copies its hundred variables."""
    columns = {str(name): each.values.tolist() for name, each in results.variables.items() if each.dims == (dimension,)}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


NOT_CONFIRMED = "not confirmed"
DIVIDED = "divided"
"""What is said of a claim on which confirmations differ: none of them is picked."""


class Confirmed(NamedTuple):
    """One confirmation that was begun: its beacon, folder and day, why it is void, what it found, and the promise."""

    beacon: str
    folder: str
    day: str
    void: str
    found: dict[str, Found]
    promise: str = OWN_WORD


class Run(NamedTuple):
    """A run that was stored: what it found, the design with its seeds, and where it lies."""

    results: xr.Dataset
    design: Design
    store: Store


def runs_of(design: Design, output: Path) -> Iterator[Run]:
    """Yield what was stored of a study: its pilot, then its confirmations, oldest first, none void or unfinished."""
    pilot = store_of(design, output)
    if (pilot.folder / "results.nc").exists():
        yield Run(open_results(pilot.folder), design, pilot)
    yield from confirmed_runs(design, output)


def confirmed_runs(design: Design, output: Path) -> Iterator[Run]:
    """Yield the confirmations of a study, oldest first, none void or unfinished."""
    pilot = store_of(design, output)
    for begun, store in confirmations(pilot):
        if not _confirmed(begun, store, design).void:
            yield Run(open_results(store.folder), confirmatory(design, begun), store)


def standing_in(design: Design, store: Store) -> Standing | None:
    """Return what stands for the claims of a study in all its runs, by its pilot; None without one of this design."""
    try:
        pilot = open_results(store.folder.parents[1] if design.confirmation else store.folder)
    except UserError:  # nothing was computed there, or by another version
        return None
    return standing_of(pilot) if pilot.attrs["design"] == design.text else None


def confirmed_of(design: Design, pilot: Store) -> list[Confirmed]:
    """Return all confirmations of a study that were begun, oldest first; none of a confirmation itself."""
    begun = [] if design.confirmation is not None else list(confirmations(pilot))
    standing = standing_in(design, pilot) if begun else None
    return [_confirmed(*each, design, standing) for each in begun]


def _confirmed(begun: Begun, store: Store, design: Design, standing: Standing | None = None) -> Confirmed:
    found: dict[str, Found] = {}
    void = f"void, as {broken}" if (broken := begun.broken_by(design)) else ""
    try:
        results = open_results(store.folder)
    except UserError as error:
        void = void or (str(error) if (store.folder / "results.nc").exists() else "not finished")
    else:
        if (results.attrs["seal"], results.attrs["beacon"]) != (begun.seal, begun.beacon):
            void = void or "void, as its results are of another seal or beacon"
        found = {row["claim"]: row["found"] for row in claims_of(results, standing)}
    day = time.strftime("%Y-%m-%d", time.gmtime(begun.started))
    return Confirmed(begun.beacon, store.folder.name, day, void, {} if void else found, begun.promise)


def counted_of(confirmed: Sequence[Confirmed]) -> str:
    """Return how many confirmations were begun, how many of these are finished and count, and how many are void."""
    finished = sum(not each.void for each in confirmed)
    void = sum(each.void.startswith("void") for each in confirmed)
    return f"{len(confirmed)} begun, {finished} finished, {void} void"


def verdict_of(claim: str, confirmed: Sequence[Confirmed]) -> str:
    """Return the verdict on a claim in which all its confirmations agree, or that there is none."""
    found = {each.found[claim].verdict for each in confirmed if claim in each.found}
    if not found:
        return NOT_CONFIRMED
    return found.pop() if len(found) == 1 else DIVIDED


def history_of(claim: str, confirmed: Sequence[Confirmed]) -> str:
    """Return what each confirmation says of a claim, oldest first: "4f0c…: supported; 91ab…: not finished"."""
    said = ((each, each.found[claim].verdict if claim in each.found else each.void) for each in confirmed)
    return "; ".join(f"{each.folder}: {verdict}" for each, verdict in said)
