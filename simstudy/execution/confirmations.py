"""Confirmations on disk: each that was ever begun, so that none can be left out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from simstudy.design.document import Confirmation, Design
from simstudy.execution.beacons import OWN_WORD
from simstudy.execution.seal import Seal, differences, digest_of, meaning
from simstudy.execution.store import CONFIRMED, Store, store_of

RECORD = "confirmation.json"


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
            return f"{RECORD} was changed"
        return next(differences(self.sealed.get("design"), meaning(design), "design"), "")


def begin(design: Design, seal: Seal, output: Path) -> Store:
    """Write down that a confirmation begins, before anything is computed for it, and return its store."""
    if design.confirmation is None:
        raise ValueError("a pilot is no confirmation")
    store = store_of(design, output)
    if begun_in(store) is None:
        earlier = [
            each for each, _ in confirmations(store_of(design.model_copy(update={"confirmation": None}), output))
        ]
        record = Begun(
            **design.confirmation.model_dump(), started=time.time(), sealed=seal.sealed,
            before=digest_of(earlier[-1].model_dump()) if earlier else "",
        )  # fmt: skip
        with store.locked():
            store.write_json(RECORD, record.model_dump())
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
        begun = Begun.model_validate(store.read_json(RECORD))
    except ValidationError:
        return None
    return begun if begun.name == store.folder.name else None
