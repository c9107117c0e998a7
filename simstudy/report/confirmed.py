"""The runs of a study that lie in a folder, its pilot and its confirmations, and what they found of each claim."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from simstudy.design.document import Design, confirmatory
from simstudy.errors import UserError
from simstudy.execution.seal import OWN_WORD, Begun, confirmations
from simstudy.execution.store import Store, store_of
from simstudy.report.pictures import Found
from simstudy.results import open_results

_NUMBERS = ("estimate", "mcse", "mcse_given", "claimed_lower", "claimed_upper", "confidence_lower", "confidence_upper")

Standing = Mapping[str, str]
"""By claim, the statistic of the comparison that stands for it."""


def standing_of(results: xr.Dataset) -> dict[str, str]:
    """Return what stands for each claim: the comparison that theory names, or else the one that decides this run."""
    if "claim" not in results:
        return {}
    columns = (results[name].values.tolist() for name in ("claim", "standing_statistic", "statistic"))
    return {claim: named or decisive for claim, named, decisive in zip(*columns, strict=True)}


def claims_of(results: xr.Dataset, standing: Standing | None = None) -> list[dict[str, Any]]:
    """Return the variables of each claim, with the numbers of what stands for it; NaN if the run does not have it."""
    standing = standing_of(results) if standing is None else standing
    # By columns: to take one claim of a data set copies its hundred variables.
    names = [str(name) for name, variable in results.variables.items() if variable.dims == ("claim",)]
    rows = zip(*(results.variables[name].values.tolist() for name in names), strict=True)
    compared: dict[tuple[str, str], dict[str, float]] = {}
    if "claim" in results:
        columns = ("claim", "statistic", "part_of", *_NUMBERS)
        lists = (results.variables[f"comparison_{name}"].values.tolist() for name in columns)
        for of, statistic, part_of, *numbers in zip(*lists, strict=True):
            if not part_of:
                compared.setdefault((of, statistic), dict(zip(_NUMBERS, numbers, strict=True)))
    found = []
    for row in rows:
        claim = dict(zip(names, row, strict=True))
        statistic = standing.get(claim["claim"], claim["statistic"])
        own = compared.get((claim["claim"], statistic), dict.fromkeys(_NUMBERS, np.nan))
        confidence = own["confidence_lower"], own["confidence_upper"]
        seen = Found(claim["verdict"], own["estimate"], own["mcse"], confidence)
        found.append(claim | own | {"statistic": statistic, "decisive": claim["statistic"], "found": seen})
    return found


NOT_CONFIRMED = "not confirmed"
DIVIDED = "divided"
"""What is said of a claim on which confirmations differ: none of them is picked."""


class Confirmed(NamedTuple):
    """One confirmation that was begun: beacon, folder, day, why it does not count, findings, and its seal's beacon."""

    beacon: str
    folder: str
    day: str
    void: str
    found: dict[str, Found]
    promise: str = OWN_WORD

    @property
    def verdicts(self) -> dict[str, str]:
        """Verdict on each claim."""
        return {claim: found.verdict for claim, found in self.found.items()}


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
    found = {each.verdicts[claim] for each in confirmed if claim in each.verdicts}
    if not found:
        return NOT_CONFIRMED
    return found.pop() if len(found) == 1 else DIVIDED


def history_of(claim: str, confirmed: Sequence[Confirmed]) -> str:
    """Return what each confirmation says of a claim, oldest first: "4f0c…: supported; 91ab…: not finished"."""
    return "; ".join(f"{each.folder}: {each.verdicts.get(claim) or each.void}" for each in confirmed)
