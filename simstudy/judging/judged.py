"""Verdicts on claims about a table of numbers: `simstudy.judge`, its claims, and its results.

Claims are those of designs, on means under conditions instead of measures in cells.
"""

import dataclasses
import hashlib
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Annotated, Any, Literal, Union

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from pydantic import Field, create_model

from simstudy.design import document as designed
from simstudy.design.answerable import Coordinates, PlannedGrid, refer, selected
from simstudy.design.document import LEVEL, BaseClaim, Name, ViolatedPairs
from simstudy.design.files import read_regular
from simstudy.design.load import parse, read_design, read_file
from simstudy.design.settings.cell import MIN_BLOCKS
from simstudy.design.settings.records import DesignError, Line, Positive, Problem, Record, validated
from simstudy.errors import UserError
from simstudy.execution.folder import Folder
from simstudy.judging.table import Columns, Numbers, Table, numbers_of, table_of
from simstudy.report.labels import level_name
from simstudy.report.tables import comparison_frame, comparison_lines, count_verdicts, verdict_frame, verdict_lines
from simstudy.report.terminal import counted
from simstudy.verdicts.comparisons import Selected
from simstudy.verdicts.estimates import Estimates
from simstudy.verdicts.evidence import Contrast, interval
from simstudy.verdicts.judge import Judgement, judge_claim, tabled

DOUBLINGS, STEPS = 14, 64
"""Most doublings of the number of units that are forecast, and steps within each doubling."""
GRID = "numbers"  # the conditions of the table
_FIXED: dict[str, Any] = {
    "grid": (Literal["numbers"], GRID),
    "measure": (Literal["mean"], "mean"),
    "index": (None, None),
    "these_draws": (Literal[""], ""),
    "stands": (None, None),
    "holds": (Literal["everywhere"], "everywhere"),
    "statement": (Line, Field("")),
}
_CHANGED: dict[type[BaseClaim], dict[str, Any]] = {
    **{kind: {} for kind in (designed.Equals, designed.LargerThan, designed.Monotone, designed.Slope)},
    designed.OptimumSlope: {},
    designed.Optimum: {"value": (Positive, ...), "source": (None, None)},
    designed.ViolatedPairs: {"against": (Line, ...)},
}
"""Kinds of claims and their entries that differ from those of designs: no theory, no diversity index."""
_KINDS = tuple(
    create_model(kind.__name__, __base__=kind, __doc__=kind.__doc__, **_FIXED, **changed)
    for kind, changed in _CHANGED.items()
)
OwnClaim: Any = Annotated[Union[_KINDS], Field(discriminator="kind")]  # noqa: UP007 - of a tuple


class ClaimsFile(Record):
    """A file of claims: the roles of columns of the numbers, and claims by name."""

    numbers: Columns = Columns()
    claims: Annotated[dict[Name, OwnClaim], Field(min_length=1)]


def read_claims(claims: Any) -> tuple[str, ClaimsFile]:
    """Return the name of claims in messages, and the claims, from a file, its text, tables, or a `simstudy.Study`."""
    place = "claims"
    if isinstance(claims, Mapping):
        within = isinstance(stated := claims.get("claims"), Mapping) and "kind" not in stated
        stating = {name: claims[name] for name in ("numbers", "claims") if name in claims}
        tables = read_design(stating if within else {"claims": claims}).tables
    elif isinstance(claims, str) and "\n" in claims:
        tables = parse(place, claims)
    elif isinstance(claims, (str, Path)):
        place, _, _, tables, _ = read_file(Path(claims))
    else:
        kind = type(claims).__name__
        raise UserError(f"claims of type {kind}; give tables by name, the path of a TOML file, or its text")
    return place, validated(ClaimsFile, tables, place=place)


def require_answerable(
    place: str, claims: Mapping[str, BaseClaim], conditions: Sequence[Coordinates]
) -> dict[str, list[list[int]]]:
    """Return the groups of conditions that each claim compares; DesignError if it names none of these conditions."""
    factors = tuple(conditions[0])
    grid, compared = PlannedGrid(factors, conditions, selectable=factors), {}
    for reference in refer({GRID: grid}, {f"claims.{name}": claim for name, claim in claims.items()}, place):
        path, claim = reference.path, reference.entry
        groups = reference.compared or [[number] for number in reference.chosen]
        if isinstance(claim, ViolatedPairs):
            if (against := claim.against) not in factors:
                raise DesignError(place, [Problem.unknown(f"{path}.against", against, factors, noun="factor")])
            if not all(isinstance(each[against], (int, float)) for each in conditions):
                fault = "is not a number under every condition; use a numeric factor"
                raise DesignError(place, [Problem(f"{path}.against", against, fault)])
            groups = [reference.chosen]
        compared[path.removeprefix("claims.")] = groups
    return compared


