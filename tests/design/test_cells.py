"""What cells are identified and named by, and designs found by."""

from pathlib import Path

import pytest
from builders import DESIGN, edited, minimal_cell, run

from simstudy.design.load import load_design
from simstudy.design.written import find_design, known_designs
from simstudy.errors import UserError

LABEL = {"label": "sin x"}


def test_identity__follows_numbers_not_labels_and_paths():
    cell, (plain, named) = minimal_cell(), (minimal_cell(regression={"kind": "ridge"} | each) for each in ({}, LABEL))
    assert (plain.coordinates["regression"], named.coordinates["regression"]) == ("ridge", "sin x")
    assert plain.identity("a") == named.identity("a")
    own = [{"kind": "sum", "terms": [{"kind": "own", "path": f"{name}.py", "name": "m"}]} for name in "ab"]
    assert len({minimal_cell(regression=each).identity("a") for each in own}) == 1
    assert cell.identity("a") != cell.identity("b")
    assert cell.identity("a") == minimal_cell().identity("a")
    for change in ({"n_keys": 41}, {"bandwidth": 0.9}, {"seed": 8}, {"batch_size": 64}, {"noise_sd": 2.0}):
        assert minimal_cell(**change).identity("a") != cell.identity("a")


def test_data_id__is_what_it_was_whatever_designs_call_the_kind_of_keys():
    """Drawn bits rest on it: these are the digests of two cells of shipped studies."""
    ids = {each.cell.data_id for name in ("principal-angles", "universality") for each in load_design(name).cells}
    assert {"e4a18f3a863f4d7eab083d1de852c8c3", "66824d5583e20a06eb6cba3e262c7c6e"} <= ids
    assert "59f306e2cabce839b7c4f461c192f430" in ids


def test_own_designs__have_names_unless_a_shipped_one_has_it(tmp_path, monkeypatch):
    for name in ("own", "principal-angles"):
        (tmp_path / "designs" / name).mkdir(parents=True)
        (tmp_path / "designs" / name / "design.toml").write_text(DESIGN)
    with pytest.raises(UserError, match=r"absent: neither a file nor the name of a design; known: alloc"):
        find_design("absent")
    monkeypatch.chdir(tmp_path)
    assert find_design("own") == Path("designs/own/design.toml")
    assert sum(path.parent.name == "principal-angles" for path in known_designs()) == 2
    with pytest.raises(UserError, match=r"the name of /.* and of designs/principal.*; give the path of one"):
        find_design("principal-angles")
    for name in ("designs/principal-angles", "designs/principal-angles/design.toml"):
        assert find_design(name) == Path("designs/principal-angles/design.toml")


def test_results_of_another_design_of_the_name__are_not_written_over(tmp_path):
    text = DESIGN.replace("[0, 45, 90]", "[0, 45]").replace("[0.5, 1.0]", "[0.5]")
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    first.write_text(text)
    second.write_text(edited(text, "n_keys = 40", "n_keys = 41"))
    run(first, output=tmp_path / "out", executor="serial")
    results = tmp_path / "out" / "tiny" / "quick" / "results.nc"
    before = results.read_bytes()
    with pytest.raises(UserError, match=r"holds the results of .*first.toml, whose study has the same name; give one"):
        run(second, output=tmp_path / "out", executor="serial")
    assert results.read_bytes() == before
    # Renamed in the file, or moved, the first is no other design any more.
    first.rename(tmp_path / "moved.toml")
    run(second, output=tmp_path / "out", executor="serial")
    assert results.read_bytes() != before
