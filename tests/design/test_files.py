"""Designs from Python and from files, and files that they name: what can be read is read, all else is refused."""

import inspect
import json
import os
import socket
from pathlib import Path

import numpy as np
import pytest
from builders import loaded, mistakes, refuses, run, varied, write_design

from simstudy import Study, check
from simstudy.data.heads import key_projections
from simstudy.design.document import Design, Grid
from simstudy.design.load import MAX_BYTES, find_design, known_designs, load_design
from simstudy.design.settings.cell import TABLES
from simstudy.design.settings.records import DesignError

HEADS = np.random.default_rng(0).normal(size=(2, 6, 2))


def of_heads(path: str) -> str:
    return varied(arrangement="file", file=path, angle=None, n_keys=[10, 20]).replace('x = "angle"', 'x = "n_keys"')


@pytest.mark.parametrize("content, expected", [
    (b"\xff\xfe", "not UTF-8"),
    (b"#" * (MAX_BYTES + 1), f"longer than {MAX_BYTES} bytes; is it the right file"),
    (b"", "no such profile"),
    (b"numbers.unit = 'a'\n[claims.b]\n", "claims about numbers of your own, and no design; give them to"),
    (b"= 3", "not valid"),
    (None, "cannot be read"),
])  # fmt: skip
def test_unreadable_files__are_refused(tmp_path, content, expected):
    path = tmp_path / "design.toml"
    if content is not None:
        path.write_bytes(content)
    refuses(expected, load_design, path, error=DesignError)


def test_head_file__travels_inside_the_cell(tmp_path):
    np.save(tmp_path / "heads.npy", HEADS)
    cell = loaded(tmp_path, of_heads("heads.npy")).cells[0].cell
    np.testing.assert_array_equal(key_projections(cell), HEADS)
    for name, contents in (("moved", HEADS), ("other", 2.0 * HEADS)):
        np.save(tmp_path / f"{name}.npy", contents)
        other = loaded(tmp_path, of_heads(f"{name}.npy")).cells[0].cell
        assert (other.identity("") == cell.identity("")) == (name == "moved")


@pytest.mark.parametrize("content, expected", [
    (HEADS[:1], "holds shape (1, 6, 2)"),
    (np.array([object()]), "cannot be read as .npy"),
    ({"a": HEADS}, "cannot be read as .npy"),  # an archive
    (np.stack([HEADS[0], HEADS[1, :, :1] * [1.0, -2.0]]), "head 1 has rank 1; give head_dim = 2"),
    (np.full((2, 6, 2), np.inf), "must hold real numbers only"),
    (np.ones((2, 6, 40)), "heads.file = 'heads.npy': longer than 2000 bytes"),
])  # fmt: skip
def test_head_file__that_is_none_is_refused(tmp_path, monkeypatch, content, expected):
    monkeypatch.setattr("simstudy.design.contents.MAX_BYTES", 2000)
    with (tmp_path / "heads.npy").open("wb") as file:
        np.savez(file, **content) if isinstance(content, dict) else np.save(file, content)
    assert expected in mistakes(tmp_path, of_heads("heads.npy"))


