"""Figures: every point, bar, line and label that the design asks for, read back from what is drawn."""

from functools import partial

import matplotlib as mpl
import numpy as np
import pytest
from builders_results import cells_where
from drawn import bars, half_lengths, legend_texts, lines, panels, points, reading, stated, strips
from matplotlib.backends.backend_agg import FigureCanvasAgg

from simstudy.report.figures import draw, image
from simstudy.report.figures.shared import COVERAGE, PlainLog


def curve(**entries):
    return stated(**{"grid": "angles", "y": "correlation", "x": "angle"} | entries)


@pytest.fixture(scope="module")
def variance(design, results):
    return draw(design.figures["variance-by-angle"], "f", results)


def test_curve__has_a_panel_for_each_level_and_all_points(variance):
    zero, ridge = panels(variance)
    assert zero.get_title("left") == "regression function: zero"
    assert "ridge" in ridge.get_title("left")
    for axes in (zero, ridge):
        assert len(bars(axes)) == 2
        assert len(points(axes)) == 14
    assert zero.get_ylim() == ridge.get_ylim()
    assert zero.get_ylabel() == "ensemble variance [Y²]"
    assert [strip.get_xlabel() for strip in strips(variance)] == ["angle [degrees]"] * 2


def test_curve__draws_estimates_with_bars_of_1_96_mcse(variance, results):
    cells = cells_where(results, regression="zero", n_keys=400.0)
    _, second = bars(panels(variance)[0])
    x, y = second.lines[0].get_data()
    np.testing.assert_array_equal(x, cells.angle.values)
    np.testing.assert_array_equal(y, cells.ensemble_variance.sel(source="empirical").values)
    np.testing.assert_allclose(half_lengths(second), COVERAGE * cells.ensemble_variance_mcse.values, rtol=1e-12)


def test_curve__leaves_a_gap_where_theory_does_not_apply(variance):
    axes = panels(variance)[0]
    with_gap, whole = lines(axes, "leading")
    np.testing.assert_array_equal(np.isnan(with_gap.get_ydata()), np.arange(0.0, 91.0, 15.0) == 45.0)
    assert np.isfinite(whole.get_ydata()).all()
    assert with_gap.get_color() == bars(axes)[0].lines[0].get_color()


def test_curve__draws_exact_theory_broad_and_pale_beside_leading_order(variance, results):
    axes = panels(variance)[0]
    (exact,), (_, leading) = lines(axes, "exact"), lines(axes, "leading")
    cells = cells_where(results, regression="zero", n_keys=400.0)
    np.testing.assert_array_equal(exact.get_ydata(), cells.ensemble_variance.sel(source="exact").values)
    assert not np.array_equal(exact.get_ydata(), leading.get_ydata())
    assert exact.get_color() == leading.get_color()
    assert exact.get_linewidth() > 3 * leading.get_linewidth() and exact.get_alpha() < 0.5
    assert "broad pale line: exact theory at any n" in reading(variance)


def test_curve__does_not_join_points_that_exact_theory_joins(results):
    cells = cells_where(results, regression="zero", n_keys=400.0).copy(deep=True)
    cells.correlation.loc[{"source": "leading"}] = np.nan
    drawing = draw(curve(), "f", cells)
    axes = panels(drawing)[0]
    assert len(lines(axes, "exact")) == 1 and not lines(axes, "leading") and not lines(axes, "joined")
    assert legend_texts(drawing)[-1][0] == "points: Monte Carlo ± 1.96 MCSE"
    cells.correlation.loc[{"source": "exact"}] = np.nan
    (joined,) = lines(panels(draw(curve(), "f", cells))[0], "joined")  # the control
    assert joined.get_color() == lines(axes, "exact")[0].get_color()


def test_curve__marks_a_theoretical_value_without_neighbours(results):
    only = cells_where(results, regression="zero", n_keys=100.0).isel(cell=slice(5))
    only.correlation.loc[{"source": "leading"}] = [np.nan, 0.7, np.nan, 0.5, 0.4]
    axes = panels(draw(curve(), "f", only))[0]
    (line,) = lines(axes, "leading")
    assert line.get_markevery() == [1]


def test_curve__sorts_cells_by_x(results):
    backwards = cells_where(results, regression="zero", n_keys=400.0).isel(cell=slice(None, None, -1))
    (line,) = lines(panels(draw(curve(), "f", backwards))[0], "leading")
    np.testing.assert_array_equal(line.get_xdata(), np.arange(0.0, 91.0, 15.0))


