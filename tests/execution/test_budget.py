"""A run that has a budget stops when it is spent, judges what stands, says so, and can be found again and continued."""

import json

import pytest
from builders import DESIGN, edited, write_design

import simstudy
from simstudy.design.load import load_design
from simstudy.execution.queue import Meter
from simstudy.execution.seal import meaning
from simstudy.execution.store import store_of
from simstudy.study import judged_again

SPENT = "[budget]\nwall_seconds = 100\n\n[grids.angles.factors]"
TEXT = edited(
    edited(DESIGN, "[grids.angles.factors]", SPENT), "relative_mcse = { mse = 0.05 }", "relative_mcse = { mse = 0.001 }"
)


@pytest.fixture
def after(monkeypatch):
    """Let the clock of a run jump beyond its budget after so many tasks."""

    def jump(tasks: int) -> None:
        left = iter([0.0] * (tasks - 1))
        monkeypatch.setattr(Meter, "wall_seconds", property(lambda _: next(left, 1000.0)))

    return jump


@pytest.fixture
def cut(tmp_path, after):
    """A design whose run was cut after 10 of 16 tasks, and the results."""
    path = write_design(tmp_path, TEXT)
    after(10)
    return path, simstudy.run(path, output=tmp_path, executor="serial")


def test_run__judges_what_stands_when_the_budget_is_spent(cut, tmp_path):
    _, results = cut
    batches = results.n_batches.values.tolist()
    assert 4 < max(batches) < 16 and not results.precision_reached.values.any()
    assert results.n_replicates.values.tolist() == [32 * count for count in batches]
    assert results.look_replicates.max(dim="look").values.tolist() == results.n_replicates.values.tolist()


def test_stopped_run__is_judged_again_alike_and_goes_on_with_another_budget(cut, tmp_path, after, in_process):
    path, results = cut
    shown = in_process("status", path, "--output", tmp_path).stdout
    assert shown.count("budget spent") == 6 and "0 of 6 cells finished" in shown
    design = load_design(path)
    judged, _ = judged_again(design, store_of(design, tmp_path))
    assert judged.mse.identical(results.mse) and judged.verdict.identical(results.verdict)
    assert judged.look_replicates.identical(results.look_replicates)
    after(1)
    again = simstudy.run(path, output=tmp_path, executor="serial")
    assert json.loads(again.attrs["run"])["batches_computed"] > 0


def test_larger_budget__goes_on_with_stored_batches(cut, tmp_path, monkeypatch):
    path, results = cut
    monkeypatch.undo()
    path.write_text(path.read_text().replace("wall_seconds = 100", "wall_seconds = 10000"))
    whole = simstudy.run(path, output=tmp_path, executor="serial")
    assert set(whole.n_batches.values.tolist()) == {16}
    assert json.loads(whole.attrs["run"])["batches_reused"] == results.n_batches.values.sum()


def test_budget_that_is_spent_at_once__judges_the_first_batch(tmp_path, after):
    after(1)
    results = simstudy.run(write_design(tmp_path, TEXT), output=tmp_path, executor="serial")
    assert set(results.n_batches.values.tolist()) == {1} and results.verdict.item() == "inconclusive"


def test_command__names_the_budget_and_ends_with_exit_code_3(tmp_path, after, in_process):
    after(10)
    path = write_design(tmp_path, TEXT.partition("[claims")[0] + "[profiles.quick]\n")
    for _ in range(2):  # the second finds the results of the first
        ran = in_process("run", path, "--output", tmp_path / "out", "--executor", "serial")
        assert ran.returncode == 3 and "stopped by the budget of 100 s on the clock" in ran.stderr
    page = (tmp_path / "out" / "tiny" / "quick" / "report.html").read_text()
    assert "Budget of a run: 100 s on the clock." in page


def test_budget__is_sealed_where_it_is_stated_alone(tmp_path):
    budget = {"processor_seconds": None, "wall_seconds": 100.0}
    assert meaning(load_design(write_design(tmp_path, TEXT)))["budget"] == budget
    assert "budget" not in meaning(load_design(write_design(tmp_path, DESIGN)))
