"""Claims on formulas that no verdict could tell from what they deny."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import DESIGN, edited, write_design

from simstudy.design.load import load_design
from simstudy.verdicts.power import powerless

SHIPPED = sorted((Path(__file__).parents[2] / "designs").glob("*.toml"))
FLOOR = """
[claims.floor]
statement = "The correlation of orthogonal heads is the floor."
kind = "equals"
grid = "angles"
where = { angle = 90, bandwidth = 0.5 }
measure = "correlation"
value = { kind = "correlation_floor", head_dim = 2, bandwidth = 0.5 }
margin = 0.05
"""


def told(tmp_path, claim):
    return list(
        powerless(load_design(write_design(tmp_path, edited(DESIGN, "\n[figures.mse]", f"{claim}\n[figures.mse]"))))
    )


def test_margin_that_reaches_the_alternative__is_noted(tmp_path):
    assert told(tmp_path, FLOOR + "excludes = 0.0\n") == []
    (note,) = told(tmp_path, FLOOR + "excludes = 0.4\n")
    assert note.startswith("claims.floor: margin = 0.05 reaches the alternative 0.4, 0.04 from 0.36")
    (note,) = told(tmp_path, FLOOR)
    assert "state in excludes what would be found if it were wrong" in note
    assert told(tmp_path, FLOOR.replace('{ kind = "correlation_floor", head_dim = 2, bandwidth = 0.5 }', "0.36")) == []


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_claims_on_formulas__name_what_they_exclude(path):
    assert list(powerless(load_design(path))) == []
