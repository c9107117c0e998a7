"""How far a study is, what a plan predicts of it, a run whose budget is spent, and shares that are together a run."""

import json
from concurrent.futures import wait

import pytest
from builders import edited, loaded, refuses, run, varied, watched, write_design
from stored import batches, numbers, remove, rows

import simstudy
from simstudy import plan, study
from simstudy.design.load import load_design
from simstudy.errors import PrecisionWarning, UserError
from simstudy.execution import provenance, state
from simstudy.execution.executors import Meter
from simstudy.execution.provenance import STATUS_FILE, counted, is_done, read_status
from simstudy.execution.state import RunState, part_of
from simstudy.execution.store import RUN, Store, store_of
from simstudy.report import page
from simstudy.report.page import require_same_design
from simstudy.report.progress import status_line
from simstudy.results import cells_of
from simstudy.study import rules_of, run_share

BUDGETED = varied(mse=0.001) + "\n[budget]\nwall_seconds = 100\n"
DRAWN = {"population": ("queries",), "queries": {"kind": "gaussian", "count": 2}}


@pytest.fixture
def finished(tmp_path, tiny):
    design = load_design(write_design(tmp_path))
    return design, store_of(design, tiny.copied(tmp_path))


def test_status_written__is_that_of_all_batches_by_whatever_path_the_design_is_given(finished, monkeypatch):
    design, store = finished
    run_state = RunState(design, store, **rules_of(design))
    run_state.first_tasks()
    found, wanted = read_status(design, store), run_state.write_status()
    assert found.finished == 6 and found.as_of <= wanted.as_of
    assert found.cells == wanted.cells and found.cells[0].mcse > 0.0
    assert is_done(found, store, "cpu") and not is_done(found, store, "cuda")
    monkeypatch.chdir(design.path.parent)
    assert read_status(load_design(design.path.name), store).cells == wanted.cells
    (store.folder / STATUS_FILE).unlink()
    assert read_status(design, store) is None
    told = counted(design, store)
    counts, expected = ([(cell.identity, cell.stored) for cell in each.cells] for each in (told, wanted))
    assert counts == expected
    assert status_line(told, store).startswith("batches are counted, simstudy run examines them")
    empty = Store(store.folder / "nothing")
    assert f"{empty.folder} holds no batches" in status_line(counted(design, empty), empty)


def test_status_of_a_run_that_goes_on__counts_batches_that_came_since(tmp_path, monkeypatch):
    monkeypatch.setattr(state, "STATUS_SECONDS", 1e9)
    design, seen, known = load_design(write_design(tmp_path)), [], []

    def watch(state, predicted=None):
        state._store.flush()
        seen.append(read_status(design, store_of(design, tmp_path)))
        known.append((state.work_known, all(account.done for account in state.cells)))

    run(design, output=tmp_path, executor="serial", observer=watch)
    assert set(known) == {(False, False), (True, True)}
    during = [found for found in seen if not any(cell.measure for cell in found.cells)]  # told before the first batch
    assert len(during) > 3
    counts = [sum(cell.stored for cell in found.cells) for found in during]
    assert counts[0] == 0 and counts == sorted(counts) and counts[-1] > counts[1]
    assert read_status(design, store_of(design, tmp_path)).finished == 6


@pytest.mark.parametrize("change", [{}, {"origin": "x"}, {"as_of": 1e300}, {"seconds_left": float("nan")}])
def test_status_without_a_batch_that_it_tells__or_damaged__is_not_told(finished, change):
    design, store = finished
    assert read_status(design, store) is not None
    if change:
        store.files.write(STATUS_FILE, json.dumps(json.loads(store.files.read(STATUS_FILE, 9999)) | change).encode())
    else:
        remove(store.folder, min(rows(store.folder)))
    assert read_status(design, Store(store.folder)) is None


def test_pilot__is_part_of_the_run_and_predicts_its_size(tmp_path, monkeypatch):
    again = "\n[grids.again]\nsettings = { angle = 45 }\n[grids.again.factors]\nbandwidth = [0.5]\n"
    design = loaded(tmp_path, varied(mse=0.02, control="none", max_replicates=100_000) + again)
    monkeypatch.setattr(RunState, "fold", lambda _: None)
    found = plan(design, output=tmp_path, executor="serial")
    pilot = batches(tmp_path)
    assert len(pilot) == 6 * 4
    results = run(design, output=tmp_path, executor="serial")
    whole = batches(tmp_path)
    assert pilot.items() < whole.items()
    predicted = {grid.grid: grid for grid in found.grids}
    assert predicted["angles"].cells == 6 and predicted["again"].batches == 0  # shared cells count once
    # The pilot knows each MCSE to a tenth, and so the replicates to a fifth; six cells average that.
    total = sum(grid.replicates for grid in found.grids)
    assert total == pytest.approx(int((results.n_replicates + results.n_failed).sum()), rel=0.35)
    assert predicted["angles"].batches == pytest.approx(len(whole) - len(pilot), rel=0.45)
    assert found.seconds(4) == pytest.approx(found.seconds(1) / 4) and found.peak_MiB > 50


