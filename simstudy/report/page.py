"""The report of a study: one page with verdicts, figures and tables, and the same as files."""

import base64
import contextlib
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import xarray as xr
from markupsafe import Markup

from simstudy.design.claims import LEVEL
from simstudy.design.document import Design, PlannedCell
from simstudy.design.figures import ZipFigure
from simstudy.design.measures import MEASURES, THEORIES, coordinates_of
from simstudy.design.settings.levels import level
from simstudy.design.settings.systems import NAMES
from simstudy.errors import UserError
from simstudy.execution.provenance import contents
from simstudy.execution.seal import described
from simstudy.execution.store import Store
from simstudy.report import labels, tables
from simstudy.report.answer import formulas_of, groups, headline, said_of, sentence, standing_of
from simstudy.report.confirmed import Confirmed, Standing, confirmed_of, counted_of, standing_in
from simstudy.report.explorer import explored
from simstudy.results import factors_of
from simstudy.verdicts.assemble import coordinates

PAGE = "report.html"
_AGAIN = "run the study again (stored batches of unchanged cells are not computed again)"
MAX_REASONS = 3
"""Reasons why a theory does not apply that are listed for one grid; they may differ in every cell."""
MAX_ROWS = 1000
"""Cells of one grid listed in the page: a browser is slow with more, and `cells.csv` has them all."""
MAX_COMPARED = 200
"""Comparisons of one claim listed in the page."""
_PROVENANCE = {
    "simstudy_version": "simstudy",
    "commit": "commit (+: files differ)",
    "engine": "engine",
    "libraries": "libraries",
    "design_hash": "SHA-256 of the design",
}


def write_report(
    results: xr.Dataset, design: Design, store: Store, told: tuple[Sequence[Confirmed], Standing | None] | None = None,
    vector: str | None = None,
) -> Path:  # fmt: skip
    """Write page, figures and tables of a study; results of another text of the design are refused.

    ``told``: its confirmations and what stands for its claims, if they have been read; ``vector``: also write the
    figures and one of all claims as ``pdf`` or ``svg``.
    """
    require_same_design(results, design, store)
    told = told or (confirmed_of(design, store), standing_in(design, store))
    for name, content in report_files(results, design, *told).items():
        store.files.write(name, content)
    if vector:
        lines = tables.verdict_lines(results, *told)
        for name, content in figure_files(results, design, lines, vector).items():
            store.files.write(f"figures/{name}.{vector}", content)
    return store.folder / PAGE


def report_files(
    results: xr.Dataset, design: Design, confirmed: Sequence[Confirmed] = (), standing: Standing | None = None
) -> dict[str, bytes]:
    """Return the files of a report by name."""
    pictures = figure_files(results, design)
    texts = {
        "cells.csv": tables.csv_of(tables.cell_frame(results)),
        "verdicts.csv": tables.csv_of(tables.verdict_frame(results, confirmed)),
        "comparisons.csv": tables.csv_of(tables.comparison_frame(results)),
        PAGE: render(results, design, pictures, confirmed, standing),
    }
    files = {f"figures/{name}.png": picture for name, picture in pictures.items()}
    return files | {name: text.encode() for name, text in texts.items()}


def figure_files(
    results: xr.Dataset, design: Design, lines: Sequence[tables.VerdictLine] = (), suffix: str = "png"
) -> dict[str, bytes]:  # fmt: skip
    """Return the figures of a study by name: declared ones, cells against theory, and the claims of ``lines``."""
    with contextlib.chdir(Path(__file__).parent):
        # Matplotlib reads a file of settings in the current folder when it is imported, which takes half a second.
        from simstudy.report.figures import draw, draw_claims, draw_z_scores, image

    files = {name: image(draw(figure, name, results), suffix) for name, figure in design.figures.items()}
    if (drawing := draw_z_scores(results)) is not None:
        files[labels.Z_SCORES] = image(drawing, suffix)
    return files | ({labels.ALL_CLAIMS: image(draw_claims(lines), suffix)} if lines else {})


def require_same_design(results: xr.Dataset, design: Design, store: Store) -> None:
    """Refuse results of another text of the design or of its files; of a confirmation its seal says what it was of."""
    if design.confirmation is None:
        stated = [("the design", hashlib.sha256(design.text.encode()).hexdigest(), "design_hash")]
        read = contents(planned.cell for planned in design.cells)
        stated += [(path, digest, "data") for digest, path in read.items()]
        for changed in (what for what, digest, name in stated if digest not in str(results.attrs.get(name))):
            raise UserError(f"{store.folder / 'results.nc'}: {changed} has changed since; {_AGAIN}")
    if not _has_all_of(results, design):
        raise UserError(f"{store.folder / 'results.nc'}: lacks cells, claims or figures of the design; {_AGAIN}")


