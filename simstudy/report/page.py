"""The report of a study: one page with verdicts, figures and tables, and the same as files."""

import base64
import contextlib
import hashlib
import math
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import xarray as xr
from markupsafe import Markup

from simstudy.design.claims import LEVEL, BaseClaim
from simstudy.design.document import Design, PlannedCell
from simstudy.design.figures import ZipFigure
from simstudy.design.measures import MEASURES, THEORIES, averaged_measures, coordinates_of, stated_measures
from simstudy.design.settings.levels import level, selected
from simstudy.design.written import FILE
from simstudy.errors import UserError
from simstudy.execution.provenance import contents
from simstudy.execution.store import Store
from simstudy.report import labels, tables
from simstudy.report.answer import count_origins, formulas_of, groups, headline, said_of, sentence
from simstudy.results import factors_of
from simstudy.verdicts.assemble import coordinates

PAGE = "report.html"
_AGAIN = "run the study again (stored batches of unchanged cells are not computed again)"
MAX_REASONS = 3
"""Reasons why a theory does not apply that are listed for one grid; they may differ in every cell."""
MAX_ROWS = 1000
"""Cells of one grid listed in the page: a browser is slow with more, and `cells.csv` has them all."""
MAX_CELLS = 4000
"""Cells that a page holds as data: about two megabytes."""
_DIGITS = 6
"""Significant digits: more than any error allows; `cells.csv` has all."""
MAX_COMPARED = 200
"""Comparisons of one claim listed in the page."""
_PROVENANCE = {
    "simstudy_version": "simstudy",
    "commit": "commit (+: files differ)",
    "engine": "engine",
    "libraries": "libraries",
    "design_hash": "SHA-256 of the design",
}


def write_report(results: xr.Dataset, design: Design, store: Store, vector: str | None = None) -> Path:
    """Write page, figures and tables of a study; results of another text of the design are refused.

    ``vector``: also write the figures and one of all claims as ``pdf`` or ``svg``.
    """
    require_same_design(results, design, store)
    for name, content in report_files(results, design).items():
        store.files.write(name, content)
    if vector:
        lines = tables.verdict_lines(results)
        for name, content in figure_files(results, design, lines, vector).items():
            store.files.write(f"figures/{name}.{vector}", content)
    return store.folder / PAGE


def report_files(results: xr.Dataset, design: Design) -> dict[str, bytes]:
    """Return the files of a report by name."""
    pictures = figure_files(results, design)
    texts = {
        "cells.csv": tables.csv_of(tables.cell_frame(results)),
        "verdicts.csv": tables.csv_of(tables.verdict_frame(results)),
        "comparisons.csv": tables.csv_of(tables.comparison_frame(results)),
        PAGE: render(results, design, pictures),
    }
    files = {f"figures/{name}.png": picture for name, picture in pictures.items()}
    return files | {name: text.encode() for name, text in texts.items()}


def figure_files(
    results: xr.Dataset, design: Design, lines: Sequence[tables.VerdictLine] = (), suffix: str = "png"
) -> dict[str, bytes]:
    """Return the figures of a study by name: declared ones, cells against theory, and the claims of ``lines``."""
    with contextlib.chdir(Path(__file__).parent):
        # Matplotlib reads a file of settings in the current folder when it is imported, which takes half a second.
        from simstudy.report.figures import draw, draw_claims, draw_z_scores, image

    files = {name: image(draw(figure, name, results), suffix) for name, figure in design.figures.items()}
    if (drawing := draw_z_scores(results)) is not None:
        files[labels.Z_SCORES] = image(drawing, suffix)
    return files | ({labels.ALL_CLAIMS: image(draw_claims(lines), suffix)} if lines else {})


