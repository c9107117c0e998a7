"""Verdict of ``make verify``: ten thousand hostile inputs, each with one clear error or a right answer.

The name keeps this out of the ordinary test suite, which takes some hundreds.
"""

from __future__ import annotations

import pytest
from fuzzing import FUZZ, fuzz
from test_fuzz import folder

CASES = {
    "nw_ensemble": 4000, "geometry": 2000, "design entries": 2500, "design bytes": 1500,
    "results": 400, "layout": 500, "run": 100,
}  # fmt: skip
__all__ = ["folder"]  # the fixture


@pytest.mark.parametrize("name", FUZZ)
def test_hostile_input__gets_a_clear_error_or_a_right_answer(name, folder):
    n = fuzz(FUZZ[name], folder, CASES[name])
    print(f"\n{name}: {n} cases, each a clear error or a right answer")
    assert n >= 0.9 * CASES[name] or name == "run"


def test_cases__are_ten_thousand():
    assert sum(CASES.values()) >= 10_000 and CASES.keys() == FUZZ.keys()