def of_socket(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero"), of_socket])
def test_irregular_files__are_refused_without_waiting(make, tmp_path):
    make(tmp_path / "odd")
    refuses("cannot be read: a folder, pipe, device or socket", load_design, tmp_path / "odd", error=DesignError)
    assert "heads.file = 'odd': cannot be read: a folder, pipe, device or socket" in mistakes(tmp_path, of_heads("odd"))


def test_own_designs__have_names_unless_a_shipped_one_has_it(tmp_path, monkeypatch):
    for name in ("own", "principal-angles"):
        write_design(tmp_path / "designs" / name)
    refuses(r"absent: neither a file nor the name of a design; known: alloc", find_design, "absent")
    monkeypatch.chdir(tmp_path)
    assert find_design("own") == Path("designs/own/design.toml")
    assert sum(path.parent.name == "principal-angles" for path in known_designs()) == 2
    refuses(r"the name of /.* and of designs/principal.*; give the path of one", find_design, "principal-angles")
    for name in ("designs/principal-angles", "designs/principal-angles/design.toml"):
        assert find_design(name) == Path("designs/principal-angles/design.toml")


def test_results_of_another_design_of_the_name__are_not_written_over(tmp_path):
    text, how = varied(angle=[0, 45], bandwidth=[0.5]), {"output": tmp_path / "out", "executor": "serial"}
    first, second = write_design(tmp_path / "first", text), write_design(tmp_path / "second", varied(text, n_keys=41))
    run(first, **how)
    before = (results := tmp_path / "out" / "tiny" / "quick" / "results.nc").read_bytes()
    refuses("holds the results of .*first/design.toml, whose study has the same name; give one", run, second, **how)
    design, kept = load_design(second), second.rename(tmp_path / "kept.toml")
    refuses("holds the results of .*first/design.toml", run, design, **how)  # also where its own file is gone
    assert (kept.rename(second), results.read_bytes()) == (second, before)
    # Renamed in the file, or moved, the first is no other design any more.
    first.rename(tmp_path / "moved.toml")
    run(second, **how)
    assert results.read_bytes() != before


def tiny() -> Study:
    """The design of the builders, written in Python."""
    return (
        Study("tiny", title="A tiny study", aim="To test.")
        .data(n_keys=np.int64(40), n_features=6, regression={"kind": "ridge"})
        .heads(n_heads=2, head_dim=2, arrangement="rotated")
        .estimator(bandwidth=0.8)
        .simulation(seed=7, batch_size=32)
        .precision(relative_mcse={"mse": 0.05}, min_replicates=64, max_replicates=512)
        .grid("angles", {"angle": range(0, 91, 45), "bandwidth": np.array([0.5, 1.0])})
        .claim("mse-falls", "monotone", statement="The error falls.", grid="angles", measure="mse", x="angle",
               direction="decreasing", expected="undecided")
        .figure("mse", title="Error against angle", grid="angles", x="angle", y="mse", hue="bandwidth")
        .profile("full", precision={"max_replicates": 1024})
    )  # fmt: skip


def stated(design: Design) -> tuple:
    """What a design states, whatever its text: of its cells the labels as well, which stand apart."""
    return design.model_dump(exclude={"text", "path"}), [planned.cell.coordinates for planned in design.cells]


def test_study__is_that_of_its_file_and_of_its_json(tmp_path):
    of_file = {profile: stated(design) for profile, design in check(write_design(tmp_path)).items()}
    text = load_design(tiny()).text
    for each in (tiny(), Study.of(write_design(tmp_path, text))):
        assert {profile: stated(design) for profile, design in check(each).items()} == of_file
    assert list(json.loads(text)["grids"]["angles"]["factors"]) == ["angle", "bandwidth"]  # the last one runs fastest


@pytest.mark.parametrize("design, expected", [
    ({}, r"design: profiles = 'quick': no such profile; the design has: none; add \[profiles.quick\]"),
    ({"study": {"name": "\ud800"}}, "surrogates not allowed"),
    (tiny().grid("more", {"angle": {1}}), "1} is of type set; give text, numbers, lists or tables"),
    (tiny().data(n_keyz=None), 'tiny: data.n_keyz: unknown key; did you mean "n_keys"'),
    (tiny().data(n_keys=-1), "tiny: data.n_keys = -1: Input should be greater than or equal to 1"),
    (3, "a design of type int; give the path of a file, the name of a shipped design, or a Study"),
    ("principal-angels", 'neither a file nor the name of a design; did you mean "principal-angles"?'),
])  # fmt: skip
def test_what_is_no_design__is_refused_in_one_line(design, expected):
    refuses(expected, check, design)


def test_methods__have_the_signature_of_their_records_and_a_range_is_the_list_that_python_makes_of_it():
    for table, record in TABLES.items():
        method = getattr(Study, table)
        assert list(inspect.signature(method).parameters) == ["self", *record.model_fields]
        assert all(name in inspect.getdoc(method) for name in record.model_fields)
    given = {"a": {"range": [0, 3]}, "b": {"range": [3, 0, -2]}, "c": {"range": [5, 12, 3]}}
    assert Grid(factors=given).factors == {"a": [0, 1, 2], "b": [3, 1], "c": [5, 8, 11]}
