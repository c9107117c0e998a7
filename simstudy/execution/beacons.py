"""Beacons: which public text a seal names beforehand, whether a text may be that one, and what is not checked here."""

from __future__ import annotations

import re
from typing import NamedTuple

from simstudy.errors import UserError

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
