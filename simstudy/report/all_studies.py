"""All studies on one page, the report that the claims of the paper are read in, with verdicts at one level for all."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import xarray as xr

from simstudy.design.claims import LEVEL, OptimumLaw, OptimumSlope
from simstudy.design.document import Design
from simstudy.design.load import load_design, profiles_of
from simstudy.design.written import is_shipped
from simstudy.errors import UserError
from simstudy.execution.store import Store, store_of
from simstudy.report.answer import Line, cards, count_origins, headline
from simstudy.report.confirmed import Run, confirmed_of, confirmed_runs, runs_of
from simstudy.report.figures import draw, image
from simstudy.report.page import describe, require_same_design, template
from simstudy.report.terminal import warn

AT_ITS_OWN_LEVEL = (OptimumSlope, OptimumLaw)
"""Claims that spend a part of their level on which levels may be least: their p-values hold at no other level."""


def campaign(studies: list[tuple[xr.Dataset, Design]]) -> dict[str, Any]:
    """Judge the claims of several studies such that any of all verdicts is wrong with probability LEVEL at most.

    Each study is judged at LEVEL over the number of studies (Bonferroni). So the claims of one study do not weigh on
    those of another, and a study's level depends on how many there are, not on how many claims the others make. Holm's
    method gains nothing that is sure here: of every claim either "it holds" or "it fails" is true, so that no decision
    makes the number of true hypotheses smaller.

    Returns how many studies share the level, the verdicts that hold at it by study and claim, and how many claims have
    a verdict in their study and at this level.
    """
    claiming = [(results, design) for results, design in studies if design.claims]
    verdicts: dict[str, dict[str, str]] = {design.study.name: {} for _, design in claiming}
    n_decided = n_hold = 0
    for results, design in claiming:
        columns = (results[name].values.tolist() for name in ("claim", "verdict", "p_against", "p_in_favour"))
        for name, verdict, *p_values in zip(*columns, strict=True):
            at_its_own = isinstance(design.claims[name], AT_ITS_OWN_LEVEL) and len(claiming) > 1
            holds = min(p_values) * len(claiming) < LEVEL and not at_its_own
            verdicts[design.study.name][name] = verdict if holds else "inconclusive"
            n_decided += verdict != "inconclusive"
            n_hold += holds and verdict != "inconclusive"
    return {"n_studies": len(claiming), "verdicts": verdicts, "n_decided": n_decided, "n_hold": n_hold}


def gather(designs: Iterable[Path], profile: str, output: Path) -> Path:
    """Write ``report-<profile>.html``: every study that has results, with its answer, first figure and verdicts."""
    studies, judged = [], []
    lines: dict[str, Line] = {}
    for path in designs:
        if profile not in profiles_of(path):
            continue
        design = load_design(path, profile)
        shown = _shown(design, output)
        if shown is None:
            continue
        studies.append(_described(shown, design, output))
        judged.append((shown.results, shown.design))
        lines |= _lines(design, studies[-1]) if is_shipped(path) else {}
    if not studies:
        raise UserError(f"{output}: no study has results in profile {profile!r}; run some: simstudy run DESIGN")
    told = [line for study in studies for line in study["verdicts"]]
    page = template("studies.html").render(
        studies=studies,
        profile=profile,
        n_claims=len(told),
        headline=headline(told),
        origins=count_origins(told),
        error_rate=LEVEL,
        campaign=campaign(judged),
        papers=list(cards(template("card.html"), lines)) if lines else [],
    )
    return Store(output).write_text(f"report-{profile}.html", page)


def _shown(design: Design, output: Path) -> Run | None:
    """The pilot of a study, or else its last confirmation, which also takes the place of a pilot of another design."""
    last = next(reversed(list(confirmed_runs(design, output))), None)
    try:
        first = next(runs_of(design, output), None)
        if first is not None and first.design is design:
            require_same_design(*first)
            return first
    except UserError as error:
        if last is None:
            raise
        warn(f"{error}; the page shows the last confirmation instead")
    if last is not None:
        require_same_design(*last)
    return last


def _described(shown: Run, design: Design, output: Path) -> dict[str, Any]:
    """What the page says about a study: with its first figure, as all of them would weigh too much."""
    first = list(shown.design.figures.items())[:1]
    pictures = {name: image(draw(figure, name, shown.results)) for name, figure in first}
    page = shown.store.folder / "report.html"
    # Relative, so that the folder of all studies can be moved or published as it is.
    link = quote(page.relative_to(output).as_posix()) if page.exists() else ""
    told = describe(shown.results, design, pictures, confirmed_of(design, store_of(design, output)))
    return told | {"own_page": link}


def _lines(design: Design, study: dict[str, Any]) -> dict[str, Line]:
    """What cards of published sentences tell of the claims of a study."""
    return {
        (name := f"{design.study.name}/{line.claim}"): Line(
            name,
            line.statement,
            line.origin,
            line.verdict,
            line.estimate,
            line.claimed,
            line.picture,
            design.claims[line.claim].kind == "printed",
            tuple(each.day for each in study["confirmed"] if line.claim in each.found),
            line.confirmed == line.verdict,
        )
        for line in study["verdicts"]
    }