def require_same_design(results: xr.Dataset, design: Design, store: Store) -> None:
    """Refuse results of another text of the design or of its files."""
    stated = [("the design", hashlib.sha256(design.text.encode()).hexdigest(), "design_hash")]
    read = contents(planned.cell for planned in design.cells)
    stated += [(path, digest, "data") for digest, path in read.items()]
    for changed in (what for what, digest, name in stated if digest not in str(results.attrs.get(name))):
        raise UserError(f"{store.folder / 'results.nc'}: {changed} has changed since; {_AGAIN}")
    if not _has_all_of(results, design):
        raise UserError(f"{store.folder / 'results.nc'}: lacks cells, claims or figures of the design; {_AGAIN}")


def _has_all_of(results: xr.Dataset, design: Design) -> bool:
    """Whether results have the cells, claims and figures of a design: readers look for them by name and number."""
    stored = {name: figure.stored for name, figure in design.figures.items() if figure.stored}
    wanted = {name: np.array(column).tolist() for name, (_, column) in coordinates(design).items()}
    wanted |= {"claim": list(design.claims), "figure": list(stored)}
    found = {name: results[name].values.tolist() if name in results.coords else [] for name in wanted}
    if factors_of(results) != design.factors or any(
        list(map(str, found[name])) != list(map(str, names)) for name, names in wanted.items()
    ):
        return False
    zipped = any(isinstance(figure, ZipFigure) for figure in design.figures.values())
    return ("interval" in results or not zipped) and set().union(*stored.values()) <= set(results.data_vars)


def render(results: xr.Dataset, design: Design, pictures: dict[str, bytes]) -> str:
    """Return the page of a study as HTML; ``pictures`` are its figures as PNG files, by name."""
    study = describe(results, design, pictures)
    study["comparisons"] = tables.comparison_lines(results)
    study["provenance"] = [(title, str(results.attrs[name]) or "unknown") for name, title in _PROVENANCE.items()]
    study["grids"] = [_grid(results, design, name) for name in design.factors]
    return template("report.html").render(
        study=study,
        explored=explored(results, design),
        error_rate=LEVEL,
        max_rows=MAX_ROWS,
        max_compared=MAX_COMPARED,
    )