def _has_all_of(results: xr.Dataset, design: Design) -> bool:
    """Whether results have the cells, claims and figures of a design: readers look for them by name and number."""
    wanted = {name: np.array(column).tolist() for name, (_, column) in coordinates(design).items()}
    wanted["claim"] = list(design.claims)
    if factors_of(results) != design.factors:
        return False
    if any(_names(results, name) != list(map(str, names)) for name, names in wanted.items()):
        return False
    if "interval" not in results and any(isinstance(figure, ZipFigure) for figure in design.figures.values()):
        return False
    stored = {name: figure.stored for name, figure in design.figures.items() if figure.stored}
    return _names(results, "figure") == list(stored) and set().union(*stored.values()) <= set(results.data_vars)


def _names(results: xr.Dataset, coordinate: str) -> list[str]:
    return list(map(str, results[coordinate].values.tolist())) if coordinate in results.coords else []


def render(
    results: xr.Dataset, design: Design, pictures: dict[str, bytes], confirmed: Sequence[Confirmed] = (),
    standing: Standing | None = None,
) -> str:  # fmt: skip
    """Return the page of a study as HTML; ``pictures`` are its figures as PNG files, by name."""
    study = describe(results, design, pictures, confirmed, standing)
    study["comparisons"] = tables.comparison_lines(results)
    study["provenance"] = [(title, str(results.attrs[name]) or "unknown") for name, title in _PROVENANCE.items()]
    study["grids"] = [_grid(results, design, name) for name in design.factors]
    return template("report.html").render(
        study=study, explored=explored(results, design), error_rate=LEVEL, max_rows=MAX_ROWS,
        max_compared=MAX_COMPARED,
    )  # fmt: skip


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
    style, script = (loader.get_source(environment, f"page.{kind}")[0] for kind in ("css", "js"))
    allowed = f"default-src 'none'; img-src data:; style-src {_digest(style)}; script-src {_digest(script)}"
    environment.globals |= {
        "style": Markup(style), "script": Markup(script), "said_of": said_of, "standing_of": standing_of,
        "counted_of": counted_of, "described": described,
        "policy": f"{allowed}; base-uri 'none'; form-action 'none'",
    }  # fmt: skip
    return environment.get_template(name)


def _digest(text: str) -> str:
    """Return by what a policy knows an inline script or style (Content Security Policy Level 3, hash-source)."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def describe(
    results: xr.Dataset, design: Design, pictures: dict[str, bytes], confirmed: Sequence[Confirmed] = (),
    standing: Standing | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return what any page says about a study, with the pictures given of its figures."""
    lines = tables.verdict_lines(results, confirmed, standing)
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
        "origins": tables.count_origins(lines),
        "confirmation": design.confirmation,
        "confirmed": confirmed,
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
    planned = [planned for planned in design.cells if planned.grid == name]
    factors = design.factors[name]
    levels = [[labels.level_name(level(row, factor)) for factor in factors] for row in coordinates_of(cells)]
    # Of ensembles, or the numbers of instances, whichever the grid has.
    measures = [name for name in NAMES if name in cells and np.isfinite(cells[name]).any()] or list(MEASURES)
    theories = []
    for source in THEORIES:  # in how many cells it applies, and why not in the others
        reasons = Counter(cells.inapplicable.sel(source=source).values.tolist())
        n_applies = reasons.pop("", 0)
        listed = reasons.most_common(MAX_REASONS)
        further = reasons.total() - sum(count for _, count in listed)
        theories.append(
            {"name": labels.THEORY_NAMES[source], "n_applies": n_applies, "reasons": listed, "n_further": further}
        )
    told = any(theory["n_applies"] for theory in theories)
    return {
        "told": told,
        "measures": [labels.measure_name(measure) for measure in measures],
        "name": name,
        "title": design.titles[name],
        "factors": [
            (labels.setting_name(factor), list(dict.fromkeys(row[position] for row in levels)))
            for position, factor in enumerate(factors)
        ],
        "n_cells": len(planned),
        "n_replicates": f"{int(cells.n_replicates.sum()):,}".replace(",", "\u202f"),
        "n_failed": int(cells.n_failed.sum()),
        "n_missed": int((~cells.precision_reached.values.astype(bool)).sum()),
        "wanted": precision_words(planned[0]),
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
    columns = []
    for name in measures:
        estimate, *theories = (cells[name].sel(source=source) for source in ("empirical", *THEORIES))
        told_of = [estimate, cells[f"{name}_mcse"], cells[f"{name}_mcse_given"], *theories]
        columns.append([each.values.tolist() for each in told_of])
    counts = (cells[name].values.tolist() for name in ("n_replicates", "n_failed", "precision_reached"))
    replicates, failed, reached = counts
    for i, row in enumerate(levels):
        yield {
            "levels": row,
            "n_replicates": replicates[i],
            "n_failed": failed[i],
            "reached": bool(reached[i]),
            "measures": [
                [
                    labels.with_error(estimate[i], mcse[i]) + labels.given_draws(mcse[i], given[i]),
                    *(labels.number(each[i]) for each in theories if told),
                ]
                for estimate, mcse, given, *theories in columns
            ],
        }
