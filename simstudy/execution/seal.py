"""Seals: what will be judged, written down before the seeds of the confirmation can exist.

A seal lies beside the design, as ``sealed/<study>.<profile>.json``, to be published.  What it holds a design to is its
meaning: every setting of every cell, precision and stopping rule, claims with their outcomes and margins, the code
that computes and judges, and the public beacon that will count.  Comments, order and formatting of the file, titles
and figures are free; so are versions of libraries, the processor and the date, which the seal only records: that it
came before the beacon is shown by publishing it, not by what it says.

A register beside the seals has every claim that was ever sealed: one that is withdrawn does not disappear.  So has the
folder of a study each confirmation that was ever begun, so that none can be left out.
"""

import contextlib
import csv
import datetime
import hashlib
import io
import json
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args

from pydantic import Field, ValidationError

from simstudy.design.claims import LEVEL, Verdict
from simstudy.design.document import Confirmation, Design
from simstudy.design.files import read_regular
from simstudy.design.own_code import own_pieces
from simstudy.design.settings.records import Line, Record
from simstudy.errors import UserError
from simstudy.execution.folder import Folder, Missing
from simstudy.execution.provenance import code_digest, files_of, own_files, provenance
from simstudy.execution.store import CONFIRMED, Store, store_of

OWN_WORD = "own word"
"""What is promised where no public beacon is: a text of one's own choice."""


class Beacon(NamedTuple):
    """A public beacon: how it is promised and how its text looks, as regular expressions, and each in words."""

    promise: str
    text: str
    promised: str
    looks: str
    unchecked: str


_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\dZ"
BEACONS = {
    "drand": Beacon(r"[1-9]\d*", r"[0-9a-f]{64}", "a round, drand 4242424", "64 hexadecimal digits",
                    "that this is the randomness of that round"),
    "nist": Beacon(_TIME, r"[0-9a-fA-F]{128}", "a time, nist 2027-01-31T12:00Z", "128 hexadecimal digits",
                   "that this is the pulse of that time"),
    # 16 zeros take 2^64 hashes: no text of that form is tried until it pleases.
    "bitcoin": Beacon(_TIME, r"0{16}[0-9a-f]{48}", "a time, bitcoin 2027-01-31T12:00Z",
                      "64 hexadecimal digits, 16 zeros first", "that this is the first block after that time"),
}  # fmt: skip


def require_promise(text: str) -> str:
    """Return a promise of a beacon if it is one: "drand 4242424", or the own word; raises UserError."""
    kind, _, rest = text.partition(" ")
    if text == OWN_WORD or (kind in BEACONS and re.fullmatch(BEACONS[kind].promise, rest)):
        return text
    known = "; ".join(each.promised for each in BEACONS.values())
    raise UserError(f"beacon = {text!r}: is not a known beacon; give {known}; or {OWN_WORD}")


def require_fit(promise: str, text: str) -> None:
    """Refuse a text that cannot be the beacon promised; raises UserError."""
    found = BEACONS.get(promise.partition(" ")[0])
    if found is not None and not re.fullmatch(found.text, text):
        raise UserError(f"beacon = {text[:80]!r}: the seal promises {promise}, a text of {found.looks}; give that")


def described(promise: str) -> str:
    """Return what is known of the beacon of a confirmation, and what is not."""
    found = BEACONS.get(promise.partition(" ")[0])
    if found is None:
        return f"{OWN_WORD}: the seal names no public beacon, and whoever ran this chose the text"
    return f"named in the seal beforehand: {promise}; of its form; not checked here: {found.unchecked}"


