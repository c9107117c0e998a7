"""The preregistration of a study, filled in from its design.

After the ADEMP-PreReg template: Siepe, Bartoš, Morris, Boulesteix, Heck and Pawel, "Simulation studies for
methodological research in psychology: a standardized template for planning, preregistration, and reporting",
Psychological Methods (2024), doi 10.1037/met0000695.
"""

import json
import shlex
from pathlib import Path
from typing import Any

from simstudy.design.claims import LEVEL
from simstudy.design.document import Design
from simstudy.design.measures import INDEXED_MEASURES, MEASURES, STATISTICS
from simstudy.design.own_code import own_pieces
from simstudy.design.settings.cell import TABLES
from simstudy.design.settings.levels import level, setting_of
from simstudy.execution.folder import Folder
from simstudy.execution.seal import Seal
from simstudy.execution.store import Store
from simstudy.report.labels import level_name, setting_name
from simstudy.report.page import precision_words, template

_MECHANISM = ("data", "system", "queries")
_METHOD = ("heads", "estimator")
_TARGETS = {
    None: "the regression function m at the query points, and the performance of its estimators",
    "simulation": "the truth that the process or a parameter states, and the performance of the methods",
}
_NUMBERS = "the numbers of a random instance that section 6 lists"
_STATED_APART = {"statement", "origin", "expected", "grid", "kind"}


def write_sealed(design: Design, seal: Seal, path: Path) -> Path:
    """Write a seal, and beside it the preregistration, whose path is returned; the seal last: it comes whole or not."""
    folder = Store(Folder(path.parent.parent, (path.parent.name,)))
    written = folder.write_text(f"{path.stem}.md", preregistration(design, seal))
    folder.write_json(path.name, seal.model_dump())
    return written


def preregistration(design: Design, seal: Seal) -> str:
    """Return the preregistration of a design as Markdown."""
    registered = MEASURES | STATISTICS | INDEXED_MEASURES
    cells = [planned.cell for planned in design.cells]
    instances = dict.fromkeys(cell.instance for cell in cells)
    declared = [claim.measure for claim in design.claims.values()]
    measures = dict.fromkeys([*declared, *(name for one in instances if one is not None for name in one.measured)])
    trusted = sorted({piece.path for cell in cells for _, piece in own_pieces(cell)})
    command = ["simstudy", "confirm", Path(design.path or design.study.name).name, "--profile", design.profile]
    command += [word for path in trusted for word in ("--trust", path)]
    claims = {}  # what each states beside its sentence, as the design does: ``x = "angle", margin = 0.05``
    for name, claim in design.claims.items():
        terms = claim.model_dump(mode="json", exclude=_STATED_APART, exclude_none=True)
        stated = {term: json.dumps(value, ensure_ascii=False) for term, value in terms.items() if value not in ({}, "")}
        claims[name] = ", ".join(f"{term} = {text}" for term, text in stated.items())
    return template("preregistration.md").render(
        design=design,
        seal=seal,
        level=LEVEL,
        grids=[_grid(design, name) for name in design.factors],
        targets=dict.fromkeys(_TARGETS.get(one.kind if one else None, _NUMBERS) for one in instances),
        command=shlex.join([*command, "--beacon", "TEXT"]),
        measures={name: registered[name] for name in measures},
        claims=claims,
    )


def _grid(design: Design, name: str) -> dict[str, Any]:
    planned = [planned for planned in design.cells if planned.grid == name]
    coordinates = [each.cell.coordinates for each in planned]
    factors = design.factors[name]
    levels = {factor: dict.fromkeys(level_name(level(row, factor)) for row in coordinates) for factor in factors}
    return {
        "name": name,
        "title": design.titles[name],
        "n_cells": len(planned),
        "factors": {setting_name(factor): ", ".join(found) for factor, found in levels.items()},
        "mechanism": _fixed(coordinates, _MECHANISM, factors),
        "method": _fixed(coordinates, _METHOD, factors),
        "simulation": _fixed(coordinates, ("simulation",), factors),
        "precision": precision_words(planned[0]),
        "stop": planned[0].precision.stop,
    }


def _fixed(coordinates: list[dict[str, Any]], tables: tuple[str, ...], factors: tuple[str, ...]) -> dict[str, str]:
    """Settings of some tables that are no factors, where they mean something; all values that follow from factors."""
    names = [name for table in tables for name in TABLES[table].model_fields if name not in factors]
    found = {name: [level_name(row[name]) for row in coordinates if row[name] != ""] for name in names}
    for name in {setting_of(factor) for factor in factors} & found.keys():
        # A parameter is a factor, so only the kind is fixed.
        found[name] = [text.partition("(")[0] for text in found[name]]
    return {setting_name(name): ", ".join(dict.fromkeys(values)) for name, values in found.items() if values}
