"""Shares of a study: together they are the whole, and nobody can tell that it was split."""

import json

import pytest
from builders import DESIGN, edited, write_design
from kills import numbers
from stored import batches, rows

from simstudy.design.load import load_design
from simstudy.errors import UserError
from simstudy.execution import shares
from simstudy.execution.ledger import Ledger
from simstudy.execution.shares import Share, require_engine, units, with_shares
from simstudy.execution.store import Store, store_of
from simstudy.study import plan, run, run_share

# Twelve cells on each of two kinds of data, four of which a second grid names again.
WIDE = edited(DESIGN, "angle = [0, 45, 90]", "n_features = [5, 6]\nangle = [0, 30, 45, 60, 75, 90]")
WIDE = edited(WIDE, "n_features = 6\n", "")
WIDE = edited(WIDE, 'hue = "bandwidth"', 'hue = "bandwidth"\nwhere = { n_features = 6 }')
AGAIN = "[grids.again.factors]\nn_features = [5, 6]\nangle = [45, 60]\nbandwidth = [0.5]\n\n"
WIDE = edited(WIDE, "[claims.mse-falls]", f"{AGAIN}[claims.mse-falls]")


@pytest.fixture
def design(tmp_path):
    return load_design(write_design(tmp_path, WIDE))


def test_shares__hold_every_cell_once(design):
    # Of eight cells each and the rest, those that are named twice together with their namesakes.
    assert [len(unit) for unit in units(design)] == [10, 4, 10, 4]
    for total in (1, 2, 3, 4):
        parts = [Share(number, total).of(design).cells for number in range(1, total + 1)]
        assert sorted(map(repr, (cell for part in parts for cell in part))) == sorted(map(repr, design.cells))
        identities = [{planned.cell.identity("") for planned in part} for part in parts]
        assert len(set().union(*identities)) == sum(map(len, identities)) == 24


def test_shares__are_an_undisturbed_run(design, tmp_path):
    run(design, output=tmp_path / "whole", executor="serial")
    output = tmp_path / "split"
    main = store_of(design, output)
    for number in (1, 2, 3):
        run_share(design, Share(number, 3), output=output, executor="serial")
    assert all(account.finished for account in opened(design, with_shares(main)).accounts)
    assert not any(account.finished for account in opened(design, main).accounts)
    assert not any(grid.batches for grid in plan(design, output=output, executor="serial").grids)
    results = run(design, output=output, executor="serial")
    assert json.loads(results.attrs["run"])["batches_computed"] == 0
    assert numbers(main.folder / "results.nc") == numbers(tmp_path / "whole" / "tiny" / "quick" / "results.nc")
    # Batches of shares are taken from where they lie, and not copied.
    assert batches(main.folder / "batches") == {}
    # What the study has is not computed again by a share, nor copied into it.
    again = run_share(design, Share(1, 2), output=output, executor="serial")
    assert batches(again.folder) == {}


def opened(design, store: Store) -> Ledger:
    ledger = Ledger(design, store)
    ledger.first_tasks()
    return ledger


def test_share_that_is_in_use__does_not_name_who_ran_the_whole(tmp_path):
    whole = Store(tmp_path / "whole")
    with whole.locked():
        share = Store(tmp_path / "whole-1", known=(whole,))
        with share.locked():
            share.files.delete(".owner.json")
            assert share.owner() == whole.owner() is not None
            with pytest.raises(UserError, match="in use by another process"), share.locked():
                pass


def test_share_of_another_engine__is_refused_by_its_neighbour(design, tmp_path, monkeypatch):
    share = run_share(design, Share(1, 4), output=tmp_path, executor="serial")
    require_engine(share)
    require_engine(Store(tmp_path / "no share"))
    monkeypatch.setattr(shares, "engine", lambda **_: "another")
    with pytest.raises(UserError, match=r"share.json: computed by engine .*, this is engine another; use nodes of one"):
        run_share(design, Share(2, 4), output=tmp_path, executor="serial")
    assert not rows(share.folder.parent / "2-of-4")
    with pytest.raises(UserError, match="use nodes of one processor type"):
        require_engine(share)


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "1/0", "-1/4", "a/b", "1/4/2", ""])
def test_bad_share__is_refused(text):
    with pytest.raises(UserError, match="must be number/total"):
        Share.parse(text)


def test_more_shares_than_work__are_refused_before_anything_is_written(design, tmp_path):
    with pytest.raises(UserError, match="'1/99': the design has work for 4 shares only"):
        run_share(design, Share.parse("1/99"), output=tmp_path / "new", executor="serial")
    assert not (tmp_path / "new").exists()