class Verdicts:
    """Result of `simstudy.judge`; Python and notebooks show it as a table.

    Attributes
    ----------
    dataset : xarray.Dataset
        Verdicts along ``claim`` and comparisons along ``comparison``, each variable with its meaning.
    n_units, n_dropped : int
        Number of units in any comparison, and of units left out of a comparison for lack of a number.
    factors : tuple of str
        Names of the factors whose levels are the conditions.
    independent : str
        What is independent: "unit" or "cluster".
    looks : str
        At how many looks verdicts hold: "one look" or "any number of looks".
    """

    def __init__(self, dataset: xr.Dataset, table: Table, used: NDArray, missing: NDArray, unsure: int) -> None:
        self._used, self._missing, self._table, self._unsure = used, missing, table, unsure
        self.dataset, self.n_units, self.n_dropped = dataset, int(used.sum()), int(missing.any(axis=1).sum())
        self.factors, self.independent = tuple(table.conditions[0]), table.independent
        self.looks = "one look" if table.one_look else "any number of looks"

    def to_dataframe(self) -> pd.DataFrame:
        """Return a row for each claim: verdict, estimate, error, intervals, p-values, and units still needed."""
        of_designs = ["origin", "representative_statistic", "verdict_draws", "these_draws"]
        frame = verdict_frame(self.dataset).set_index("claim").drop(columns=of_designs)
        frame.columns = [name.removeprefix("verdict_") for name in frame.columns]
        return frame.assign(further_units=self.dataset.further_units.values)

    def comparisons(self) -> pd.DataFrame:
        """Return one row for each comparison of each claim."""
        return comparison_frame(self.dataset)

    @property
    def lines(self) -> list[Any]:
        """Verdicts as text, with numbers rounded according to their errors."""
        return verdict_lines(self.dataset)

    @property
    def summary(self) -> list[str]:
        """Numbers of units and conditions, and of claims by verdict, as lines of text."""
        size, table = counted(self.n_units, "unit"), self._table
        if self.independent != "unit":
            size += f" in {counted(len(np.unique(table.clusters[self._used])), self.independent)}"
        size += f", {counted(len(conditions := table.conditions), 'condition')}"
        # If there are few, their names show a column that is not meant as a condition.
        if len(conditions) <= 6 and len(conditions[0]) == 1:
            size += f" ({', '.join(level_name(level) for each in conditions for level in each.values())})"
        if self.n_dropped:
            lacking = self._missing.sum(axis=0)
            most = f"{lacking.max():,} under {table.at(int(lacking.argmax()))}"
            size += f", {counted(self.n_dropped, 'unit')} left out of comparisons for lack of a number ({most})"
        return [size, count_verdicts(self.lines), self.cost]

    @property
    def cost(self) -> str:
        """Text on the number of looks at which verdicts hold, and how much longer that makes intervals of means."""
        count, level = len(np.unique(self._table.clusters[self._used])), LEVEL / max(self.dataset.sizes["claim"], 1)
        any_looks = Contrast(0.0, 1.0, count, count - 1, 0.0, 0.0)
        ratio = interval(any_looks, level)[1] / interval(any_looks._replace(one_look=level, fewest=2), level)[1]
        long, fewest = f"{ratio:.2g} times as long", f"{MIN_BLOCKS} {self.independent}s are needed"
        if not self._table.one_look:
            are = f"intervals of means are {long} as" if math.isfinite(ratio) else f"{fewest}, not so"
            return f'Verdicts hold at {self.looks}: {are} at one look (looks = "one").'
        would = f"intervals of means would be {long}" if math.isfinite(ratio) else fewest
        held = f"Verdicts hold at {self.looks}, at as many units as were fixed before; at any number of looks {would}."
        few = f" In {counted(self._unsure, 'comparison')} units are too few or too skewed for Student's t."
        return held + few * bool(self._unsure)

    @property
    def wanted(self) -> list[str]:
        """Lines with the number of further units, to two digits, that would probably decide each undecided claim."""
        lines, found = [], self.dataset
        for units, claim in zip(found.further_units.values.tolist(), found.claim.values, strict=True):
            if not units > 0.0:  # decided, or unknown
                continue
            units += self.n_units * bool(self._table.one_look)
            step = 1 if math.isinf(units) else 10 ** max(math.floor(math.log10(units)) - 1, 0)
            count = "no number of" if math.isinf(units) else f"about {math.ceil(units / step) * step:,}"
            more = f"{count} units, all of them new," if self._table.one_look else f"{count} units more"
            lines.append(f"{claim}: {more} would probably decide")
        return lines

    def brief(self) -> pd.DataFrame:
        """Return the verdicts as text."""
        words = {"estimate": "estimate ± standard error", "confidence": "truth within"}
        names = ["claim", "verdict", "expected", "statistic", "estimate", "claimed", "confidence"]
        return pd.DataFrame(map(vars, self.lines))[names].rename(columns=words).set_index("claim")

    def __repr__(self) -> str:
        return "\n".join([*self.summary, self.brief().to_string(), *self.wanted])

    def _repr_html_(self) -> str:
        return f"<p>{'<br>'.join(map(escape, [*self.summary, *self.wanted]))}</p>{self.brief().to_html()}"


