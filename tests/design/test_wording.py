"""Wording of claims: what a statement says alone, and that a change of words changes nothing that is judged."""

from __future__ import annotations

import pytest
from builders import DESIGN, edited, loaded


@pytest.mark.parametrize(
    "statement, noted",
    [
        ("The error falls with the angle between two heads.", ""),
        ("Orthogonal heads have less error than aligned ones, as they see more of it.", ""),
        ("So it does.", '"So" points to another sentence'),
        ("And more variance.", '"And" points to another sentence'),
        ("It falls with the angle.", '"It" points to another sentence'),
        ("Some heads do not gain from it.", ""),
        ("With raw keys, too, the error falls.", '"too" points to another sentence'),
        ("Ants do as well.", '"as well" points to another sentence'),
        ("The error falls " + "and falls " * 25, "characters; use at most 240"),
    ],
)
def test_statement_that_cannot_be_read_alone__is_noted(tmp_path, statement, noted):
    design = loaded(tmp_path, edited(DESIGN, "The error falls.", statement))
    found = [note for note in design.notes if note.startswith("claims.mse-falls.statement")]
    assert len(found) == bool(noted) and noted in "".join(found)