def test_curve__joins_each_stratum_of_a_factor_that_is_not_shown(design, results):
    drawing = draw(design.figures["unshown"], "f", results)
    axes = panels(drawing)[0]
    assert len(bars(axes)) == len(lines(axes, "leading")) == 4
    for line in lines(axes, "leading"):
        assert (np.diff(line.get_xdata()) > 0).all()
    assert any("not told apart" in text and "training pairs n" in text for text in legend_texts(drawing)[-1])


def test_legend__has_an_entry_for_each_hue_level_and_says_what_is_drawn(design, results):
    hues, reading = legend_texts(draw(design.figures["saturation"], "f", results))
    assert hues == ["0.4", "0.8", "attention"]
    assert reading[0] == "points: Monte Carlo ± 1.96 MCSE, line: leading order"
    assert "dotted: joins points without theory" in reading


@pytest.mark.parametrize("made, count", [(curve, 2), (partial(stated, "diversity", index="vendi"), 2)])
def test_log_scale__drops_what_is_not_positive_and_says_so(results, made, count):
    cells = cells_where(results, n_keys=400.0, regression="zero").copy(deep=True)
    cells.mse.loc[{"source": "empirical"}] = [-0.1, 0.0, 0.1, 0.2, 0.3, np.nan, 0.4]
    drawing = draw(made(grid="angles", y="mse", y_scale="log"), "f", cells)
    drawing.draw_without_rendering()
    assert len(points(panels(drawing)[0])) == 4
    assert f"{count} points ≤ 0 left out of a log axis" in legend_texts(drawing)[-1]


def test_log_ticks__are_plain_numbers(results):
    figure = curve(y="mse", x="n_keys", hue="angle", panel="regression", x_scale="log", y_scale="log")
    drawing = draw(figure, "f", results)
    drawing.draw_without_rendering()
    axes = panels(drawing)[0]
    assert [tick.get_text() for tick in strips(drawing)[0].get_xticklabels()] == ["100", "400"]
    assert isinstance(axes.yaxis.get_major_formatter(), PlainLog)
    shown = [t.get_text() for t in axes.get_yticklabels(which="both") if t.get_text()]
    assert shown
    assert all(float(text) > 0 and "^" not in text for text in shown)


def test_diversity__has_a_panel_for_each_level_and_bars_along_x_where_an_index_is_uncertain(design, results):
    figure = design.figures["which-index"]
    cells = cells_where(results, regression="zero", n_keys=100.0)
    for index in ("vendi", "output"):
        shown = panels(draw(figure.model_copy(update={"index": index}), "f", results))
        assert len(shown) == 2 and {axes.get_xlabel() for axes in shown} == {index}
        first = bars(shown[0])[0]
        np.testing.assert_array_equal(first.lines[0].get_xdata(), cells.hdi.sel(index=index).values)
        np.testing.assert_array_equal(first.lines[0].get_ydata(), cells.mse.sel(source="empirical").values)
        assert first.has_xerr == (index == "output")
    np.testing.assert_allclose(half_lengths(first, axis=0), COVERAGE * 0.01, rtol=1e-12)


def test_single_head__has_no_correlation_to_draw(results):
    drawing = draw(curve(grid="many-heads", x="n_heads", hue="bandwidth"), "f", results)
    assert 1.0 not in points(panels(drawing)[0])[:, 0]
    assert len(points(panels(drawing)[0])) == 12
    empty = draw(curve(grid="single", x="n_keys"), "f", results)
    assert len(points(panels(empty)[0])) == 0


def test_drawing__leaves_matplotlib_as_it_was(design, results):
    before = dict(mpl.rcParams)
    image(draw(design.figures["unshown"], "f", results), "svg")
    assert dict(mpl.rcParams) == before


@pytest.mark.parametrize("name", ["variance-by-angle", "saturation", "which-index"])
def test_layout__leaves_room_for_all_that_is_said(design, results, name):
    drawing = draw(design.figures[name], name, results)
    image(drawing)
    renderer = FigureCanvasAgg(drawing).get_renderer()
    said = [each.get_tightbbox(renderer, for_layout_only=True) for each in drawing.axes if each.get_visible()]
    said += [each.get_window_extent(renderer) for each in drawing.legends]
    for number, box in enumerate(said):
        assert all(drawing.bbox.contains(*corner) for corner in box.corners())
        assert not any(box.overlaps(other) for other in said[:number])


def test_letters__are_at_least_nine_points(design, results):
    for name, figure in design.figures.items():
        drawing = draw(figure, name, results)
        texts = [text for text in drawing.findobj(mpl.text.Text) if text.get_text() and text.get_visible()]
        assert min(text.get_fontsize() for text in texts) >= 9
