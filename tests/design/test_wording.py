"""Wording of claims: what a statement says alone, and that a change of words changes nothing that is judged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders import DESIGN, edited, write_design

from simstudy.design.load import check, load_design
from simstudy.execution.seal import seal_of

DESIGNS = Path(__file__).parents[2] / "designs"
SHIPPED = sorted([*DESIGNS.glob("*.toml"), *DESIGNS.glob("examples/*.toml")])
CODE = sorted(DESIGNS.rglob("*.py"))


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
    design = load_design(write_design(tmp_path, edited(DESIGN, "The error falls.", statement)))
    found = [note for note in design.notes if note.startswith("claims.mse-falls.statement")]
    assert len(found) == bool(noted) and noted in "".join(found)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_statements_of_shipped_designs__stand_alone_and_differ(path):
    for design in check(path, trust=CODE).values():
        assert not [note for note in design.notes if ".statement" in note]
        assert len({claim.statement for claim in design.claims.values()}) == len(design.claims)


@pytest.mark.rare
@pytest.mark.parametrize("path", sorted(DESIGNS.glob("sealed/*.json")), ids=lambda path: path.stem)
def test_rewording__changed_no_cell_margin_or_outcome_that_was_sealed(path):
    name, profile = path.stem.rsplit(".", 1)
    sealed = json.loads(path.read_text())["sealed"]["design"]
    today = json.loads(json.dumps(seal_of(load_design(DESIGNS / f"{name}.toml", profile)).sealed["design"]))
    assert without_words(today["claims"]) == without_words(sealed["claims"])
    assert sizes(today["grids"]) == sizes(sealed["grids"])


def sizes(grids: dict) -> dict:
    return {name: (grid["factors"], grid["cells"]) for name, grid in grids.items()}


def without_words(claims: object) -> object:
    """Claims without statements and reasons."""
    if not isinstance(claims, dict):
        return claims
    return {key: without_words(value) for key, value in claims.items() if key not in ("statement", "these_draws")}
