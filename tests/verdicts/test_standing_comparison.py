"""The comparison that stands for a claim: by the design or theory, before any run; whatever decides the run."""

from __future__ import annotations

import numpy as np
from builders import DESIGN, edited, mistakes, write_design

from simstudy.study import run


def test_comparison_of_least_margin_by_theory__stands_for_a_claim_under_every_seed(tmp_path):
    text = edited(DESIGN, "[grids.angles.factors]", "[grids.angles]\nexact = true\n[grids.angles.factors]")
    found = []
    for seed in (7, 8, 9):
        path = write_design(tmp_path, edited(text, "seed = 7", f"seed = {seed}"))
        found.append(run(path, output=tmp_path / str(seed), executor="serial"))
    assert len({results.statistic.item() for results in found}) > 1  # by chance
    (standing,) = {results.standing_statistic.item() for results in found}
    exact = found[0].mse.sel(source="exact").values.reshape(3, 2)
    steps = -np.diff(exact, axis=0)
    step, bandwidth = np.unravel_index(np.argmin(steps), steps.shape)
    place = f"angle {(0, 45)[step]} → {(45, 90)[step]} at bandwidth = {(0.5, 1)[bandwidth]:g}"
    assert place in standing and standing in found[0].comparison_statistic.values.tolist()


def test_comparison_that_the_design_names__stands_for_the_claim(tmp_path):
    text = edited(DESIGN, 'x = "angle"\nd', 'x = "angle"\nstands = { angle = 90, bandwidth = 1.0 }\nd')
    results = run(write_design(tmp_path, text), output=tmp_path, executor="serial")
    assert results.standing_statistic.item() == "change of mse, angle 45 → 90 at bandwidth = 1"
    elsewhere = mistakes(tmp_path, edited(text, "angle = 90, bandwidth = 1.0", "angle = 30"))
    assert "stands = {'angle': 30}: is no cell that the claim selects" in elsewhere


def test_a_population__has_no_theory_and_leaves_it_to_the_pilot(tmp_path):
    queries = '[queries]\nqueries = { kind = "gaussian", count = 2 }\n[simulation]\npopulation = ["queries"]'
    text = edited(DESIGN, "[simulation]", queries)
    results = run(write_design(tmp_path, text), output=tmp_path / "out", executor="serial")
    assert results.standing_statistic.item() == ""
    assert results.statistic.item() in results.comparison_statistic.values.tolist()
