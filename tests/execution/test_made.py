"""Results and reports are made once, and again as soon as anything that they rest on is another."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from builders import DESIGN, edited, write_design
from stored import flip, rows

from simstudy import study
from simstudy.design.load import load_design
from simstudy.errors import UserError
from simstudy.execution import made
from simstudy.execution.ledger import Ledger
from simstudy.execution.netcdf import read_results
from simstudy.execution.status import told
from simstudy.execution.store import store_of
from simstudy.report import drawings, page


@pytest.fixture
def again(tiny, tmp_path, monkeypatch):
    """A function that runs a finished study again and says whether any of it was looked at or judged."""
    tiny.copied(tmp_path)
    study.run(tiny.design, output=tmp_path, executor="serial")
    looks = []
    original = study.simulate
    monkeypatch.setattr(study, "simulate", lambda *given, **how: (looks.append(given), original(*given, **how)))

    def run(design=tiny.design) -> bool:
        looks.clear()
        study.run(design, output=tmp_path, executor="serial")
        return bool(looks)

    return run


@pytest.fixture
def folder(tiny, tmp_path):
    return store_of(tiny.design, tmp_path).folder


def test_results__are_read_where_everything_stands(again, folder, tiny):
    before = (folder / "results.nc").read_bytes()
    seen: list[Ledger] = []
    assert not again()
    read = study.run(tiny.design, output=folder.parents[1], executor="serial", observer=lambda *it: seen.append(it[0]))
    assert (
        read.assign_attrs(run="").identical(tiny.results.assign_attrs(run=""))
        and (folder / "results.nc").read_bytes() == before
    )
    told = [(a.done, a.finished, a.reached, a.shortfall) for a in seen[-1].accounts]
    looked = Ledger(tiny.design, store_of(tiny.design, folder.parents[1]))
    looked.first_tasks()
    assert told == [(a.done, a.finished, a.reached, a.shortfall) for a in looked.accounts]


@pytest.mark.parametrize("name", ["results.nc", "details.nc", "provenance.json"])
def test_results__are_made_again_if_a_file_is_damaged_or_gone(again, folder, name):
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert again()
    (folder / name).unlink()
    assert again() and not again()


def test_results__are_made_again_if_a_batch_is_damaged_or_lost(again, folder, tmp_path):
    flip(tmp_path / min(rows(tmp_path)))
    assert again() and not again()
    next(folder.rglob("*.records")).unlink()
    assert again()


def test_results__are_made_again_of_another_code_design_or_library(again, folder, tmp_path, monkeypatch):
    for change in (("_package", lambda: "edited"), ("installation", lambda *_: {"libraries": {"scipy": "0.1"}})):
        with monkeypatch.context() as patch:
            patch.setattr(made, *change)
            assert again()
    assert again(load_design(write_design(tmp_path, edited(DESIGN, "mse = 0.05", "mse = 0.051"))))


def test_record_that_is_not_kept__says_nothing(again, monkeypatch):
    assert not again()
    with monkeypatch.context() as patch:
        patch.setenv("SIMSTUDY_CACHE", "off")
        assert again() and again()


@pytest.mark.parametrize("keep", [True, False])
def test_results__are_found_after_the_checkout_was_moved_or_copied(tmp_path, keep):
    (tmp_path / "here").mkdir()
    write_design(tmp_path / "here")
    study.run(tmp_path / "here" / "design.toml", output=tmp_path / "here" / "outputs", executor="serial")
    (shutil.copytree if keep else shutil.move)(tmp_path / "here", tmp_path / "there")
    looked = []
    there = tmp_path / "there" / "design.toml", tmp_path / "there" / "outputs"
    study.run(there[0], output=there[1], executor="serial", observer=lambda *it: looked.append(it))
    assert len(looked) == 1 and told(load_design(there[0]), store_of(load_design(there[0]), there[1])).finished == 6
    if keep:
        with pytest.raises(UserError, match=r"holds the results of .*here.design.toml, whose study has the same name"):
            study.run(there[0], output=tmp_path / "here" / "outputs", executor="serial")


def test_forged_results__are_judged_again_from_the_batches(again, folder, tiny):
    """Sealed again, as whoever forges numbers would."""
    forged = tiny.results.copy(deep=True)
    forged["verdict"] = forged.verdict.copy(data=["supported"])
    store_of(tiny.design, folder.parents[1]).write_dataset("results.nc", forged)
    assert again() and read_results(folder / "results.nc").verdict.item() == tiny.results.verdict.item() != "supported"


def test_report__is_drawn_again_only_for_other_results(tiny, tmp_path, monkeypatch):
    store = store_of(tiny.design, tmp_path)
    drawn = []
    monkeypatch.setattr(drawings, "figure_files", lambda *given: drawn.append(given) or {})

    def write(results=tiny.results) -> int:
        drawn.clear()
        page.write_report(results, tiny.design, store)
        return len(drawn)

    assert (write(), write()) == (1, 0)
    (store.folder / "cells.csv").write_text("another table")
    assert (write(), write()) == (1, 0)
    other = tiny.results.copy(deep=True)
    other.mse[0] = np.nextafter(other.mse[0], 1.0)
    assert (write(other), write(other), write()) == (1, 0, 1)
