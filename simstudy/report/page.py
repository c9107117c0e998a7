"""Report of a study as one page and as files: verdicts, figures and tables; and a page with all studies."""

import base64
import contextlib
import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
import numpy as np
import xarray as xr
from markupsafe import Markup

from simstudy.design import document
from simstudy.design.answerable import level
from simstudy.design.document import LEVEL, BaseClaim, BaseFigure, Design, Document
from simstudy.design.files import contents
from simstudy.design.load import load_design, name_of, profiles_of, read_design
from simstudy.design.measures import MEASURES, THEORIES, averaged_measures, coordinates_of, stated_measures
from simstudy.errors import UserError
from simstudy.execution.store import RESULTS_FILE, Store, store_of
from simstudy.report import labels, tables
from simstudy.report.terminal import counted
from simstudy.results import cells_of, factors_of, read_results
from simstudy.verdicts.assemble import coordinates

PAGE = "report.html"
_AGAIN = "run the study again (stored batches of unchanged cells are not computed again)"
MAX_REASONS = 3
"""Most reasons why a theory does not apply that are listed for one grid; they may differ in every cell."""
MAX_ROWS = 1000
"""Most cells of one grid in the page, as browsers are slow with more; `cells.csv` has all."""
MAX_COMPARED = 40
"""Most comparisons of one claim in the page; `comparisons.csv` has all."""
MOST_STICKS = 40
"""Most cells of a lollipop figure for a study that declares no figure; with more, it is a nested loop."""
_PROVENANCE = {
    "simstudy_version": "simstudy",
    "commit": "commit (+ if files differ from it)",
    "engine": "digest of code, libraries and processor type",
    "libraries": "libraries",
    "design_hash": "SHA-256 of the design",
}


def write_report(results: xr.Dataset, design: Design, store: Store) -> Path:
    """Write page, figures and tables of a study; return its path; UserError for results of another design."""
    require_same_design(results, design, store)
    pictures = figure_files(results, design)
    files = {f"figures/{name}.png": picture for name, picture in pictures.items()}
    files |= {
        "cells.csv": tables.csv_of(tables.cell_frame(results)).encode(),
        "verdicts.csv": tables.csv_of(tables.verdict_frame(results)).encode(),
        "comparisons.csv": tables.csv_of(tables.comparison_frame(results)).encode(),
        PAGE: render(results, design, pictures).encode(),
    }
    for name, content in files.items():
        store.files.write(name, content)
    return store.folder / PAGE


def figures_of(design: Document, results: xr.Dataset) -> dict[str, BaseFigure]:
    """Return the figures that a design declares, or else one figure of its first claim or measure.

    It is a curve if a factor is numeric and at most two others vary; otherwise it shows each cell separately.
    """
    if design.figures:
        return dict(design.figures)
    claim, factors = next(iter(design.claims.values()), None), factors_of(results)
    grid = claim.grid if claim else next(iter(factors))
    cells = results.isel(cell=np.flatnonzero(results.grid.values == grid))
    planned = [each for each in getattr(design, "cells", ()) if each.grid == grid]
    precision = planned[0].precision if planned else vars(design)["precision"]
    asked = [*([claim.measure] if claim else []), *precision.relative_mcse, *precision.absolute_mcse]
    known = averaged_measures(results)
    asked += [*design.functions.get("measures", ()), "mse", *known]
    y = next((each for each in asked if each in known and np.isfinite(cells[each][0]).any()), None)
    if y is None:
        return {}
    levels = {name: list(dict.fromkeys(level(row, name) for row in coordinates_of(cells))) for name in factors[grid]}
    several = {name: found for name, found in levels.items() if len(found) > 1}
    numeric = [name for name, found in several.items() if not any(isinstance(each, str) for each in found)]
    x = getattr(claim, "x", None) or max(numeric, key=lambda name: len(several[name]), default=None)
    others = sorted((name for name in several if name != x), key=lambda name: name not in ("estimator", "method"))
    title = labels.measure_name(y) + (f" against {labels.setting_name(x)}" if x else " in every cell")
    shared = [name for name in others if len(several[name]) < cells.sizes["cell"]]  # not one that identifies cells
    stated: dict[str, Any] = {"title": title, "grid": grid, "y": y, "hue": next(iter(shared), None)}
    if x and len(others) <= 2 and shared == others:
        return {labels.OVERVIEW: document.CurveFigure(x=x, panel=others[1] if others[1:] else None, **stated)}
    if cells.sizes["cell"] <= MOST_STICKS:
        return {labels.OVERVIEW: document.LollipopFigure(kind="lollipop", **stated)}
    return {labels.OVERVIEW: document.NestedLoopFigure(kind="nested_loop", **stated)}


def margin_of(design: Design, figure: BaseFigure) -> float | None:
    """Return the least relative margin of claims that compare the measure of a figure with theory, or None."""
    # The first figure is shown with the first claim, also if that is on another grid.
    first = [*design.claims.values()][:1] if [figure] == [*design.figures.values()][:1] else []
    about = (c for c in design.claims.values() if isinstance(c, document.AgreesWithTheory) and c.measure == figure.y)
    return min((claim.margin for claim in about if claim.grid == figure.grid or claim in first), default=None)


