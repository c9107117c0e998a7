"""The register beside the seals of every claim that was ever sealed: one that is withdrawn does not disappear."""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from simstudy.design.files import read_regular
from simstudy.execution.folder import Folder
from simstudy.execution.seal import Seal

FILE = "claims.csv"
MAX_BYTES = 1 << 26
COLUMNS = (
    "study", "claim", "first", "last", "state", "why", "statement", "supported", "contradicted", "inconclusive",
)  # fmt: skip
"""Study and profile, days of the first and last seal, what became of it, why, words, confirmations by verdict."""
STANDS, REWORDED, CHANGED, WITHDRAWN = "stands", "reworded", "changed", "withdrawn"
Rows = dict[tuple[str, str], dict[str, str]]
"""Rows of the register by study and claim."""


def read_register(path: Path) -> Rows:
    """Return the rows of a register, none if there is none."""
    if not path.exists():
        return {}
    rows = csv.DictReader(io.StringIO(read_regular(path, MAX_BYTES).decode()))
    return {(row["study"], row["claim"]): row for row in rows}


def write_register(path: Path, rows: Rows) -> None:
    """Write a register, whose rows keep their order."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows.values())
    _folder(path).write(path.name, text.getvalue().encode())


def register(place: Path, before: Seal | None, seal: Seal, why: str) -> None:
    """Note in the register beside a seal what it adds, changes and withdraws."""
    earlier = {} if before is None else claims_of(before.sealed)
    with _revised(place) as rows:
        note(rows, place.stem, earlier, claims_of(seal.sealed), seal.frozen, why)


def count(place: Path, verdicts: Mapping[str, str]) -> None:
    """Count what one confirmation found of each claim, in the register beside its seal."""
    with _revised(place) as rows:
        for claim, verdict in verdicts.items():
            if (row := rows.get((place.stem, claim))) is not None:
                row[verdict] = str(int(row[verdict]) + 1)


@contextlib.contextmanager
def _revised(place: Path) -> Iterator[Rows]:
    """Read the register beside a seal and write it changed, one process after another."""
    path = place.parent / FILE
    with _folder(path).alone():
        rows = read_register(path)
        yield rows
        write_register(path, rows)


def _folder(path: Path) -> Folder:
    return Folder(path.parent.parent, (path.parent.name,))


def claims_of(sealed: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the claims that were sealed, by name: those of a design, or of a file of claims alone."""
    return dict(sealed.get("design", sealed.get("claims", {})).get("claims", {}))


def note(
    rows: Rows, study: str, before: dict[str, dict[str, Any]], now: dict[str, dict[str, Any]], day: str, why: str
) -> None:
    """Note the claims of one seal in the rows of a register, against those of the seal before it."""
    for name, claim in now.items():
        row = rows.setdefault((study, name), {"study": study, "claim": name, "first": day, "state": STANDS, "why": ""}
                              | dict.fromkeys(("supported", "contradicted", "inconclusive"), "0"))  # fmt: skip
        row |= {"last": day, "statement": str(claim.get("statement", ""))}
        if row["state"] == WITHDRAWN:
            row["state"] = CHANGED
        if name in before and before[name] != claim:
            same = {**before[name], "statement": ""} == {**claim, "statement": ""}
            # What was once changed stays so, however often it is worded anew.
            row["state"] = REWORDED if same and row["state"] != CHANGED else CHANGED
            row["why"] = why or row["why"]
    for name in before.keys() - now.keys():
        if (study, name) in rows:
            rows[study, name] |= {"state": WITHDRAWN, "last": day, "why": why}