def judge(
    numbers: Any,
    claims: Mapping[str, Any] | str | Path,
    *,
    unit: str | None = None,
    value: str | None = None,
    factors: tuple[str, ...] | list[str] | None = None,
    cluster: str | None = None,
    missing: Literal["refuse", "drop"] | None = None,
    looks: Literal["any", "one"] | None = None,
) -> Verdicts:
    """Judge claims on your own numbers, one for each unit (replicate, task, seed, question) and condition.

    Conditions are paired by unit.  Each claim is supported, contradicted or undecided.  The probability that any
    verdict is wrong is at most 5 %, also if units are added and claims judged again, any number of times.

    Parameters
    ----------
    numbers : data frame of pandas, polars or another library that narwhals knows, or mapping
        A frame with a row for each unit and a column for each condition, where levels of columns are factors; or, if
        ``value`` is given, with a row for each unit and condition.  Or a mapping of conditions to arrays.
    claims
        Claims by name, each with its ``kind`` and the entries of designs except ``grid`` and
        ``measure``; or a file or text of TOML with tables ``[claims.NAME]``, or a `simstudy.Study` with claims.
    unit
        Column of units; by default rows are units.
    value
        Column of numbers, in a frame with a row for each unit and condition.
    factors
        Columns whose values are the conditions in such a frame; by default all other columns.
    cluster
        Column or level of the index with one name for all units that depend on one another.
    missing
        "refuse", the default, or "drop", which leaves out units that lack a number of a comparison.
    looks
        "any", the default; or "one", if the number of units was fixed before a single look.  Then Student's t is used
        for means, exact intervals for shares of events (numbers 0 and 1), McNemar's test for their differences.

    Returns
    -------
    Verdicts
        Shown as a table, with ``to_dataframe()``, ``comparisons()`` and ``dataset``.

    Raises
    ------
    DesignError
        If claims have mistakes; it names all of them.
    UserError
        If the numbers are not such a table, or numbers are missing or infinite.
    """
    place, stated = read_claims(claims)
    given = {"unit": unit, "value": value, "factors": factors, "cluster": cluster, "missing": missing, "looks": looks}
    return judged(numbers, place, stated, {name: each for name, each in given.items() if each is not None})


