"""Seals: what will be judged, written down before the seeds of the confirmation can exist.

A seal lies beside the design, as ``sealed/<study>.<profile>.json``, to be published.  What it holds a design to is its
meaning: every setting of every cell, precision and stopping rule, claims with their outcomes and margins, the code
that computes and judges, and the public beacon that will count.  Comments, order and formatting of the file, titles
and figures are free; so are versions of libraries, the processor and the date, which the seal only records: that it
came before the beacon is shown by publishing it, not by what it says.
"""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from simstudy.design.claims import LEVEL
from simstudy.design.document import Design
from simstudy.design.own_code import own_pieces
from simstudy.design.settings.records import Line, Record
from simstudy.errors import UserError
from simstudy.execution.beacons import OWN_WORD
from simstudy.execution.engine import PACKAGE, code_of, files_of, own_files
from simstudy.execution.folder import Folder, Missing
from simstudy.execution.provenance import provenance

FOLDER = "sealed"
_PATHS: Any = {
    "cell": {
        "heads": {"file": True, "query_file": True, "value_projections": {"path": True}},
        "estimator": {"mask": {"path": True}},
    }
}
"""Where the contents of files are found: these, not those, are sealed."""
JUDGING = (
    "attention", "data", "design", "kernels", "replicates", "theory", "verdicts", "execution/ledger.py", "weights.py",
)  # fmt: skip
"""Sources that decide a verdict: what computes, stops, predicts and judges, as folders and files."""
MAX_SEAL_BYTES = 1 << 22
_REMEDY = "take that back, or freeze anew and confirm with a later beacon, or later numbers"
MAX_SHOWN = 60
"""Characters of an entry that a message shows."""


class Seal(Record):
    """What is held fixed, its digest, and what is only recorded."""

    frozen: Annotated[Line, Field(max_length=40)]
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    software: dict[str, Any]
    sealed: dict[str, Any]

    @property
    def promise(self) -> str:
        """The beacon that will count."""
        return str(self.sealed.get("beacon", OWN_WORD))


def seal_path(design_path: Path, design: Design) -> Path:
    """Return where the seal of a design lies: in the folder ``sealed`` beside the file."""
    return design_path.parent / FOLDER / f"{design.study.name}.{design.profile}.json"


def seal_of(design: Design, promise: str = OWN_WORD) -> Seal:
    """Return the seal of a design as it stands, with the code that runs it and the beacon promised, dated today."""
    sealed = {"design": meaning(design), "code": judging_code(design), "beacon": promise}
    return dated_seal(sealed, provenance(cells=[planned.cell for planned in design.cells]))


def dated_seal(sealed: dict[str, Any], software: dict[str, Any]) -> Seal:
    """Return the seal, dated today, of what is held fixed, beside the software that is only recorded."""
    return Seal(
        frozen=datetime.datetime.now(datetime.UTC).date().isoformat(),
        digest=digest_of(sealed),
        software={name: software[name] for name in ("simstudy", "commit", "engine", "python", "libraries", "data")},
        sealed=sealed,
    )


def meaning(design: Design) -> dict[str, Any]:
    """Return what a design means, as plain data in which order and formatting of its file leave no trace."""
    grids: dict[str, Any] = {}
    for name, factors in design.factors.items():
        cells = [planned.model_dump(mode="json", exclude=_PATHS) for planned in design.cells if planned.grid == name]
        # Of a thousand cells the digest, which also covers the contents of head files.
        settings = digest_of(sorted(map(digest_of, cells)))
        grids[name] = {"factors": sorted(factors), "cells": len(cells), "settings": settings}
    budget = {"budget": design.budget.model_dump()} if design.budget.words else {}
    return budget | {
        "study": design.study.name,
        "profile": design.profile,
        "aim": design.study.aim,
        "level": LEVEL,
        "seeds": sorted({planned.cell.simulation.seed for planned in design.cells}),
        "grids": grids,
        "claims": {name: claim.model_dump(mode="json") for name, claim in design.claims.items()},
    }


def judging_code(design: Design) -> str:
    """Return a digest of the sources that decide the verdicts of a design."""
    instances = (planned.cell.instance for planned in design.cells)
    further = {entry for instance in instances if instance is not None for entry in instance.rests_on}
    own = {own_files(planned.cell) for planned in design.cells}
    return code_digest(*JUDGING, *sorted(further.difference(JUDGING)), own=own)


def code_digest(*entries: str, own: Collection[str] = ()) -> str:
    """Return a digest of what sources of the package compute; in folders of `APART` of those named ``own``."""
    digest = hashlib.blake2b(digest_size=16)
    for source in files_of(entries, own, PACKAGE):
        digest.update(f"{source.relative_to(PACKAGE).as_posix()}\0{code_of(source)}\0".encode())
    return digest.hexdigest()


def digest_of(content: Any) -> str:
    """Return the digest of plain data, whatever the order of its keys."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=32).hexdigest()


def read_seal(path: Path) -> Seal:
    """Return the seal at a path."""
    try:
        seal = Seal.model_validate_json(Folder(path.parent.parent, (FOLDER,)).read(path.name, MAX_SEAL_BYTES))
        whole = digest_of(seal.sealed) == seal.digest
    except Missing:
        remedy = "freeze the design first, and publish what simstudy freeze writes"
        raise UserError(f"{path}: no seal; {remedy}") from None
    except (ValidationError, ValueError, RecursionError):  # the last: nested beyond what the digest bears
        raise UserError(f"{path}: not a seal; take back what simstudy freeze wrote") from None
    if not whole:
        raise UserError(f"{path}: changed since it was written; take back what simstudy freeze wrote")
    return seal


def require_unbroken(seal: Seal, design: Design, path: Path) -> None:
    """Refuse a design, or code, that is no longer what was sealed, with the file or the first entry that differs."""
    recorded = seal.software.get("data")  # not part of the digest
    read = recorded if isinstance(recorded, dict) else {}
    pieces = (piece for planned in design.cells for _, piece in own_pieces(planned.cell))
    for piece in pieces:
        if piece.path in read.values() and piece.code is not None and piece.code.label not in read:
            raise UserError(f"{path}: void, as {piece.path} has changed; {_REMEDY}")
    require_same(seal, seal.sealed | {"design": meaning(design), "code": judging_code(design)}, path)


def require_same(seal: Seal, now: dict[str, Any], path: Path) -> None:
    """Refuse what is no longer what was sealed, with the first entry that differs."""
    if broken := next(differences(seal.sealed, now), ""):
        raise UserError(f"{path}: void, as {broken}; {_REMEDY}")


def differences(sealed: Any, now: Any, path: str = "") -> Iterator[str]:
    """Yield how plain data differ, entry by entry: "design.claims.floor.margin was sealed as 0.05 and is 0.1"."""
    if isinstance(sealed, dict) and isinstance(now, dict):
        for key in sorted(sealed.keys() | now.keys()):
            place = f"{path}.{key[:MAX_SHOWN]}".lstrip(".")
            if key not in sealed:
                yield f"{place} was added"
            elif key not in now:
                yield f"{place} was removed"
            else:
                yield from differences(sealed[key], now[key], place)
    elif sealed != now:
        was, found = (json.dumps(value, ensure_ascii=False) for value in (sealed, now))
        shown = (text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..." for text in (was, found))
        yield f"{path} was sealed as {' and is '.join(shown)}"
