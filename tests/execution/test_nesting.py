"""How many replicates a draw should have: against the least error for given work, found by trying all."""

from __future__ import annotations

import numpy as np
import pytest
from builders import DESIGN, edited, write_design
from commands import simstudy

from simstudy.design.load import load_design
from simstudy.execution.nesting import best_replicates
from simstudy.execution.plan import plan

POPULATION = edited(DESIGN, "batch_size = 32", 'batch_size = 32\npopulation = ["queries"]').replace(
    "[simulation]", '[queries]\nqueries = { kind = "gaussian", count = 3 }\n\n[simulation]'
)


@pytest.mark.parametrize(("within", "draw_cost"), [(0.5, 40.0), (0.9, 8.0), (0.99, 100.0)])
def test_best__has_the_least_error_for_given_work(within, draw_cost):
    size, multiples = 32, 16 * np.arange(1, 400)
    between = 1.0 - within
    error_times_work = (between + within * size / multiples) * (draw_cost + multiples)
    assert best_replicates(within, size, draw_cost) == pytest.approx(multiples[error_times_work.argmin()], abs=16)


def test_best__is_the_least_batch_for_cheap_draws_and_unbounded_where_draws_add_nothing():
    assert best_replicates(0.5, 16, 0.01) == 16.0
    assert best_replicates(1.0, 16, 1.0) == np.inf


def test_plan__says_how_replicates_are_nested(tmp_path):
    design = load_design(write_design(tmp_path, POPULATION))
    grid = plan(design, output=tmp_path, executor="serial").grids[0]
    assert len(grid.nestings) == grid.cells
    for each in grid.nestings:
        assert each.replicates == design.cells[0].cell.simulation.batch_size
        assert 0.0 < each.within <= 1.0 and each.draw_cost > 0.0 and each.best % 16 == 0
    said = simstudy("plan", str(tmp_path / "design.toml"), "--output", str(tmp_path / "again")).stdout
    assert "replicates a draw (batch_size)" in " ".join(said.split())
    fixed = load_design(write_design(tmp_path, DESIGN))
    assert not any(grid.nestings for grid in plan(fixed, output=tmp_path / "fixed", executor="serial").grids)