def figure_files(results: xr.Dataset, design: Design, most: int | None = None) -> dict[str, bytes]:
    """Return the figures of a study as PNG files, by name; only the first ``most``, if given."""
    with contextlib.chdir(Path(__file__).parent):
        # Matplotlib reads a file of settings in the current folder when it is imported, which takes half a second.
        from simstudy.report.figures import draw, image

    stated = [*figures_of(design, results).items()][:most]
    return {name: image(draw(each, name, results, margin_of(design, each))) for name, each in stated}


def require_same_design(results: xr.Dataset, design: Design, store: Store) -> None:
    """Raise UserError if results are of other text of design or files, or lack cells, claims or figures."""
    stated = [("the design", hashlib.sha256(design.text.encode()).hexdigest(), "design_hash")]
    stated += [(path, digest, "data") for digest, path in contents(each.cell for each in design.cells).items()]
    stated += [("a number of functions.py", hashlib.sha256(repr(design.claims).encode()).hexdigest(), "claims_hash")]
    for changed in (what for what, digest, name in stated if digest not in str(results.attrs.get(name))):
        raise UserError(f"{store.folder / RESULTS_FILE}: {changed} has changed since; {_AGAIN}")
    figures = {name: figure.stored for name, figure in design.figures.items() if figure.stored}
    chosen = ("batch_size", "control")  # which a run chooses if designs do not
    wanted = {n: np.array(column).tolist() for n, (_, column) in coordinates(design).items() if n not in chosen}
    wanted |= {"claim": list(design.claims), "figure": list(figures)}
    found = {name: results[name].values.tolist() if name in results.coords else [] for name in wanted}
    same = all(list(map(str, found[name])) == list(map(str, names)) for name, names in wanted.items())
    needed = {"interval"} if any(isinstance(each, document.ZipFigure) for each in design.figures.values()) else set()
    if factors_of(results) != design.factors or not same or not needed.union(*figures.values()) <= {*results.data_vars}:
        raise UserError(f"{store.folder / RESULTS_FILE}: lacks cells, claims or figures of the design; {_AGAIN}")


def render(results: xr.Dataset, design: Design, pictures: dict[str, bytes]) -> str:
    """Return the page of a study as HTML; ``pictures`` are its figures as PNG files, by name."""
    study = describe(results, design, pictures)
    study["comparisons"] = tables.comparison_lines(results)
    study["provenance"] = [(title, str(results.attrs[name]) or "unknown") for name, title in _PROVENANCE.items()]
    study["grids"] = [_grid(results, design, name) for name in design.factors]
    return template("report.html").render(study=study, max_compared=MAX_COMPARED)


def gather(designs: Iterable[Path], profile: str, output: Path, trust: Iterable[Path] = ()) -> Path:
    """Write ``report-<profile>.html`` on all studies with results: answer, first figure, verdicts; return its path."""
    studies = []
    for path in designs:
        name = name_of(read_design(path).tables)
        # A design without results may be unfinished and have mistakes.
        if profile not in profiles_of(path) or RESULTS_FILE not in Store(output / name / profile).files.names():
            continue
        design = load_design(path, profile, trust)
        store = store_of(design, output)
        results = cells_of(read_results(store))
        require_same_design(results, design, store)
        pictures = figure_files(results, design, 1)  # only the first, for the size of the page
        # Relative, so that the folder of all studies can be moved or published as it is.
        link = quote((store.folder / PAGE).relative_to(output).as_posix()) if PAGE in store.files.names() else ""
        studies.append(describe(results, design, pictures) | {"own_page": link})
    if not studies:
        raise UserError(f"{output}: no study has results in profile {profile!r}; run some: simstudy run DESIGN")
    verdicts = [line for study in studies for line in study["verdicts"]]
    totals = {"headline": tables.count_verdicts(verdicts), "n_claims": counted(len(verdicts), "claim")}
    page = template("studies.html").render(studies=studies, profile=profile, **totals)
    return Store(output).files.write(f"report-{profile}.html", page.encode())


