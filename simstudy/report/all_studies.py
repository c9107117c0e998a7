"""All studies on one page: the report that the claims of the paper are read in."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from simstudy.design.document import Design
from simstudy.design.load import load_design, profiles_of
from simstudy.design.shipped import is_shipped
from simstudy.errors import UserError
from simstudy.execution.store import Store, store_of
from simstudy.report.campaign import campaign
from simstudy.report.confirmed import Run, confirmed_of, confirmed_runs, runs_of
from simstudy.report.figures import draw, image
from simstudy.report.page import describe, render_studies, require_same_design
from simstudy.report.sentences import Line
from simstudy.report.terminal import warn


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
    return Store(output).write_text(f"report-{profile}.html", render_studies(studies, profile, campaign(judged), lines))


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
    pictures = {
        name: image(draw(figure, name, shown.results), "png") for name, figure in list(shown.design.figures.items())[:1]
    }
    page = shown.store.folder / "report.html"
    # Relative, so that the folder of all studies can be moved or published as it is.
    link = quote(page.relative_to(output).as_posix()) if page.exists() else ""
    return describe(shown.results, design, pictures, confirmed_of(design, store_of(design, output))) | {
        "own_page": link
    }


def _lines(design: Design, study: dict[str, Any]) -> dict[str, Line]:
    """What cards of published sentences tell of the claims of a study."""
    return {
        (name := f"{design.study.name}/{line.claim}"): Line(
            name, line.statement, line.origin, line.verdict, line.estimate, line.claimed, line.picture,
            design.claims[line.claim].kind == "printed",
            tuple(f"{each.day}" for each in study["confirmed"] if line.claim in each.verdicts and not each.void),
            line.confirmed == line.verdict,
        )
        for line in study["verdicts"]
    }  # fmt: skip
