"""Files that a design names, and the design itself: what can be read is read, all else is refused at once."""

import os
import socket
from pathlib import Path

import numpy as np
import pytest
from builders import DESIGN, edited, loaded, mistakes, refuses, run

from simstudy.data.heads import key_projections
from simstudy.design.load import MAX_BYTES, find_design, known_designs, load_design
from simstudy.design.settings.records import DesignError
from simstudy.errors import UserError

HEADS = np.random.default_rng(0).normal(size=(2, 6, 2))


def of_heads(path: str) -> str:
    text = edited(DESIGN, 'arrangement = "rotated"', f'arrangement = "file"\nfile = "{path}"')
    return edited(text, "angle = [0, 45, 90]", "n_keys = [10, 20]").replace('x = "angle"', 'x = "n_keys"')


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\xff\xfe", "not UTF-8"),
        (b"#" * (MAX_BYTES + 1), f"longer than {MAX_BYTES} bytes; is it the right file"),
        (b"", "no such profile"),
        (b"numbers.unit = 'a'\n[claims.b]\n", "claims about numbers of your own, and no design; give them to"),
        (b"= 3", "not valid"),
        (None, "cannot be read"),
    ],
)
def test_unreadable_files__are_refused(tmp_path, content, expected):
    path = tmp_path / "design.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DesignError, match=expected):
        load_design(path)


def test_head_file__travels_inside_the_cell(tmp_path):
    np.save(tmp_path / "heads.npy", HEADS)
    cell = loaded(tmp_path, of_heads("heads.npy")).cells[0].cell
    np.testing.assert_array_equal(key_projections(cell), HEADS)
    for name, contents in (("moved", HEADS), ("other", 2.0 * HEADS)):
        np.save(tmp_path / f"{name}.npy", contents)
        other = loaded(tmp_path, of_heads(f"{name}.npy")).cells[0].cell
        assert (other.identity("") == cell.identity("")) == (name == "moved")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (HEADS[:1], "holds shape (1, 6, 2)"),
        (np.array([object()]), "cannot be read as .npy"),
        ({"a": HEADS}, "cannot be read as .npy"),  # an archive
        (np.stack([HEADS[0], HEADS[1, :, :1] * [1.0, -2.0]]), "head 1 has rank 1; give head_dim = 2"),
        (np.full((2, 6, 2), np.inf), "must hold real numbers only"),
        (np.ones((2, 6, 40)), "heads.file = 'heads.npy': longer than 2000 bytes"),
    ],
)
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
    with pytest.raises(DesignError, match="cannot be read: a folder, pipe, device or socket"):
        load_design(tmp_path / "odd")
    text = of_heads("odd")
    assert "heads.file = 'odd': cannot be read: a folder, pipe, device or socket" in mistakes(tmp_path, text)


def test_own_designs__have_names_unless_a_shipped_one_has_it(tmp_path, monkeypatch):
    for name in ("own", "principal-angles"):
        (tmp_path / "designs" / name).mkdir(parents=True)
        (tmp_path / "designs" / name / "design.toml").write_text(DESIGN)
    refuses(r"absent: neither a file nor the name of a design; known: alloc", find_design, "absent")
    monkeypatch.chdir(tmp_path)
    assert find_design("own") == Path("designs/own/design.toml")
    assert sum(path.parent.name == "principal-angles" for path in known_designs()) == 2
    refuses(r"the name of /.* and of designs/principal.*; give the path of one", find_design, "principal-angles")
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