def template(name: str) -> jinja2.Template:
    """Return a template of a page.  Inserted text is escaped; the page allows no script and only its own style."""
    loader = jinja2.PackageLoader("simstudy.report")
    environment = jinja2.Environment(
        loader=loader,
        autoescape=jinja2.select_autoescape(["html"]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    style = loader.get_source(environment, "page.css")[0]
    # Content Security Policy Level 3 allows an inline style by its digest (hash-source).
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    environment.globals |= {"style": Markup(style), "policy": policy, "error_rate": LEVEL, "max_rows": MAX_ROWS}
    return environment.get_template(name)


def describe(results: xr.Dataset, design: Design, pictures: dict[str, bytes]) -> dict[str, Any]:
    """Return what pages show of a study, as entries for templates; ``pictures`` are PNG files by name."""
    lines = tables.verdict_lines(results)
    # The first sentence ends before a capital letter, unlike an abbreviation.
    question, more = (*re.split(r"(?<=[.?!])\s+(?=[A-Z])", design.study.aim, maxsplit=1), "")[:2]
    return {
        "name": design.study.name,
        "design": design,
        "question": question,
        "aim": more,
        "verdicts": lines,
        "sentence": tables.sentence(lines) or tables.measure_words(results, design),
        "headline": tables.count_verdicts(lines),
        "figures": [figure_of(k, of.title, pictures.get(k, b"")) for k, of in figures_of(design, results).items()],
    }


def figure_of(name: str, title: str, picture: bytes) -> dict[str, Any]:
    """Return a figure for the page, sized so that its letters are as large as the text of the page."""
    # Pixels are at a fixed place of a PNG file (ISO/IEC 15948, IHDR chunk); CSS has 96 pixels per inch.
    width, height = (int.from_bytes(picture[at : at + 4], "big") * 96 // labels.RESOLUTION for at in (16, 20))
    return {"name": name, "title": title, "width": width, "height": height, "data": base64.b64encode(picture).decode()}


def _grid(results: xr.Dataset, design: Design, name: str) -> dict[str, Any]:
    cells = results.isel(cell=np.flatnonzero(results.grid.values == name))
    precision = next(planned.precision for planned in design.cells if planned.grid == name)
    factors = design.factors[name]
    levels = [[labels.level_name(level(row, factor)) for factor in factors] for row in coordinates_of(cells)]
    # Measures of ensembles or of functions, whichever the grid has; if some are named in the design, only those.
    every = [name for name in stated_measures(results.attrs) if np.isfinite(cells[name]).any()] or list(MEASURES)
    stated = [each for each in (*design.claims.values(), *design.figures.values()) if each.grid == name]
    asked = {each.measure if isinstance(each, BaseClaim) else each.y for each in stated}
    asked |= {*precision.relative_mcse, *precision.absolute_mcse}
    measures = [each for each in averaged_measures(cells) if each in asked and np.isfinite(cells[each]).any()] or every
    theories = []
    for source in THEORIES:  # number of cells where it applies, and reasons in the others
        reasons = Counter(cells.inapplicable.sel(source=source).values.tolist())
        applies, listed = reasons.pop("", 0), reasons.most_common(MAX_REASONS)
        further = reasons.total() - sum(count for _, count in listed)
        why = [f"{reason} ({count})" for reason, count in listed] + [f"others in {further} cells"] * bool(further)
        theories.append({"name": labels.THEORY_NAMES[source], "n_applies": applies, "reasons": "; ".join(why)})
    with_theory = [source for source, theory in zip(THEORIES, theories, strict=True) if theory["n_applies"]]
    relative, absolute = precision.relative_mcse.items(), precision.absolute_mcse.items()
    bounds = [f"{each} ≤ {labels.number(100 * most)} % of the estimate" for each, most in relative]
    bounds += [f"{each} ≤ {labels.number(most)}" for each, most in absolute]
    wanted = [f"MCSE of {'; of '.join(bounds)}"] if bounds and precision.stop != "verdict" else []
    wanted += ["verdicts"] if precision.stop != "precision" else []
    replicates = f"{precision.min_replicates} to {precision.max_replicates} replicates"
    # By columns: selecting one cell of a data set copies all variables.
    part, shown = cells.isel(cell=slice(MAX_ROWS)), []
    for measure in measures:
        estimate, *theory = (part[measure].sel(source=source).values.tolist() for source in ("empirical", *with_theory))
        texts = map(labels.with_error, estimate, part[f"{measure}_mcse"].values.tolist())
        shown.append(zip(texts, *(map(labels.number, column) for column in theory), strict=True))
    counts = (part[each].values.tolist() for each in ("n_replicates", "n_failed", "precision_reached"))
    columns = [list(dict.fromkeys(column)) for column in zip(*levels, strict=True)]
    sizes = (int(each.sum()) for each in (cells.n_replicates, cells.n_failed, ~cells.precision_reached.astype(bool)))
    return {
        "errors": "; ".join(dict.fromkeys(cells["error_over"].values.tolist())),
        "with_theory": [f"{labels.THEORY_NAMES[source]} theory" for source in with_theory],
        "measures": [labels.measure_name(measure) for measure in measures],
        "name": name,
        "title": design.grids[name].title,
        "factors": list(zip(map(labels.setting_name, factors), columns, strict=True)),
        "n_cells": len(levels),
        "size": "{}, {:,} replicates, {} failed, {} short of the target".format(counted(len(levels), "cell"), *sizes),
        "wanted": f"{'; '.join(wanted) or 'none stated'}; {replicates}",
        "estimators": tables.estimator_words(cells),
        "theories": theories,
        "rows": list(zip(levels[:MAX_ROWS], *counts, zip(*shown, strict=True), strict=True)),
    }
