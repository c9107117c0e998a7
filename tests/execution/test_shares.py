"""Shares of a study: together they are the whole, and nobody can tell that it was split."""

import json

import pytest
from builders import DESIGN, edited, loaded, refuses, run
from stored import batches, numbers, rows

from simstudy import plan
from simstudy.errors import UserError
from simstudy.execution import provenance, state
from simstudy.execution.state import RunState, part_of
from simstudy.execution.store import RUN, store_of
from simstudy.study import run_share

# Twelve cells on each of two kinds of data, four of which a second grid names again.
WIDE = edited(DESIGN, "angle = [0, 45, 90]", "n_features = [5, 6]\nangle = [0, 30, 45, 60, 75, 90]")
WIDE = edited(WIDE, "n_features = 6\n", "")
WIDE = edited(WIDE, 'hue = "bandwidth"', 'hue = "bandwidth"\nwhere = { n_features = 6 }')
AGAIN = "[grids.again.factors]\nn_features = [5, 6]\nangle = [45, 60]\nbandwidth = [0.5]\n\n"
WIDE = edited(WIDE, "[claims.mse-falls]", f"{AGAIN}[claims.mse-falls]")


@pytest.fixture
def design(tmp_path):
    return loaded(tmp_path, WIDE)


@pytest.mark.parametrize("total", [1, 2, 3, 4, 5, 24, 30])
def test_shares__hold_every_cell_once_and_tasks_together_while_these_suffice(design, total):
    parts = [part_of(design, f"{number}/{total}").cells for number in range(1, total + 1)]
    assert sorted(map(repr, (cell for part in parts for cell in part))) == sorted(map(repr, design.cells))
    identities = [{planned.cell.identity("") for planned in part} for part in parts]
    assert len(set().union(*identities)) == sum(map(len, identities)) == 24
    # Of eight cells each and the rest, those that are named twice together with their namesakes.
    assert total != 4 or [len(part) for part in parts] == [10, 4, 10, 4]
    assert sum(map(bool, parts)) == min(total, 24)


def test_shares__are_an_undisturbed_run(design, tmp_path):
    run(design, output=tmp_path / "whole", executor="serial")
    output = tmp_path / "split"
    main = store_of(design, output)
    counts = [run_share(design, f"{number}/3", output=output, executor="serial")[0] for number in (1, 2, 3)]
    assert sum(counts) == len(design.cells)
    state = RunState(design, main)
    state.first_tasks()
    assert all(account.finished for account in state.accounts) and not (main.folder / RUN).exists()
    assert not any(grid.batches for grid in plan(design, output=output, executor="serial").grids)
    results = run(design, output=output, executor="serial")
    assert json.loads(results.attrs["run"])["batches_computed"] == 0
    assert numbers(main.folder / "results.nc") == numbers(tmp_path / "whole" / "tiny" / "quick" / "results.nc")
    before = rows(output)
    # What the study has is not computed again by a share, nor copied into it.
    run_share(design, "1/2", output=output, executor="serial")
    assert rows(output) == before


def test_share_that_runs__is_refused_a_second_time_but_not_its_neighbour(design, tmp_path):
    with store_of(design, tmp_path, "1-of-2").locked():
        refuses("in use by process", run_share, design, "1/2", output=tmp_path, executor="serial")
        assert store_of(design, tmp_path).owner().alive
        run_share(design, "2/2", output=tmp_path, executor="serial")
    assert store_of(design, tmp_path).owner() is None
    assert batches(tmp_path)


def test_share_of_another_engine__is_refused_by_its_neighbour(design, tmp_path, monkeypatch):
    _, place = run_share(design, "1/4", output=tmp_path, executor="serial")
    for module in (provenance, state):
        monkeypatch.setattr(module, "engine", lambda *_, **__: "another")
    with pytest.raises(UserError, match=r"1-of-4: computed for another .* than another; use nodes of one processor"):
        run_share(design, "2/4", output=tmp_path, executor="serial")
    assert not place.with_name("2-of-4").exists()


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "1/0", "-1/4", "a/b", "1/4/2", "", "1/99999999999"])
def test_bad_share__is_refused(text, design):
    refuses("must be number/total", part_of, design, text)
