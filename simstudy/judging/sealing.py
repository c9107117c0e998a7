"""Claims sealed before the numbers exist: the seals of designs, of a file that states claims alone."""

from pathlib import Path
from typing import Any

from simstudy.design.claims import LEVEL
from simstudy.errors import UserError
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
from simstudy.report.terminal import counted

JUDGING = ("design", "judging", "theory", "verdicts", "weights.py")
"""Sources that decide a verdict on a table, as folders and files."""


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
    if before is not None:
        try:
            require_same(before, sealed, place)
            return place, before, before
        except UserError:
            pass
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