@pytest.fixture
def after(monkeypatch):
    """Let the clock of a run jump beyond its budget after so many tasks."""

    def jump(tasks: int) -> None:
        left = iter([0.0] * (tasks - 1))
        used = {"cpu_seconds": 0.0, "peak_memory_MiB": 0.0}
        monkeypatch.setattr(Meter, "read", lambda _: used | {"wall_seconds": next(left, 1000.0)})

    return jump


def test_run__judges_what_stands_when_its_budget_is_spent_and_goes_on_with_another(tmp_path, after, in_process):
    path = write_design(tmp_path, BUDGETED)

    def ran(tasks, code=3, why="budget of 100 s spent"):
        after(tasks)
        told = in_process("run", path, "--output", tmp_path, "--executor", "serial")
        assert told.returncode == code and why in told.stderr
        return cells_of(tmp_path / "tiny" / "quick")

    results = ran(10)  # of 16
    assert "Budget of a run: 100 s." in (tmp_path / "tiny" / "quick" / "report.html").read_text()
    batches = results.n_batches.values.tolist()
    assert 4 < max(batches) < 16 and not results.precision_reached.values.any()
    assert results.n_replicates.values.tolist() == [32 * count for count in batches]
    assert results.look_replicates.max(dim="look").values.tolist() == results.n_replicates.values.tolist()
    shown = in_process("status", path, "--output", tmp_path).stdout
    assert shown.count("budget spent") == 6 and "0 of 6 cells finished" in shown
    again = ran(1)
    assert json.loads(again.attrs["run"])["batches_computed"] == again.n_batches.sum() - sum(batches) > 0
    path.write_text(path.read_text().replace("wall_seconds = 100", "wall_seconds = 10000"))
    whole = ran(1000, 5, "ceiling of 512 replicates")
    assert set(whole.n_batches.values.tolist()) == {16}
    assert json.loads(whole.attrs["run"])["batches_computed"] == (whole.n_batches - again.n_batches).sum()


@pytest.mark.parametrize("text", [BUDGETED, varied(BUDGETED, mse=10.0), varied(BUDGETED, **DRAWN)])
def test_budget_that_is_spent_at_once__judges_the_first_batch(text, tmp_path, after, monkeypatch):
    monkeypatch.setattr("concurrent.futures.wait", lambda flying, *_: wait(flying))  # all, in a set of any order
    after(1)
    with pytest.warns(PrecisionWarning) as told:
        results = cells_of(simstudy.run(write_design(tmp_path, text), output=tmp_path, executor="serial"))
    assert set(results.n_batches.values.tolist()) == {1} and results.verdict.item() == "undecided"
    line = str(told[0].message).splitlines()[0]
    assert line.endswith("budget of 100 s spent; run again to go on") and len(told) == 1, line


