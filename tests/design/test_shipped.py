"""Designs by name: where they are found, and two of one name told apart."""

from pathlib import Path

import pytest
from builders import DESIGN, edited

from simstudy.design import written
from simstudy.design.written import find_design, known_designs
from simstudy.errors import UserError
from simstudy.study import run


def test_names__are_those_of_shipped_designs_from_everywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_design("principal-angles") == Path(__file__).parents[2] / "designs" / "principal-angles.toml"
    with pytest.raises(UserError, match=r"absent: neither a file nor the name of a design; known: alloc"):
        find_design("absent")


def test_inside_of_a_package__designs_are_in_it(tmp_path, monkeypatch):
    monkeypatch.setattr(written, "__file__", str(tmp_path / "simstudy" / "design" / "written.py"))
    (tmp_path / "simstudy" / "designs").mkdir(parents=True)
    (tmp_path / "simstudy" / "designs" / "inside.toml").touch()
    assert find_design("inside") == tmp_path / "simstudy" / "designs" / "inside.toml"


def test_own_designs__have_names_unless_a_shipped_one_has_it(tmp_path, monkeypatch):
    (tmp_path / "designs").mkdir()
    for name in ("own", "principal-angles"):
        (tmp_path / "designs" / f"{name}.toml").write_text(DESIGN)
    monkeypatch.chdir(tmp_path)
    assert find_design("own") == Path("designs/own.toml")
    assert sum(path.stem == "principal-angles" for path in known_designs()) == 2
    with pytest.raises(UserError, match=r"the name of /.* and of designs/principal.*; give the path of one"):
        find_design("principal-angles")
    assert find_design("designs/principal-angles.toml") == Path("designs/principal-angles.toml")


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
