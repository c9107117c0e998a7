"""What a plan predicts against what the study then takes."""

import pytest
from builders import DESIGN, edited, write_design
from stored import batches

from simstudy.design.load import load_design
from simstudy.execution.plan import plan
from simstudy.execution.store import store_of
from simstudy.study import run

# Sixteen replicates in each of many batches; one grid repeats a cell of another.
TEXT = edited(edited(DESIGN, "mse = 0.05", "mse = 0.02"), "[simulation]", '[simulation]\ncontrol = "none"').replace(
    "max_replicates = 512", "max_replicates = 100_000"
) + ("\n[grids.again]\nsettings = { angle = 45 }\n[grids.again.factors]\nbandwidth = [0.5]\n")


@pytest.fixture
def design(tmp_path):
    return load_design(write_design(tmp_path, TEXT))


def test_pilot__is_part_of_the_run_and_predicts_its_size(design, tmp_path):
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
    assert sum(grid.bytes for grid in found.grids[:1]) == pytest.approx(sum(map(len, whole.values())), rel=0.35)
    assert predicted["angles"].batches == pytest.approx(len(whole) - len(pilot), rel=0.45)
    assert found.seconds(4) == pytest.approx(found.seconds(1) / 4) and found.peak_MiB > 50


def test_plan_of_a_finished_study__asks_for_nothing(design, tmp_path):
    results = run(design, output=tmp_path, executor="serial")
    before = batches(tmp_path)
    found = plan(design, output=tmp_path, executor="serial")
    assert batches(tmp_path) == before and found.seconds(1) == 0.0
    assert sum(grid.replicates for grid in found.grids) == int(results.n_replicates.sum())
    assert store_of(design, tmp_path).owner() is None
