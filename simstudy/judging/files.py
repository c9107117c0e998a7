"""Files beside a table of numbers: a page that draws each claim in its interval, and the seal of a file of claims."""

import hashlib
import math
from pathlib import Path
from typing import Any

from simstudy.design.claims import LEVEL
from simstudy.design.files import read_regular
from simstudy.execution.provenance import code_digest, files_of, provenance
from simstudy.execution.seal import (
    FOLDER,
    REGISTER_FILE,
    STANDS,
    Seal,
    dated_seal,
    read_register,
    read_seal,
    register,
    require_same,
)
from simstudy.execution.store import Folder, Store
from simstudy.judging.claims import Stated, read_claims
from simstudy.judging.judged import Verdicts
from simstudy.report.answer import groups, headline
from simstudy.report.page import MAX_ROWS, template
from simstudy.report.tables import comparison_lines
from simstudy.report.terminal import counted

MAX_BYTES = 1 << 32
"""Largest file whose digest the page names, and largest table that is read."""
JUDGING = ("design", "judging", "theory", "verdicts", "arguments.py", "temperatures.py", "weights.py")
"""Sources that decide a verdict on a table, as folders and files."""


def write_page(found: Verdicts, path: Path, sources: tuple[Path, ...], sealed: str = "") -> Path:
    """Write the page of verdicts, with the digests of its sources and when claims were sealed; return its path."""
    lines = found.lines
    digests = [(each.name, hashlib.sha256(read_regular(each, MAX_BYTES)).hexdigest()) for each in sources]
    study: dict[str, Any] = {
        "name": sources[0].name,
        "verdicts": lines,
        "headline": headline(lines),
        "size": found.summary[0],
        "factors": found.factors,
        "independent": found.independent,
        "sealed": sealed,
        "groups": groups(lines),
        "formulas": {},
        "further": found.wanted,
        "comparisons": comparison_lines(found.dataset),
        "provenance": [(f"SHA-256 of {name}", digest) for name, digest in digests],
    }
    text = template("numbers.html").render(study=study, error_rate=LEVEL, max_rows=MAX_ROWS)
    return Store(Folder(path.parent)).write_text(path.name, text)


def record(found: Verdicts, seal: Seal | None = None) -> dict[str, Any]:
    """Return verdicts as plain data; what is no finite number is null."""
    rows = found.to_dataframe().reset_index().to_dict("records")
    finite = [{k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()} for row in rows]
    return {"units": found.n_units, "units_left_out": found.n_dropped, "seal": seal and seal.digest, "claims": finite}


def seal_path(path: Path) -> Path:
    """Return where the seal of a file of claims lies: in the folder ``sealed`` beside it."""
    return path.parent / FOLDER / f"{path.stem}.claims.json"


def meaning(stated: Stated) -> dict[str, Any]:
    """Return what a file of claims means, and the code that judges, as plain data."""
    claims = {name: claim.model_dump(mode="json") for name, claim in stated.claims.items()}
    numbers = stated.columns.model_dump(mode="json")
    return {"claims": {"level": LEVEL, "numbers": numbers, "claims": claims}, "code": code_digest(files_of(JUDGING))}


def write_seal(path: Path, why: str) -> tuple[Path, Seal, Seal | None]:
    """Write the seal of a file of claims, and ``why`` it differs from the last one into the register.

    Returns path, seal, and the one that was there: one that holds stays.
    """
    place, sealed = seal_path(path), meaning(read_claims(path))
    before = read_seal(place) if place.exists() else None
    if before is not None and before.sealed == sealed:
        return place, before, before
    seal = dated_seal(sealed, provenance())
    Store(Folder(place.parent.parent, (place.parent.name,))).write_json(place.name, seal.model_dump())
    register(place, before, seal, why)
    return place, seal, before


def require_sealed(path: Path, stated: Stated) -> Seal:
    """Return the seal of a file of claims, which must hold."""
    place = seal_path(path)
    seal = read_seal(place)
    require_same(seal, meaning(stated), place)
    return seal


def sealed_on(path: Path, seal: Seal) -> str:
    """Return when claims were sealed, and how many were sealed otherwise before."""
    place = seal_path(path)
    rows = read_register(place.parent / REGISTER_FILE)
    changed = sum(study == place.stem and row["state"] != STANDS for (study, _), row in rows.items())
    since = f" {counted(changed, 'claim')} changed since a first seal: {FOLDER}/{REGISTER_FILE}." if changed else ""
    return f"Claims sealed on {seal.frozen}: {seal.digest}.{since}"
