"""What figures show beside theory: strips and reasons."""

import numpy as np
import pytest
import xarray as xr
from builders_results import DESIGN, build_design, build_results
from drawn import half_lengths, panels, reading, stated, strips
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simstudy.report.figures import chosen, draw
from simstudy.report.figures.shared import COVERAGE


@pytest.fixture(scope="module")
def design(tmp_path_factory):
    return build_design(tmp_path_factory.mktemp("design"), DESIGN.replace("exact = true", "exact = false"))


@pytest.fixture(scope="module")
def results(design):
    return build_results(design)


def curve(**entries):
    where = {"regression": "zero", "n_keys": 400}
    return stated(**{"grid": "angles", "y": "correlation", "x": "angle", "where": where} | entries)


def parts(drawing: Figure) -> tuple[Axes, Axes]:
    (axes,), (strip,) = panels(drawing), strips(drawing)
    return axes, strip


def with_levels(results: xr.Dataset, source: str, values: list[float]) -> xr.Dataset:
    cells = chosen(curve(), results).copy(deep=True)
    cells.correlation.loc[{"source": source}] = values
    return cells


def test_residuals__are_drawn_below_with_their_errors(results):
    axes, strip = parts(draw(curve(), "f", results))
    (bar,) = strip.containers
    x, y = bar.lines[0].get_data()
    cells = chosen(curve(), results)
    leading = cells.correlation.sel(source="leading").values
    np.testing.assert_array_equal(x, cells.angle)
    np.testing.assert_allclose(y, cells.correlation.sel(source="empirical").values / leading - 1, atol=1e-12)
    np.testing.assert_allclose(half_lengths(bar), COVERAGE * cells.correlation_mcse / leading)
    assert strip.get_ylim()[0] == -strip.get_ylim()[1] and strip.get_xlim() == axes.get_xlim()
    texts = [strip.yaxis.get_major_formatter()(value, 0) for value in (-0.01, 0.0, 0.025)]
    assert texts == ["−1 %", "0 %", "+2.5 %"]


def test_strip__shows_the_margin_of_a_claim_and_what_is_inside_looks_inside(results):
    """A deviation of a thousandth is drawn at a thousandth of an axis of one per cent, or of more than the margin."""
    close = chosen(curve(), results).correlation.sel(source="leading").values * 1.0005
    cells = with_levels(results, "empirical", close)
    cells["correlation_mcse"] = 1e-6 * cells.correlation_mcse
    ends = []
    for margin in (None, 0.002, 0.05):
        _, strip = parts(draw(curve(), "f", cells, margin))
        bands = [item for item in strip.patches if item.get_label() == "margin"]
        assert [item.get_height() for item in bands] == ([pytest.approx(2 * margin)] if margin else [])
        ends.append(strip.get_ylim()[1])
    assert ends[0] >= 0.01 and ends[1] > 0.002 and ends[2] > 0.05 and ends[1] < ends[0]


@pytest.mark.parametrize(("times", "told"), [(3, "195 %"), (300, "2.94e4 %")])
def test_residuals__far_beyond_the_others_are_arrows_at_the_edge(results, times, told):
    cells = chosen(curve(), results)
    values = cells.correlation.sel(source="leading").values.copy()
    values[3] /= times
    drawing = draw(curve(), "f", with_levels(results, "leading", values))
    _, strip = parts(drawing)
    (up,) = (each for each in strip.lines if each.get_marker() == "^" and len(each.get_xdata()))
    assert up.get_xdata() == [45.0] and up.get_ydata()[0] < strip.get_ylim()[1] < 1
    assert f"arrows: 1 point beyond the strip, the furthest by {told}" in reading(drawing)


def test_figure_without_any_theory__has_no_strip(results):
    cells = with_levels(results, "leading", [np.nan] * 7)
    drawing = draw(curve(), "f", cells)
    assert len(drawing.axes) == 1
    assert "no theory" not in reading(drawing)


def test_axis__begins_at_zero_where_that_costs_little_and_says_so_where_not(results):
    near = with_levels(results, "empirical", [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.35])
    near.correlation.loc[{"source": "leading"}] = near.correlation.sel(source="empirical")
    drawing = draw(curve(), "f", near)
    assert drawing.axes[0].get_ylim()[0] == 0 and "begin at 0" not in reading(drawing)
    far = near.assign(correlation=near.correlation + 2)
    drawing = draw(curve(), "f", far)
    assert drawing.axes[0].get_ylim()[0] > 1 and "y does not begin at 0" in reading(drawing)
    assert "begin at 0" not in reading(draw(curve(y_scale="log"), "f", far))


def test_panels_with_axes_of_their_own__say_so(results):
    where = {"n_keys": 400}
    apart = draw(curve(where=where, y="squared_bias", panel="regression"), "f", results)
    assert "panels have y axes of their own" in reading(apart)
    zero, ridge = panels(apart)
    assert zero.get_ylim()[1] < ridge.get_ylim()[1] / 100
    apart.draw_without_rendering()
    assert any(label.get_visible() and label.get_text() for label in ridge.get_yticklabels())
    together = draw(curve(where=where, y="correlation", panel="regression"), "f", results)
    assert "axes of their own" not in reading(together)


def test_crowded_levels__are_thinned_and_not_replaced_by_numbers_nobody_speaks_of(results):
    cells = chosen(curve(), results).isel(cell=np.tile(np.arange(7), 2))
    levels = np.geomspace(1, 2, 7)
    cells = cells.assign_coords(spread=("cell", np.concatenate([levels, levels * 1.04]).round(3)))
    cells.attrs["factors"] = "angles: spread"
    ticks = draw(curve(where={}, x="spread"), "f", cells).axes[0].get_xticks()
    assert 2 < len(ticks) < 14 and set(ticks) <= set(cells.spread.values.tolist())