def test_budget__is_not_spent_by_the_pilot_of_batch_sizes(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("simstudy.execution.executors.time.perf_counter", lambda: now[0])
    monkeypatch.setattr(study, "sized", lambda design, _: now.append(now.pop() + 1000.0) or design)
    results = cells_of(simstudy.run(write_design(tmp_path, BUDGETED), output=tmp_path, executor="serial"))
    assert set(results.n_batches.values.tolist()) == {16}


def test_time_left__is_that_of_the_work_that_is_missing(tmp_path, monkeypatch):
    design, now = load_design(write_design(tmp_path)), [0.0]
    monkeypatch.setattr(state.time, "monotonic", lambda: now[0])
    run_state, work, told = RunState(design, store_of(design, tmp_path)), [10, 50, 0], []
    monkeypatch.setattr(RunState, "work", property(lambda _: work))
    run_state.first_tasks()
    for now[0], done, whole, known in ((0, 10, 50, True), (5, 20, 60, False), (10, 30, 60, True), (20, 50, 50, True)):
        work[:2] = done, whole
        monkeypatch.setattr(RunState, "work_known", known)
        told.append(run_state.write_status().seconds_left)
    assert told == [None, None, 15.0, 0.0]


def test_plan_and_share_of_a_finished_study__want_nothing_more(tmp_path):
    """Theory as control over a population of query points counts for plan and shares as for the run."""
    design = loaded(tmp_path, varied(max_replicates=16384, **DRAWN))
    run(design, output=tmp_path, executor="serial")
    stored = [*rows(tmp_path)]
    found = plan(design, output=tmp_path, executor="serial")
    run_share(design, "1/1", output=tmp_path, executor="serial")
    assert found.grids[0].batches == 0 == found.seconds(1) and [*rows(tmp_path)] == stored
    store = store_of(design, tmp_path)
    assert is_done(read_status(design, store), store, "cpu")  # still


def damage(file):
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


@pytest.mark.filterwarnings("ignore:.* stored batches were damaged")
def test_what_is_done__is_done_again_only_if_what_it_rests_on_changed(tmp_path, monkeypatch):
    own = {"kind": "own", "path": "mine.py", "name": "m"}
    number = 'statement = "A number.", kind = "equals", grid = "angles", measure = "mse", margin = 1'
    text = varied(angle=[0, 90], bandwidth=[0.5], max_replicates=64, regression=own)
    text += f'[claims]\nnumber = {{ {number}, value.function = "number" }}'
    path, trust = write_design(tmp_path, text), [tmp_path / "mine.py", tmp_path / "functions.py"]
    trust[0].write_text("def m(x):\n    return 1.0 * x[0] ** 2\n")
    trust[1].write_text("def number():\n    return 1")
    opened = watched(monkeypatch, study, "rules_of")

    def opens():
        opened.clear()
        simstudy.run(path, output=tmp_path, executor="serial", trust=trust)
        return len(opened)

    assert opens() and not opens()
    store = tmp_path / "tiny" / "quick"
    changes = {
        "a batch": lambda: damage(store / "batches" / "run"),
        "results damaged": lambda: damage(store / "results.nc"),
        "results gone": (store / "results.nc").unlink,
        "details": (store / "details.nc").unlink,
        "provenance": lambda: (store / "provenance.json").write_text("{}"),
        "claim": lambda: write_design(tmp_path, edited(text, '"undecided"', '"supported"')),
        "functions": lambda: trust[0].write_text("def m(x):\n    return 2.0 * x[0] ** 2\n"),
        "a claim's number": lambda: trust[1].write_text("def number():\n    return 9"),
        "versions": lambda: monkeypatch.setattr(provenance, "_version", lambda _: "9.9"),
        "sources": lambda: monkeypatch.setattr(provenance, "PACKAGE", tmp_path / "another"),
        "environment": lambda: monkeypatch.setenv("NUMBA_OF_NO_USE", "1"),
    }
    for name, change in changes.items():
        change()
        assert opens(), name
        assert not opens(), name
    trust[1].write_text("def number():\n    return 5")
    with pytest.raises(UserError, match=r"results.nc: a number of functions.py has changed since; run the study again"):
        require_same_design(cells_of(store), load_design(path, trust=trust), Store(tmp_path))


def test_page__is_drawn_again_only_if_it_or_what_it_shows_changed(tmp_path, in_process, monkeypatch):
    drawn = watched(monkeypatch, page, "write_report")
    monkeypatch.setattr(page, "figure_files", lambda *_: {"mse": b"png"})
    command = ["run", write_design(tmp_path), "--output", tmp_path / "out", "--executor", "serial"]
    folder = tmp_path / "out" / "tiny" / "quick"
    for change, count in (
        (lambda: None, 1), (lambda: None, 1), ((folder / "cells.csv").unlink, 2),
        (lambda: (folder / "report.html").write_text("another"), 3), ((folder / "report.html").unlink, 4),
        (lambda: min((folder / "figures").iterdir()).unlink(), 5), ((folder / ".status.json").unlink, 6),
    ):  # fmt: skip
        if folder.exists():
            change()
        assert in_process(*command).returncode == 0 and len(drawn) == count


@pytest.fixture
def design(tmp_path):
    """Twelve cells on each of two kinds of data, four of which a second grid names again."""
    text = varied(n_features=[5, 6], angle=[0, 30, 45, 60, 75, 90])
    text = edited(text, 'hue = "bandwidth"', 'hue = "bandwidth"\nwhere = { n_features = 6 }')
    again = "[grids.again.factors]\nn_features = [5, 6]\nangle = [45, 60]\nbandwidth = [0.5]\n\n"
    return loaded(tmp_path, edited(text, "[claims.mse-falls]", f"{again}[claims.mse-falls]"))


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
    assert all(account.finished for account in state.cells) and not (main.folder / RUN).exists()
    assert not any(grid.batches for grid in plan(design, output=output, executor="serial").grids)
    assert json.loads(run(design, output=output, executor="serial").attrs["run"])["batches_computed"] == 0
    assert numbers(main.folder / "results.nc") == numbers(tmp_path / "whole" / "tiny" / "quick" / "results.nc")
    before = rows(output)
    # What the study has is not computed again by a share, nor copied into it.
    run_share(design, "1/2", output=output, executor="serial")
    assert rows(output) == before


def test_share_that_runs_or_of_another_engine__is_refused_but_not_its_neighbour(design, tmp_path, monkeypatch):
    with store_of(design, tmp_path, "1-of-2").locked():
        refuses("in use by process", run_share, design, "1/2", output=tmp_path, executor="serial")
        assert store_of(design, tmp_path).owner().alive
        run_share(design, "2/2", output=tmp_path, executor="serial")
    assert store_of(design, tmp_path).owner() is None and batches(tmp_path)
    _, place = run_share(design, "1/4", output=tmp_path, executor="serial")
    for module in (provenance, state):
        monkeypatch.setattr(module, "engine", lambda *_, **__: "another")
    with pytest.raises(UserError, match=r"1-of-4: computed for another .* than another; use nodes of one processor"):
        run_share(design, "2/4", output=tmp_path, executor="serial")
    assert not place.with_name("2-of-4").exists()


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "1/0", "-1/4", "a/b", "1/4/2", "", "1/99999999999"])
def test_bad_share__is_refused(text, design):
    refuses("must be number/total", part_of, design, text)
