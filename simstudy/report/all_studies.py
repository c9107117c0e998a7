"""All studies on one page, the report that the claims of the paper are read in."""

import tomllib
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

import xarray as xr

from simstudy.design.claims import LEVEL
from simstudy.design.document import Design
from simstudy.design.load import load_design, profiles_of
from simstudy.design.written import is_shipped
from simstudy.errors import UserError
from simstudy.execution.store import Store, store_of
from simstudy.report.figures import draw, image
from simstudy.report.page import describe, figures_of, margin_of, require_same_design, template
from simstudy.report.tables import VerdictLine, count_verdicts
from simstudy.results import read_cells


def papers() -> list[dict[str, Any]]:
    """Return the papers whose abstracts are put to the test: title, arxiv and sentences of each."""
    return list(tomllib.loads((files(__package__) / "templates" / "abstracts.toml").read_text("utf-8"))["paper"])


def claims_of(sentence: Mapping[str, Any], origins: Mapping[str, str]) -> list[str]:
    """Return the claims that test a sentence: those that it names, and all of an origin that it names."""
    named = sentence.get("claims", [])
    return [*(name for name in named if "/" in name), *(name for name, origin in origins.items() if origin in named)]


def _tested(lines: Mapping[str, VerdictLine]) -> list[dict[str, Any]]:
    """Return the papers, each sentence with the verdicts of STUDY/CLAIM that test it."""
    origins = {name: line.origin for name, line in lines.items()}
    told = papers() if lines else []
    for sentence in (sentence for paper in told for sentence in paper["sentences"]):
        sentence["lines"] = {name: lines[name] for name in claims_of(sentence, origins) if name in lines}
    return told


def gather(designs: Iterable[Path], profile: str, output: Path, trust: Iterable[Path] = ()) -> Path:
    """Write ``report-<profile>.html``: every study that has results, with its answer, first figure and verdicts."""
    studies = []
    lines: dict[str, VerdictLine] = {}
    for path in designs:
        if profile not in profiles_of(path):
            continue
        design = load_design(path, profile, trust)
        store = store_of(design, output)
        if not (store.folder / "results.nc").exists():
            continue
        results = read_cells(store)
        require_same_design(results, design, store)
        studies.append(_described(results, design, store, output))
        if is_shipped(path):
            lines |= {f"{design.study.name}/{line.claim}": line for line in studies[-1]["verdicts"]}
    if not studies:
        raise UserError(f"{output}: no study has results in profile {profile!r}; run some: simstudy run DESIGN")
    told = [line for study in studies for line in study["verdicts"]]
    page = template("studies.html").render(
        studies=studies,
        profile=profile,
        n_claims=len(told),
        headline=count_verdicts(told),
        error_rate=LEVEL,
        papers=_tested(lines),
    )
    return Store(output).write_text(f"report-{profile}.html", page)


def _described(results: xr.Dataset, design: Design, store: Store, output: Path) -> dict[str, Any]:
    """Return the entries of a study on the page: with its first figure, as all of them would be too large."""
    first = list(figures_of(design, results).items())[:1]
    pictures = {name: image(draw(figure, name, results, margin_of(design, figure))) for name, figure in first}
    page = store.folder / "report.html"
    # Relative, so that the folder of all studies can be moved or published as it is.
    link = quote(page.relative_to(output).as_posix()) if page.exists() else ""
    return describe(results, design, pictures) | {"own_page": link}
