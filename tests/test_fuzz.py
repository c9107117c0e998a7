"""Some hundreds of hostile inputs; `make verify` takes ten thousand and more."""

from __future__ import annotations

import pytest
from builders import write_design
from fuzzing import FUZZ, fuzz

CASES = {
    "nw_ensemble": 100,
    "geometry": 100,
    "design entries": 60,
    "design bytes": 100,
    "results": 60,
    "layout": 30,
    "run": 20,
}


@pytest.fixture(scope="module")
def folder(tiny, tmp_path_factory):
    """A folder with good files, which the fuzzing damages copies of."""
    folder = tmp_path_factory.mktemp("fuzz")
    write_design(folder).rename(folder / "good.toml")
    tiny.copied(folder / "out")
    (folder / "out" / "tiny" / "quick" / "results.nc").rename(folder / "results.nc")
    (folder / "file").write_text("in the way")
    return folder


@pytest.mark.parametrize("name", FUZZ)
def test_hostile_input__gets_a_clear_error_or_a_right_answer(name, folder):
    assert fuzz(FUZZ[name], folder, CASES[name]) >= CASES[name] / 2  # Hypothesis stops early if cases run out