def judged(numbers: Any, place: str, stated: ClaimsFile, given: Mapping[str, Any]) -> Verdicts:
    """Return verdicts on a file of claims; roles of columns in ``given`` override those of the file."""
    table = table_of(numbers, validated(Columns, stated.numbers.model_dump() | dict(given), place="judge"))
    used, missing = np.zeros(len(table.units), bool), np.zeros(table.values.shape, bool)
    judgements, further, n_claims, unsure = {}, [], len(stated.claims), 0
    table = table._replace(one_look=table.one_look / n_claims)
    for name, groups in require_answerable(place, stated.claims, table.conditions).items():
        claim, found = stated.claims[name], numbers_of(table, groups)
        used, missing = used | found.used, missing | found.missing
        judgement = judgement_of(claim, found.estimates, n_claims)
        further.append(_further(claim, found, judgement, n_claims))
        unsure += sum(bool(each.reason) for each in judgement.comparisons)
        # In reasons, units or clusters take the place of blocks.
        bounds = sum(math.isfinite(end) for each in judgement.comparisons for end in (each.lower, each.upper))
        worded = []
        for each in (judgement.decisive, *judgement.comparisons):
            reason = each.reason.replace("blocks of replicates or draws", "blocks").replace("block", table.independent)
            low, high = each.confidence(judgement.level)
            if not reason and bounds > 1 and (low > each.upper or high < each.lower):
                reason = f"outside, but what contradicts is corrected for {bounds} bounds"
            worded.append(each._replace(reason=reason))
        judgements[name] = judgement._replace(decisive=worded[0], comparisons=worded[1:])
    meaning = "units more that would probably decide the claim, if all means were as estimated; 0 if it is decided"
    meaning += ", NaN if its errors are too uncertain to tell"
    units = xr.Variable("claim", np.ceil(further), {"long_name": meaning, "units": "1"})
    dataset = tabled(stated.claims, judgements).assign(further_units=units)
    for column in dataset.data_vars.values() if table.one_look else ():
        column.attrs["long_name"] = column.attrs["long_name"].replace("at all looks together", "at one look")
    return Verdicts(dataset, table, used, missing, unsure)


def judgement_of(claim: BaseClaim, estimates: Estimates, n_claims: int) -> Judgement:
    """Return the verdict on one of ``n_claims`` claims, by the tests that are used for designs."""
    chosen = [i for i, levels in enumerate(estimates.conditions) if selected(levels, claim.where)]
    diversity = None
    if isinstance(claim, ViolatedPairs):  # the levels of a factor, as estimates without error
        values = np.array([float(levels[claim.against]) for levels in estimates.conditions])
        nothing, none = [np.zeros_like(each) for each in estimates.contributions], np.zeros(len(values))
        without: dict[str, Any] = {"contributions": nothing, "remainders": none, "trials": none + np.inf}
        diversity = dataclasses.replace(estimates, values=values, events=None, **without)
    of = Selected(estimates, chosen, tuple(estimates.conditions[0]), diversity=diversity)
    return judge_claim(claim, of, n_claims)


def _further(claim: BaseClaim, numbers: Numbers, now: Judgement, n_claims: int) -> float:
    """Return the number of further units that probably decide a claim, infinite beyond 2^`DOUBLINGS` times as many.

    It is NaN if a few units have much of the squared error, which cannot be forecast then.
    """
    if now.verdict != "undecided":
        return 0.0
    # A forecast is possible for equal and for skewed units.
    reasons = (each.reason for each in (now.decisive, *now.comparisons))
    if any(reason and not reason.startswith(("all ", "blocks are")) for reason in reasons):
        return math.nan
    multiples = 2.0 ** (np.arange(1, DOUBLINGS * STEPS + 1) / STEPS)

    def decided(times: float) -> bool:
        return judgement_of(claim, numbers.estimates.repeated(times), n_claims).verdict != "undecided"

    place = bisect_left(multiples, True, key=decided)
    return float(numbers.used.sum() * (multiples[place] - 1.0)) if place < len(multiples) else math.inf


def write_page(found: Verdicts, path: Path, sources: tuple[Path, ...]) -> Path:
    """Write a page with each estimate and its claimed interval, and digests of its sources; return its path."""
    from simstudy.report.page import template  # slow to import

    digests = [(each.name, hashlib.sha256(read_regular(each, 1 << 32)).hexdigest()) for each in sources]
    study = {
        "name": sources[0].name, "verdicts": found.lines, "headline": count_verdicts(found.lines),
        "size": found.summary[0], "factors": found.factors, "independent": found.independent, "further": found.wanted,
        "cost": found.cost, "comparisons": comparison_lines(found.dataset),
        "provenance": [(f"SHA-256 of {name}", digest) for name, digest in digests],
    }  # fmt: skip
    return Folder(path.parent).write(path.name, template("numbers.html").render(study=study).encode())
