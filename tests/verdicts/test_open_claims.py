"""Replicates spent on verdicts: on claims that are open, on all their cells together, and the same however one runs."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from builders import DESIGN, edited, write_design

from simstudy.design.load import load_design
from simstudy.study import run

FLOOR = 512
CLAIMS = """[claims.sure]
statement = "The error is small."
kind = "equals"
grid = "angles"
measure = "mse"
where = { bandwidth = 0.5 }
value = 0.0
margin = 9.0
[claims.open]
statement = "The error falls by more than it does."
kind = "larger_than"
grid = "angles"
measure = "mse"
where = { bandwidth = 1.0, angle = 0 }
versus = { angle = 90 }
value = THRESHOLD
[figures.mse]"""


def design_of(folder, threshold: float, stop: str = "verdict", ceiling: int = 8192):
    text = edited(DESIGN, DESIGN[DESIGN.index("[claims.mse-falls]") : DESIGN.index("[figures.mse]")], "")
    text = edited(text, "[figures.mse]", CLAIMS.replace("THRESHOLD", str(threshold)))
    text = edited(text, "relative_mcse = { mse = 0.05 }", f'stop = "{stop}"\nrelative_mcse = {{ mse = 0.01 }}')
    text = edited(text, "min_replicates = 64", f"min_replicates = {FLOOR}")
    text = edited(text, "max_replicates = 512", f"max_replicates = {ceiling}")
    return load_design(write_design(folder, text))


@pytest.fixture(scope="module")
def near(tmp_path_factory) -> float:
    """A threshold one MCSE below what the open claim is about, as estimated from the floor of replicates."""
    folder = tmp_path_factory.mktemp("floor")
    results = run(design_of(folder, 0.0), output=folder, executor="serial")
    return float((results.verdict_estimate - results.verdict_mcse).sel(claim="open"))


def used(results: xr.Dataset) -> dict[tuple[float, float], int]:
    cells = zip(results.angle.values.tolist(), results.bandwidth.values.tolist(), strict=True)
    return dict(zip(cells, results.n_replicates.values.tolist(), strict=True))


def test_replicates__are_spent_on_the_cells_of_an_open_claim_alone(tmp_path, near):
    results = run(design_of(tmp_path, near), output=tmp_path, executor="serial")
    spent = used(results)
    concerned = {(0.0, 1.0), (90.0, 1.0)}
    assert {spent[cell] for cell in spent.keys() - concerned} == {FLOOR}
    (both,) = {spent[cell] for cell in concerned}
    assert FLOOR < both <= 8192
    assert results.verdict.sel(claim="sure").item() == "supported"
    # Every look is in the results: the last is at what was spent, and none at more.
    looks, counts = results.look_replicates.values, results.n_looks.values
    assert [row[count - 1] for row, count in zip(looks, counts, strict=True)] == results.n_replicates.values.tolist()
    assert (np.diff(looks, axis=1)[looks[:, 1:] > 0] > 0).all() and counts.max() == looks.shape[1] > counts.min() == 1


def test_decided_claims__want_nothing_beyond_the_floor(tmp_path, near):
    results = run(design_of(tmp_path, near - 1.0), output=tmp_path, executor="serial")
    assert set(used(results).values()) == {FLOOR} and set(results.verdict.values) == {"supported"}
    assert results.precision_reached.all()  # none was asked for


def test_precision__may_be_asked_for_beside(tmp_path, near):
    results = run(design_of(tmp_path, near - 1.0, "both"), output=tmp_path, executor="serial")
    alone = run(design_of(tmp_path, near - 1.0, "precision"), output=tmp_path / "alone", executor="serial")
    assert used(results) == used(alone) and max(used(alone).values()) > FLOOR


def test_looks__are_the_same_whatever_interrupts_and_on_any_executor(tmp_path, near):
    first = run(design_of(tmp_path, near), output=tmp_path, executor="serial")
    study = tmp_path / "tiny" / "quick"
    batches = sorted((study / "batches").rglob("*.npz"))
    for batch in batches[::3]:
        batch.unlink()
    again = run(design_of(tmp_path, near), output=tmp_path, executor="serial")
    elsewhere = run(design_of(tmp_path, near), output=tmp_path / "threads", executor="threads", workers=2)
    for other in (again, elsewhere):
        xr.testing.assert_identical(first.drop_attrs(), other.drop_attrs())