FOLDER = "sealed"
_PATHS: Any = {
    "cell": {
        "heads": {"file": True, "query_file": True, "value_projections": {"path": True}},
        "estimator": {"mask": {"path": True}},
    }
}
"""Where the contents of files are found: these, not those, are sealed."""
JUDGING = (
    "attention", "data", "design", "kernels", "replicates", "theory", "verdicts", "execution/ledger.py",
    "arguments.py", "temperatures.py", "weights.py",
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
    return code_digest(files_of((*JUDGING, *sorted(further.difference(JUDGING))), own))


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


BEGUN_FILE = "confirmation.json"


class Begun(Confirmation):
    """A confirmation that was begun: its beacon, when, and what its seal held."""

    started: float = Field(ge=0, le=1e11, allow_inf_nan=False)
    sealed: dict[str, Any]
    before: str = ""
    """Digest of the confirmation that was begun before this one; empty of the first."""

    @property
    def promise(self) -> str:
        """The beacon that its seal names."""
        return str(self.sealed.get("beacon", OWN_WORD))

    def broken_by(self, design: Design) -> str:
        """Return how a design, but not its code, differs from what was confirmed; empty if it does not."""
        if digest_of(self.sealed) != self.seal:
            return f"{BEGUN_FILE} was changed"
        return next(differences(self.sealed.get("design"), meaning(design), "design"), "")


def begin(design: Design, seal: Seal, output: Path) -> Store:
    """Write down that a confirmation begins, before anything is computed for it, and return its store."""
    assert design.confirmation is not None  # a pilot is none
    store = store_of(design, output)
    if begun_in(store) is None:
        earlier = [
            each for each, _ in confirmations(store_of(design.model_copy(update={"confirmation": None}), output))
        ]
        record = Begun(
            **design.confirmation.model_dump(),
            started=time.time(),
            sealed=seal.sealed,
            before=digest_of(earlier[-1].model_dump()) if earlier else "",
        )
        with store.locked():
            store.write_json(BEGUN_FILE, record.model_dump())
    return store


def confirmations(pilot: Store) -> Iterator[tuple[Begun, Store]]:
    """Yield all confirmations of a study that were begun, oldest first."""
    folder = pilot.files.at(CONFIRMED)
    stores = [Store(folder.at(name)) for name in folder.names()]
    found = [(begun, store) for store in stores if (begun := begun_in(store)) is not None]
    yield from sorted(found, key=lambda each: (each[0].started, each[0].name))


def left_out(pilot: Store) -> list[str]:
    """Return which confirmations follow one that is not there, or was changed."""
    found = list(confirmations(pilot))
    known = {"", *(digest_of(begun.model_dump()) for begun, _ in found)}
    return [store.folder.name for begun, store in found if begun.before not in known]


def begun_in(store: Store) -> Begun | None:
    """Return the confirmation that was begun in a folder, None if none was."""
    try:
        begun = Begun.model_validate(store.read_json(BEGUN_FILE))
    except ValidationError:
        return None
    return begun if begun.name == store.folder.name else None


REGISTER_FILE = "claims.csv"
MAX_BYTES = 1 << 26
VERDICTS = get_args(Verdict)
COLUMNS = ("study", "claim", "first", "last", "state", "why", "statement", *VERDICTS)
"""Study and profile, days of the first and last seal, what became of it, why, words, confirmations by verdict."""
STANDS, REWORDED, CHANGED, WITHDRAWN = "stands", "reworded", "changed", "withdrawn"
Rows = dict[tuple[str, str], dict[str, str]]
"""Rows of the register by study and claim."""


def read_register(path: Path) -> Rows:
    """Return the rows of a register, none if there is none; UserError if it is damaged."""
    if not path.exists():
        return {}
    try:
        rows = [*csv.DictReader(io.StringIO(read_regular(path, MAX_BYTES).decode()))]
        whole = all(row.keys() == {*COLUMNS} and all(str(row[each]).isdecimal() for each in VERDICTS) for row in rows)
    except (ValueError, csv.Error):  # not UTF-8, a field that is too long
        whole = False
    if not whole:
        raise UserError(f"{path}: not a register of claims; take back what simstudy freeze wrote")
    return {(row["study"], row["claim"]): row for row in rows}


def register(place: Path, before: Seal | None, seal: Seal, why: str) -> None:
    """Note in the register beside a seal what it adds, changes and withdraws."""
    earlier = {} if before is None else claims_of(before.sealed)
    with revised(place) as rows:
        note(rows, place.stem, earlier, claims_of(seal.sealed), seal.frozen, why)


def count_confirmation(place: Path, verdicts: Mapping[str, str]) -> None:
    """Count what one confirmation found of each claim, in the register beside its seal."""
    with revised(place) as rows:
        for claim, verdict in verdicts.items():
            if (row := rows.get((place.stem, claim))) is not None:
                row[verdict] = str(int(row[verdict]) + 1)


@contextlib.contextmanager
def revised(place: Path) -> Iterator[Rows]:
    """Read the register beside a seal and write it changed, in its order, one process after another."""
    folder = Folder(place.parent.parent, (place.parent.name,))
    with folder.alone():
        rows = read_register(place.parent / REGISTER_FILE)
        yield rows
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows.values())
        folder.write(REGISTER_FILE, text.getvalue().encode())


def claims_of(sealed: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the claims that were sealed, by name: those of a design, or of a file of claims alone."""
    return dict(sealed.get("design", sealed.get("claims", {})).get("claims", {}))


def note(
    rows: Rows, study: str, before: dict[str, dict[str, Any]], now: dict[str, dict[str, Any]], day: str, why: str
) -> None:
    """Note the claims of one seal in the rows of a register, against those of the seal before it."""
    for name, claim in now.items():
        row = rows.setdefault(
            (study, name),
            {"study": study, "claim": name, "first": day, "state": STANDS, "why": ""} | dict.fromkeys(VERDICTS, "0"),
        )
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
