"""Some hundreds of hostile inputs; `make verify` takes ten thousand."""

import pytest
from builders import write_design
from fuzzing import FUZZ, fuzz

CASES = {
    "nw_ensemble": (100, 4000), "geometry": (100, 2000), "design entries": (60, 2500), "design bytes": (100, 1500),
    "results": (60, 400), "layout": (30, 500), "run": (20, 100),
}  # fmt: skip
"""Few cases of each, and many."""


@pytest.fixture(scope="module")
def folder(tiny, tmp_path_factory):
    """A folder with good files, which the fuzzing damages copies of."""
    folder = tmp_path_factory.mktemp("fuzz")
    write_design(folder).rename(folder / "good.toml")
    tiny.copied(folder / "out")
    (folder / "out" / "tiny" / "quick" / "results.nc").rename(folder / "results.nc")
    (folder / "file").write_text("in the way")
    return folder


@pytest.mark.parametrize("many", [False, pytest.param(True, marks=pytest.mark.rare)])
@pytest.mark.parametrize("name", FUZZ)
def test_hostile_input__gets_a_clear_error_or_a_right_answer(name, many, folder):
    wanted = CASES[name][many]
    least = 0.9 if many and name != "run" else 0.5  # Hypothesis stops early if cases run out
    assert fuzz(*FUZZ[name], folder, wanted) >= least * wanted
