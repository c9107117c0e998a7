"""Statements of claims, which seals, tables and pages show without the claims around them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from simstudy.design.claims import BaseClaim
from simstudy.design.mistakes import Problem
from simstudy.design.references import Reference

LONGEST = 240
"""Characters that a statement may have without a note."""
_POINTS_ELSEWHERE = re.compile(
    r"^(?:so|and|but|or|nor|yet|also|then|here|there|again|its?|they|their|this|that|these|those|such|both|another)\b"
    r"|, (?:too|either)\b|\bas well[.,]|\bthe (?:former|latter)\b",
    re.IGNORECASE,
)


def stands_alone(reference: Reference) -> Iterator[Problem]:
    """Yield a note on a statement that points to another sentence, or is long."""
    claim = reference.entry
    if not isinstance(claim, BaseClaim):
        return
    path = f"{reference.path}.statement"
    if found := _POINTS_ELSEWHERE.search(claim.statement):
        words = found[0].strip(" ,.")
        remedy = f'"{words}" points to another sentence; name subject, quantity and condition in this one'
        yield Problem(path, claim.statement, remedy)
    if len(claim.statement) > LONGEST:
        yield Problem(path, claim.statement, f"has {len(claim.statement)} characters; use at most {LONGEST}")
