"""Claims on formulas that no verdict could tell from what they deny."""

from __future__ import annotations

import pytest
from builders import DESIGN, edited, loaded

from simstudy.verdicts.power import powerless

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


FORMULA = '{ kind = "correlation_floor", head_dim = 2, bandwidth = 0.5 }'
LARGER = FLOOR.replace("equals", "larger_than").replace(FORMULA, "0.3").replace("margin = 0.05\n", "")
THEORY = FLOOR.replace("equals", "agrees_with_theory").replace(f"value = {FORMULA}\n", "").replace("= 90,", "= 45,")
EXACT, LEADING = THEORY + 'source = "exact"\n', THEORY.replace("0.05", "0.0001")


@pytest.mark.parametrize(
    ("claim", "note"),
    [
        (FLOOR + "excludes = 0.0\n", ""),
        (FLOOR + "excludes = 0.4\n", "margin = 0.05 reaches the alternative 0.4, 0.04 from 0.36"),
        (FLOOR, "state in excludes what would be found if it were wrong"),
        (FLOOR.replace(FORMULA, "0.36"), ""),
        (LARGER + "excludes = 0.2\n", ""),
        (LARGER + "excludes = 0.3\n", "excludes = 0.3: is not below value = 0.3"),
        (EXACT + "excludes = 1.2\n", "margin = 0.05 reaches leading order, at most 0.0"),
        (EXACT.replace("0.05", "0.0001") + "excludes = 1.2\n", ""),
        (EXACT.replace("0.05", "0.0001") + "excludes = 1.00005\n", "reaches the alternative 1.00005"),
        (THEORY, ""),
        (LEADING, "from leading order, beyond margin = 0.0001; raise n_keys"),
        (LEADING + 'expected = "contradicted"\n', ""),
    ],
)
def test_claim_that_its_alternative_does_not_contradict__is_noted(tmp_path, claim, note):
    text = edited(DESIGN, "[grids.angles.factors]", "[grids.angles]\nexact = true\n[grids.angles.factors]")
    text = edited(edited(text, "n_keys = 40", "n_keys = 400"), "\n[figures.mse]", f"{claim}\n[figures.mse]")
    found = list(powerless(loaded(tmp_path, text)))
    assert len(found) == bool(note) and all(each.startswith("claims.floor") and note in each for each in found)
