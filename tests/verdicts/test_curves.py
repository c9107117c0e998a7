"""Theory between the levels of a factor: of the very cells that a design with those levels would have."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from builders import minimal_cell
from builders_results import DESIGN, build_design, build_results

from simstudy.design.document import Design
from simstudy.design.figures import CurveFigure
from simstudy.verdicts import curves
from simstudy.verdicts.curves import TOLD_BY, theory_between
from simstudy.verdicts.predictions import Theory, predict

# Exact theory takes seconds.
TEXT = DESIGN.replace("exact = true", "exact = false")


@pytest.fixture
def design(tmp_path) -> Design:
    return build_design(tmp_path, TEXT)


@pytest.fixture(autouse=True)
def little_time(monkeypatch):
    monkeypatch.setitem(curves.BUDGET, "leading", 60)


def figure_on(grid: str, x: str, **entries) -> CurveFigure:
    return CurveFigure(kind="curve", title="A figure", grid=grid, x=x, y="correlation", **entries)


def between(design: Design, figure: CurveFigure, results: xr.Dataset | None = None) -> xr.Dataset:
    results = build_results(design) if results is None else results
    return theory_between(design, figure, results.isel(cell=results.grid.values == figure.grid))


def test_theory_between__is_that_of_the_cells_of_a_design_with_those_levels(design, tmp_path):
    figure = figure_on("angles", "angle", where={"n_keys": 400})
    results = build_results(design)
    inside = results.isel(cell=(results.grid.values == "angles") & (results.n_keys.values == 400))
    found = theory_between(design, figure, inside)
    leading = found.isel(cell=found[TOLD_BY].values == "leading")
    levels = sorted(set(leading.angle.values.tolist()))
    assert len(levels) > 11 and not {0.0, 15.0, 90.0} & set(levels)
    written = TEXT.replace("factors.angle = [0.0, 15.0, 30.0, 45.0, 60.0, 75.0, 90.0]", f"factors.angle = {levels}")
    other = build_design(tmp_path, written.replace("factors.n_keys = [100, 400]", "factors.n_keys = [400]"))
    expected = [theory["leading"].measures["correlation"] for theory in predict(other.cells[: 2 * len(levels)])]
    # Lines by the other factors, along each of them from level to level.
    np.testing.assert_array_equal(leading.correlation.sel(source="leading"), expected)
    assert np.isfinite(expected).all()
    assert (
        leading.regression.values.tolist()
        == [each.cell.coordinates["regression"] for each in other.cells][: len(expected)]
    )


def test_counts__take_whole_values_and_a_bandwidth_any(design):
    counts = between(design, figure_on("many-heads", "n_heads", x_scale="log", where={"bandwidth": 0.4}))
    assert set(counts.n_heads.values.tolist()) <= {3.0, *range(5, 8), *range(9, 16)} and counts.sizes["cell"] > 2
    heads = build_results(design)
    bandwidths = between(design, figure_on("many-heads", "bandwidth"), heads)
    assert ((bandwidths.bandwidth > 0.4) & (bandwidths.bandwidth < 0.8)).sum() > 5


def test_lines_without_theory__get_none_and_a_budget_bounds_the_others(design, monkeypatch):
    results = build_results(design)
    silent = results.copy(deep=True)
    silent.correlation.loc[{"source": ["exact", "leading"]}] = np.nan
    assert between(design, figure_on("angles", "angle"), silent).sizes["cell"] == 0
    monkeypatch.setitem(curves.BUDGET, "leading", 48)
    found = between(design, figure_on("angles", "angle"), results)
    assert (found[TOLD_BY] == "leading").sum() <= 48


def test_impossible_cells__are_left_out(tmp_path):
    text = TEXT.replace('arrangement = "haar" }', 'arrangement = "orthogonal", n_features = 32 }')
    text = text.replace("n_keys = 200, ", "n_keys = 200, head_dim = 2, ")
    design = build_design(tmp_path, text)
    cell = design.cells[-2].cell
    assert cell.heads.n_heads == 16
    assert curves._moved(cell, "n_heads", 15.0) is not None
    assert curves._moved(cell, "n_heads", 17.0) is None
    assert curves._moved(cell, "angle", 91.0) is None


def test_a_cell_between__has_an_identity_of_its_own():
    # Its noise decides nothing, so that it holds on to another cell, of its identity.
    cell = minimal_cell(noise={"kind": "student_t", "df": 5}, arrangement="rotated", angle=0.0)
    assert cell.decisive is not cell
    moved = curves._moved(cell, "angle", 7.5)
    assert moved.identity("engine") != cell.identity("engine") and moved.heads.angle == 7.5


def test_exact_theory__is_asked_for_its_own_cells_alone(tmp_path, monkeypatch):
    design, asked = build_design(tmp_path), []

    def predict(planned):
        asked.extend(planned)
        nothing = Theory({}, {}, {}, {}, "")
        yield from ({"exact": Theory({"correlation": 0.5}, {}, {}, {}, ""), "leading": nothing} for _ in planned)

    monkeypatch.setattr(curves, "predict", predict)
    monkeypatch.setattr(curves, "_SLOWER", 1)
    found = between(design, figure_on("angles", "angle"))
    exact = found[TOLD_BY].values == "exact"
    assert [planned.exact for planned in asked] == exact.tolist() and 0 < exact.sum() <= curves.BUDGET["exact"]
    assert set(found.n_keys.values[exact]) == {400} and set(found.n_keys.values[~exact]) == {100, 400}
    assert np.isfinite(found.correlation.sel(source="exact")).values.tolist() == exact.tolist()


@pytest.mark.parametrize(
    ("settings", "factor"),
    [
        ({"logits": "distance", "head_dim": 1}, 1),
        ({"logits": "dot_product", "head_dim": 2}, 1),
        ({"logits": "distance", "head_dim": 2}, curves._SLOWER),
        (
            {"logits": "distance", "head_dim": 1, "key_distribution": {"kind": "student_t", "df": 4}},
            curves._SLOWER,
        ),
    ],
)
def test_exact_theory_that_takes_seconds_for_a_cell__uses_more_of_the_budget(settings, factor):
    cell = minimal_cell(**settings)
    weights = [curves._weight(source, cell) for source in ("exact", "leading")]
    assert weights == [factor * max(1.0, cell.heads.n_heads**2 * cell.n_queries / 8), weights[1]]
    assert weights[1] < curves._SLOWER