def template(name: str) -> jinja2.Template:
    """Return a template of this room; what is put into a page is escaped, and only its own script and style count."""
    loader = jinja2.PackageLoader("simstudy.report")
    environment = jinja2.Environment(
        loader=loader,
        autoescape=jinja2.select_autoescape(["html"]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    # As given: claims in the order of the design.
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False}
    policy = "default-src 'none'; img-src data:"
    for kind, suffix in (("style", "css"), ("script", "js")):
        text = loader.get_source(environment, f"page.{suffix}")[0]
        environment.globals[kind] = Markup(text)
        # Content Security Policy Level 3, hash-source: by what a policy knows an inline script or style.
        policy += f"; {kind}-src 'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
    environment.globals |= {
        "said_of": said_of,
        "policy": f"{policy}; base-uri 'none'; form-action 'none'",
    }
    return environment.get_template(name)


def describe(results: xr.Dataset, design: Design, pictures: dict[str, bytes]) -> dict[str, Any]:
    """Return what any page says about a study, with the pictures given of its figures."""
    lines = tables.verdict_lines(results)
    titles = {name: figure.title for name, figure in design.figures.items()}
    titles |= {labels.Z_SCORES: "All cells against theory, in errors"} if labels.Z_SCORES in pictures else {}
    return {
        "name": design.study.name,
        "title": design.study.title,
        "aim": design.study.aim,
        "profile": design.profile,
        "design_text": design.text,
        "budget": design.budget.words,
        "verdicts": lines,
        "sentence": sentence(lines),
        "headline": headline(lines),
        "groups": groups(lines),
        "formulas": formulas_of(design),
        "own_page": "",
        "origins": count_origins(lines),
        "confirmation": design.confirmation,
        "figures": [figure_of(name, title, pictures.get(name, b"")) for name, title in titles.items()],
    }


def figure_of(name: str, title: str, picture: bytes) -> dict[str, Any]:
    """Return a figure for the page, as wide as the drawing on paper, so that its letters are as large as the text."""
    # Width and height in pixels stand at a fixed place in a PNG file (ISO/IEC 15948, IHDR chunk); the web has 96 to an
    # inch.
    width, height = (int.from_bytes(picture[at : at + 4], "big") * 96 // labels.RESOLUTION for at in (16, 20))
    data = base64.b64encode(picture).decode()
    return {"name": name, "title": title, "width": width, "height": height, "data": data}


def _grid(results: xr.Dataset, design: Design, name: str) -> dict[str, Any]:
    cells = results.isel(cell=np.flatnonzero(results.grid.values == name))
    planned = next(planned for planned in design.cells if planned.grid == name)
    factors = design.factors[name]
    levels = [[labels.level_name(level(row, factor)) for factor in factors] for row in coordinates_of(cells)]
    # Of ensembles, or the numbers of functions, whichever the grid has.
    own = [name for name in stated_measures(results.attrs) if np.isfinite(cells[name]).any()]
    measures = own or list(MEASURES)
    theories = []
    for source in THEORIES:  # in how many cells it applies, and why not in the others
        reasons = Counter(cells.inapplicable.sel(source=source).values.tolist())
        applies, listed = reasons.pop("", 0), reasons.most_common(MAX_REASONS)
        further = reasons.total() - sum(count for _, count in listed)
        name_of = labels.THEORY_NAMES[source]
        theories.append({"name": name_of, "n_applies": applies, "reasons": listed, "n_further": further})
    told = any(theory["n_applies"] for theory in theories)
    columns = [list(dict.fromkeys(column)) for column in zip(*levels, strict=True)]
    return {
        "told": told,
        "measures": [labels.measure_name(measure) for measure in measures],
        "name": name,
        "title": design.titles[name],
        "factors": list(zip(map(labels.setting_name, factors), columns, strict=True)),
        "n_cells": len(levels),
        "n_replicates": f"{int(cells.n_replicates.sum()):,}".replace(",", "\u202f"),
        "n_failed": int(cells.n_failed.sum()),
        "n_missed": int((~cells.precision_reached.values.astype(bool)).sum()),
        "wanted": precision_words(planned),
        "estimators": tables.estimator_words(cells),
        "theories": theories,
        "rows": list(_rows(cells, levels[:MAX_ROWS], measures, told)),
    }


def precision_words(planned: PlannedCell) -> str:
    """The Monte Carlo errors wanted of a cell, and the replicates allowed for them, in words."""
    precision = planned.precision
    wanted = [
        f"{name} ≤ {labels.number(100 * bound)} % of the estimate" for name, bound in precision.relative_mcse.items()
    ]
    wanted += [f"{name} ≤ {labels.number(bound)}" for name, bound in precision.absolute_mcse.items()]
    replicates = f"{precision.min_replicates} to {precision.max_replicates} replicates"
    parts = [f"MCSE of {'; of '.join(wanted)}"] if wanted and precision.stop != "verdict" else []
    parts += ["verdicts"] if precision.stop != "precision" else []
    return f"{'; '.join(parts) or 'none stated'}; {replicates}"


def _rows(cells: xr.Dataset, levels: list[list[str]], measures: list[str], told: bool) -> Iterator[dict[str, Any]]:
    """Cells in the table of results: levels, counts, of each measure the estimate ± MCSE, and the theories if any."""
    # By columns: to take one cell of a data set copies its hundred variables.
    shown = []
    for name in measures:
        estimate, *theories = (cells[name].sel(source=source).values.tolist() for source in ("empirical", *THEORIES))
        errors = (cells[f"{name}_{error}"].values.tolist() for error in ("mcse", "mcse_given"))
        texts = [
            labels.with_error(value, mcse) + labels.given_draws(mcse, given)
            for value, mcse, given in zip(estimate, *errors, strict=True)
        ]
        shown.append([texts, *(list(map(labels.number, theory)) for theory in theories if told)])
    counts = (cells[name].values.tolist() for name in ("n_replicates", "n_failed", "precision_reached"))
    for i, (row, replicates, failed, reached) in enumerate(zip(levels, *counts, strict=False)):
        yield {
            "levels": row,
            "n_replicates": replicates,
            "n_failed": failed,
            "reached": reached,
            "measures": [[column[i] for column in columns] for columns in shown],
        }


def explored(results: xr.Dataset, design: Design) -> dict[str, Any]:
    """Return the cells of a study as a page holds them: plain data without NaN, to be written as JSON."""
    measures, planned, rows = _measures(results), design.cells[:MAX_CELLS], coordinates_of(results)
    counts = (results[name].values.tolist() for name in ("n_replicates", "n_failed"))
    cells = [
        {
            "number": number,
            "levels": [labels.level_name(level(row, factor)) for factor in design.factors[each.grid]],
            "replicates": replicates,
            "failed": failed,
            "seed": each.cell.simulation.seed,
            # Cells with the same see the same data; a replicate of them is told by its number.
            "data": each.cell.data_id[:12],
            "values": [column[number] for column in measures.values()],
        }
        for number, (each, row, replicates, failed) in enumerate(zip(planned, rows, *counts, strict=False))
    ]
    grids = []
    for name, factors in design.factors.items():
        numbers = [number for number, each in enumerate(planned) if each.grid == name]
        shown = [{"name": factor, "label": labels.setting_name(factor)} for factor in factors]
        ends = [numbers[0], numbers[-1] + 1] if numbers else [0, 0]
        grids.append({"name": name, "title": design.titles[name], "factors": shown, "cells": ends})
    # The folder of a study has its name; no path, so that the page is the same bytes wherever the study lies.
    name = design.study.name if design.path is None or design.path.name == FILE else design.path.name
    replay = ["simstudy", "replay", name, "--profile", design.profile]
    replay += ["--confirm", design.confirmation.text] if design.confirmation else []
    return {
        "measures": [
            {"name": name, "label": f"diversity: {index}" if index else labels.measure_name(measure)}
            for name in measures
            for measure, _, index in (name.partition(" "),)
        ],
        "grids": grids,
        "cells": cells,
        "claims": {name: _claim(claim, design) for name, claim in design.claims.items()},
        "replay": shlex.join(replay),
        "n_left_out": max(len(design.cells) - MAX_CELLS, 0),
    }


def _claim(claim: BaseClaim, design: Design) -> dict[str, Any]:
    """Which cells a claim selects, and how they are best looked at."""
    wheres = [claim.where, claim.where | (getattr(claim, "versus", None) or {})]
    index = f" {claim.index}" if claim.index else ""
    return {
        "statement": claim.words,
        "grid": claim.grid,
        "measure": claim.measure + index,
        "x": getattr(claim, "x", ""),
        "cells": [
            number for number, planned in enumerate(design.cells[:MAX_CELLS])
            if planned.grid == claim.grid and any(selected(planned.cell.coordinates, where) for where in wheres)
        ],
    }  # fmt: skip


def _measures(results: xr.Dataset) -> dict[str, list[list[float | None] | None]]:
    """Estimate, MCSE, exact theory and leading order of each measure that some cell has, by name and cell."""
    columns = {}
    for name in averaged_measures(results):
        sources = [results[name].sel(source=source).values for source in ("empirical", *THEORIES)]
        columns[name] = [sources[0], results[f"{name}_mcse"].values, *sources[1:]]
    for index in results["index"].values.tolist():
        columns[f"hdi {index}"] = [results[name].sel(index=index).values for name in ("hdi", "hdi_mcse")]
    return {
        name: [list(map(_plain, values)) if math.isfinite(values[0]) else None for values in np.transpose(column)]
        for name, column in columns.items()
        if np.isfinite(column[0]).any()
    }


def _plain(value: float) -> float | None:
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
