"""Figures: every point, bar, line and label that the design asks for, read back from what is drawn."""

import io
from functools import partial
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr
from builders_results import ANGLES, build_results, cells_where, stated, with_grid
from matplotlib.container import ErrorbarContainer
from matplotlib.patches import StepPatch

from simstudy.design.document import Precision
from simstudy.design.load import load_design
from simstudy.design.measures import INDICES, THEORIES
from simstudy.report.figures import chosen, draw, image
from simstudy.report.figures.curve import places
from simstudy.report.figures.factorial import positions
from simstudy.report.figures.shared import STRIP, PlainLog
from simstudy.report.labels import COVERAGE
from simstudy.report.page import figures_of, margin_of

curve = partial(stated, grid="angles", y="correlation", x="angle")
SATURATION = curve(grid="many-heads", y="ensemble_variance", x="n_heads", hue="bandwidth", x_scale="log")
DIVERSITY = stated("diversity", index="vendi", grid="angles", hue="n_keys", panel="regression")
BY_ANGLE = curve(y="ensemble_variance", hue="n_keys", panel="regression", y_scale="log")
single = partial(curve, where={"regression": "zero", "n_keys": 400})
BEST = stated("optimum", grid="split", x="noise_sd", over="head_dim", tune=["bandwidth"], panel="regression")
OPTIMUM = {0.5: 4.0, 1.0: 2.0, 2.0: 1.0}


def panels(drawing, of_strips=False):
    return [axes for axes in drawing.axes if axes.get_visible() and (axes.get_label() == STRIP) == of_strips]


strips = partial(panels, of_strips=True)


def bars(axes):
    return [container for container in axes.containers if isinstance(container, ErrorbarContainer)]


def half_lengths(bar, axis=1):
    """Of the bars of one colour, along y or x (axis 0)."""
    return np.ptp(np.array(bar.lines[2][0].get_segments())[:, :, axis], axis=1) / 2


def points(axes):
    return np.concatenate([np.column_stack(bar.lines[0].get_data()) for bar in bars(axes)])


def lines(axes, label):
    return [line for line in axes.lines if line.get_label() == label]


def legend_texts(drawing):
    return [[text.get_text() for text in legend.get_texts()] for legend in drawing.legends]


def reading(drawing):
    """All that the legends say, in one line."""
    return " ".join(" ".join(text for texts in legend_texts(drawing) for text in texts).split())


def test_curve__has_panels_all_points_with_bars_of_1_96_mcse_and_theory_with_a_gap_where_it_does_not_apply(results):
    drawing, cells = draw(BY_ANGLE, "f", results), cells_where(results, n_keys=400.0, regression="zero")
    axes, ridge = panels(drawing)
    assert axes.get_title("left") == "regression function: zero" and "ridge" in ridge.get_title("left")
    assert axes.get_ylim() == ridge.get_ylim() and axes.get_ylabel() == "ensemble variance [Y²]"
    assert [strip.get_xlabel() for strip in strips(drawing)] == ["angle [degrees]"] * 2
    assert [(len(bars(each)), len(points(each))) for each in (axes, ridge)] == [(2, 14)] * 2
    first, second = bars(axes)
    x, y = second.lines[0].get_data()
    np.testing.assert_array_equal(x, cells.angle.values)
    np.testing.assert_array_equal(y, cells.ensemble_variance.sel(source="empirical").values)
    np.testing.assert_allclose(half_lengths(second), COVERAGE * cells.ensemble_variance_mcse.values, rtol=1e-12)
    (exact,), (with_gap, leading) = lines(axes, "exact"), lines(axes, "leading")
    np.testing.assert_array_equal(np.isnan(with_gap.get_ydata()), np.arange(0.0, 91.0, 15.0) == 45.0)
    np.testing.assert_array_equal(leading.get_ydata(), cells.ensemble_variance.sel(source="leading").values)
    np.testing.assert_array_equal(exact.get_ydata(), cells.ensemble_variance.sel(source="exact").values)
    assert with_gap.get_color() == first.lines[0].get_color() != exact.get_color() == leading.get_color()
    assert exact.get_linewidth() > 3 * leading.get_linewidth() and exact.get_alpha() < 0.5
    assert "broad pale line: exact theory at any n" in reading(drawing)
    # The inside of marks hides lines and bars, and no mark of another colour at the same place.
    insides = [line.get_zorder() for line in axes.lines if line.get_color() == "white"]
    assert first.lines[2][0].get_zorder() < min(insides) <= max(insides) < first.lines[0].get_zorder()
    assert {bar.lines[0].get_markerfacecolor() for bar in (first, second)} == {"none"}


def test_curve__joins_no_points_that_exact_theory_joins_sorts_by_x_and_marks_theory_without_neighbours(results):
    cells = cells_where(results, regression="zero", n_keys=400.0).copy(deep=True)
    cells.correlation.loc[{"source": "leading"}] = np.nan
    drawing = draw(curve(), "f", cells)
    axes = panels(drawing)[0]
    assert len(lines(axes, "exact")) == 1 and not lines(axes, "leading") and not lines(axes, "joined")
    assert legend_texts(drawing)[-1][0] == "points: Monte Carlo ± 1.96 MCSE"
    cells.correlation.loc[{"source": "exact"}] = np.nan
    (joined,) = lines(panels(draw(curve(), "f", cells))[0], "joined")  # the control
    assert joined.get_color() == lines(axes, "exact")[0].get_color()
    only = cells_where(results, regression="zero", n_keys=100.0).isel(cell=[4, 3, 2, 1, 0])
    only.correlation.loc[{"source": "leading"}] = [0.4, 0.5, np.nan, 0.7, np.nan]
    (line,) = lines(panels(draw(curve(), "f", only))[0], "leading")
    assert line.get_markevery() == [1] and line.get_xdata().tolist() == [0, 15, 30, 45, 60]


def test_curve__joins_each_stratum_of_a_factor_that_is_not_shown_and_its_legend_says_what_is_drawn(results):
    drawing = draw(curve(hue="regression"), "f", results)
    axes = panels(drawing)[0]
    assert len(bars(axes)) == len(lines(axes, "leading")) == 4
    for line in lines(axes, "leading"):
        assert (np.diff(line.get_xdata()) > 0).all()
    assert any("not told apart" in text and "training pairs n" in text for text in legend_texts(drawing)[-1])
    hues, told = legend_texts(draw(SATURATION, "f", results))
    assert hues == ["0.4", "0.8", "attention"] and told[0] == "points: Monte Carlo ± 1.96 MCSE, line: leading order"
    assert "dotted: joins points without theory" in told
    # A single head has no correlation to draw.
    drawing = draw(curve(grid="many-heads", x="n_heads", hue="bandwidth"), "f", results)
    assert 1.0 not in points(panels(drawing)[0])[:, 0] and len(points(panels(drawing)[0])) == 12
    assert len(points(panels(draw(curve(grid="single", x="n_keys"), "f", results))[0])) == 0


def test_log_scale__has_plain_numbers_drops_what_is_not_positive_and_says_so(results):
    cells = cells_where(results, n_keys=400.0, regression="zero").copy(deep=True)
    cells.mse.loc[{"source": "empirical"}] = [-0.1, 0.0, 0.1, 0.2, 0.3, np.nan, 0.4]
    for made in (curve, partial(stated, "diversity", index="vendi")):
        drawing = draw(made(grid="angles", y="mse", y_scale="log"), "f", cells)
        drawing.draw_without_rendering()
        assert len(points(panels(drawing)[0])) == 4
        assert "2 points ≤ 0 left out of a log axis" in legend_texts(drawing)[-1]
    figure = curve(y="mse", x="n_keys", hue="angle", panel="regression", x_scale="log", y_scale="log")
    drawing = draw(figure, "f", results)
    drawing.draw_without_rendering()
    axes = panels(drawing)[0]
    assert [tick.get_text() for tick in strips(drawing)[0].get_xticklabels()] == ["100", "400"]
    assert isinstance(axes.yaxis.get_major_formatter(), PlainLog)
    shown = [t.get_text() for t in axes.get_yticklabels(which="both") if t.get_text()]
    assert shown and all(float(text) > 0 and "^" not in text for text in shown)


def test_diversity__has_a_panel_for_each_level_and_bars_along_x_where_an_index_is_uncertain(results):
    cells = cells_where(results, regression="zero", n_keys=100.0)
    for index in ("vendi", "output"):
        shown = panels(draw(DIVERSITY.model_copy(update={"index": index}), "f", results))
        assert len(shown) == 2 and {axes.get_xlabel() for axes in shown} == {index}
        first = bars(shown[0])[0]
        drawn = first.lines[0].get_data()
        np.testing.assert_array_equal(drawn, (cells.hdi.sel(index=index), cells.mse.sel(source="empirical")))
        assert first.has_xerr == (index == "output")
    np.testing.assert_allclose(half_lengths(first, axis=0), COVERAGE * 0.01, rtol=1e-12)


@pytest.mark.parametrize("figure", [BY_ANGLE, SATURATION, DIVERSITY], ids=["curve", "log axis", "diversity"])
def test_layout__leaves_room_for_all_that_is_said_in_letters_of_nine_points_and_matplotlib_as_it_was(results, figure):
    before = dict(mpl.rcParams)
    drawing = draw(figure, "f", results)
    off = 255 * mpl.image.imread(io.BytesIO(image(drawing))) - np.asarray(drawing.canvas.buffer_rgba())
    assert dict(mpl.rcParams) == before and np.abs(off).max() < 25  # The palette is of the colours that are drawn.
    texts = drawing.findobj(mpl.text.Text)
    assert min(text.get_fontsize() for text in texts if text.get_text() and text.get_visible()) >= 9
    renderer = drawing.canvas.get_renderer()
    said = [each.get_tightbbox(renderer, for_layout_only=True) for each in drawing.axes if each.get_visible()]
    said += [each.get_window_extent(renderer) for each in drawing.legends]
    for number, box in enumerate(said):
        assert all(drawing.bbox.contains(*corner) for corner in box.corners())
        assert not any(box.overlaps(other) for other in said[:number])


@pytest.fixture(scope="module")
def leading():
    return build_results(with_grid("angles", ANGLES | {"exact": False}))


def with_levels(leading: xr.Dataset, source: str, values: list[float]) -> xr.Dataset:
    cells = chosen(single(), leading).copy(deep=True)
    cells.correlation.loc[{"source": source}] = values
    return cells


def test_residuals__are_drawn_below_with_their_errors_if_there_is_any_theory(leading):
    without = draw(single(), "f", with_levels(leading, "leading", [np.nan] * 7))
    assert len(without.axes) == 1 and "no theory" not in reading(without)
    drawing = draw(single(), "f", leading)
    (axes,), (strip,) = panels(drawing), strips(drawing)
    (bar,) = strip.containers
    x, y = bar.lines[0].get_data()
    cells = chosen(single(), leading)
    leading = cells.correlation.sel(source="leading").values
    np.testing.assert_array_equal(x, cells.angle)
    np.testing.assert_allclose(y, cells.correlation.sel(source="empirical").values / leading - 1, atol=1e-12)
    np.testing.assert_allclose(half_lengths(bar), COVERAGE * cells.correlation_mcse / leading)
    assert strip.get_ylim()[0] == -strip.get_ylim()[1] and strip.get_xlim() == axes.get_xlim()
    assert [strip.yaxis.get_major_formatter()(value, 0) for value in (-0.01, 0.0, 0.025)] == ["−1 %", "0 %", "+2.5 %"]


def test_strip__shows_the_margin_of_a_claim_and_what_is_inside_looks_inside(leading):
    close = chosen(single(), leading).correlation.sel(source="leading").values * 1.0005
    cells = with_levels(leading, "empirical", close)
    cells["correlation_mcse"] = 1e-6 * cells.correlation_mcse
    ends = []
    for margin in (None, 0.002, 0.05):
        (strip,) = strips(draw(single(), "f", cells, margin))
        bands = [item for item in strip.patches if item.get_label() == "margin"]
        assert [item.get_height() for item in bands] == ([pytest.approx(2 * margin)] if margin else [])
        ends.append(strip.get_ylim()[1])
    assert ends[0] >= 0.01 and ends[1] > 0.002 and ends[2] > 0.05 and ends[1] < ends[0]
    study = load_design("principal-angles")  # its first claim, of another grid, answers what the first figure shows
    assert [margin_of(study, study.figures[name]) for name in ("correlation", "few-keys", "keys")] == [0.01, 0.03, None]


@pytest.mark.parametrize(("times", "told"), [(3, "195 %"), (300, "2.94e4 %")])
def test_residuals__far_beyond_the_others_are_arrows_at_the_edge(leading, times, told):
    values = chosen(single(), leading).correlation.sel(source="leading").values.copy()
    values[3] /= times
    drawing = draw(single(), "f", with_levels(leading, "leading", values))
    (strip,) = strips(drawing)
    (up,) = (each for each in strip.lines if each.get_marker() == "^" and len(each.get_xdata()))
    assert up.get_xdata() == [45.0] and up.get_ydata()[0] < strip.get_ylim()[1] < 1
    assert f"arrows: 1 point beyond the strip, the furthest by {told}" in reading(drawing)


def test_axis__begins_at_zero_where_that_costs_little_panels_say_what_they_do_and_crowded_levels_are_thinned(leading):
    near = with_levels(leading, "empirical", [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.35])
    near.correlation.loc[{"source": "leading"}] = near.correlation.sel(source="empirical")
    drawing = draw(single(), "f", near)
    assert drawing.axes[0].get_ylim()[0] == 0 and "begin at 0" not in reading(drawing)
    far = near.assign(correlation=near.correlation + 2)
    drawing = draw(single(), "f", far)
    assert drawing.axes[0].get_ylim()[0] > 1 and "y does not begin at 0" in reading(drawing)
    assert "begin at 0" not in reading(draw(single(y_scale="log"), "f", far))
    where = {"n_keys": 400}
    apart = draw(single(where=where, y="squared_bias", panel="regression"), "f", leading)
    assert "panels have y axes of their own" in reading(apart)
    zero, ridge = panels(apart)
    assert zero.get_ylim()[1] < ridge.get_ylim()[1] / 100
    apart.draw_without_rendering()
    assert any(label.get_visible() and label.get_text() for label in ridge.get_yticklabels())
    assert "axes of their own" not in reading(draw(single(where=where, panel="regression"), "f", leading))
    # On one axis no mark is cut off, also where the largest is that of the panel with the least range.
    high = near.assign_coords(regression=("cell", ["a"] * 4 + ["b"] * 3)).assign(correlation=1.0 - near.correlation)
    assert panels(draw(single(where={}, panel="regression"), "f", high))[0].get_ylim()[1] > 1.06 * 0.65
    cells = chosen(single(), leading).isel(cell=np.tile(np.arange(7), 2))
    levels = np.geomspace(1, 2, 7)
    cells = cells.assign_coords(spread=("cell", np.concatenate([levels, levels * 1.04]).round(3)))
    cells.attrs["factors"] = "angles: spread"
    ticks = draw(single(where={}, x="spread"), "f", cells).axes[0].get_xticks()
    assert 2 < len(ticks) < 14 and set(ticks) <= set(cells.spread.values.tolist())


@pytest.fixture(scope="module")
def split_design():
    factors = {"regression": ["zero", {"kind": "ridge", "amplitude": 2.0}], "noise_sd": [0.5, 1.0, 2.0]}
    factors |= {"bandwidth": [0.4, 0.8], "head_dim": [1, 2, 4, 8]}
    return with_grid("split", {"settings": {"n_heads": 2, "n_keys": 100, "arrangement": "haar"}, "factors": factors})


@pytest.fixture(scope="module")
def split(split_design) -> xr.Dataset:
    """Errors least at OPTIMUM, where the second bandwidth is worse; theory has nothing for large noise."""
    made = build_results(split_design).copy(deep=True)
    inside = made.grid.values == "split"
    optimum = np.array([OPTIMUM.get(value, 1.0) for value in made.noise_sd.values])
    mse = 1.0 + np.log(made.head_dim.values / optimum) ** 2 + (made.bandwidth.values == 0.8)
    for source, shift in (("empirical", 0.0), ("leading", 0.1)):
        made.mse.loc[{"source": source}] = np.where(inside, mse + shift, made.mse.sel(source=source))
    beyond = inside & (made.noise_sd.values == 2.0)
    made.mse.loc[{"source": "leading"}] = np.where(beyond, np.nan, made.mse.sel(source="leading"))
    made.mse.loc[{"source": "exact"}] = np.where(inside, np.nan, made.mse.sel(source="exact"))
    share = np.where(made.head_dim.values == optimum, 0.7, 0.0)
    share = np.where(made.head_dim.values == 2 * optimum, 0.295, share)
    share = np.where(made.head_dim.values == 4 * optimum, 0.005, share) * (made.bandwidth.values == 0.4)
    of_best = ("figure", "cell"), np.where(inside, share, np.nan)[None]
    return made.assign(optimum_share=of_best).assign_coords(figure=["best"])


def test_optimum_figure__draws_places_with_their_bars_and_theory_and_bandwidths_as_numbers_on_both_axes(split):
    drawing = draw(BEST, "best", split)
    axes, other = panels(drawing)
    assert axes.get_ylabel() == "best head dimension p" and not other.get_ylabel()
    (bar,) = bars(axes)
    np.testing.assert_allclose(bar.lines[0].get_ydata(), [4.0, 2.0, 1.0])
    segments = [segment[:, 1].tolist() for segment in bar.lines[2][0].get_segments()]
    np.testing.assert_allclose(segments, [[4, 8], [2, 4], [1, 2]])
    (line,) = lines(axes, "leading")
    np.testing.assert_allclose(line.get_ydata(), [4.0, 2.0, np.nan])
    assert all(text in reading(drawing) for text in ("best bandwidth b at each level", "1% or more of the draws"))
    assert axes.get_yticks().tolist() == [1, 2, 4, 8]
    assert all(axes.viewLim.contains(*point) for point in bar.lines[0].get_xydata())
    over = BEST.model_copy(update={"over": "bandwidth", "x": "head_dim", "tune": ("noise_sd",)})
    along = BEST.model_copy(update={"x": "bandwidth", "tune": ("noise_sd",)})
    split = split.assign(optimum_share=xr.full_like(split.optimum_share, 0.5))
    for figure, ticks in ((over, [0.4, 0.8]), (along, [1, 2, 4, 8])):
        assert draw(figure, "best", split).axes[0].get_yticks().tolist() == ticks
    stratum = cells_where(split, "split", regression="zero").sel(figure="best")
    assert [(place.x, place.optimum) for place in places(over, stratum)] == [(x, 0.4) for x in (1, 2, 4, 8)]
    assert [place.x for place in places(along, stratum)] == [0.4, 0.8]


def test_nested_loop__has_a_step_or_a_gap_for_each_combination_in_the_order_of_the_grid(split):
    axes, strip, stairs = draw(stated("nested_loop", grid="split", hue="bandwidth", y_scale="log"), "f", split).axes
    assert strip.get_label() == STRIP and strip.get_xlim() == axes.get_xlim()
    empirical = [item for item in axes.patches if isinstance(item, StepPatch) and item.get_label() == "empirical"]
    assert len(empirical) == 2
    for step, bandwidth in zip(empirical, (0.4, 0.8), strict=True):
        cells = cells_where(split, "split", bandwidth=bandwidth)
        np.testing.assert_array_equal(step.get_data().values, cells.mse.sel(source="empirical").values)
    # Where steps hide one another, the marks of each colour are seen.
    assert len({x for bar in bars(axes) for x in bar.lines[0].get_xdata()}) == 48
    flights = [item.get_data().values for item in stairs.patches]
    assert [len(np.unique(flight)) for flight in flights] == [2, 3, 4]
    # The last factor runs fastest, and the flights stand one above the other.
    assert [int((np.diff(flight) != 0).sum()) for flight in flights] == [1, 5, 23]
    assert flights[0].min() > flights[1].max() > flights[1].min() > flights[2].max()
    assert [text.get_text() for text in stairs.texts][1] == "noise standard deviation σ [Y]: 0.5, 1, 2"
    # Where a cell is missing there is a gap.
    whole = cells_where(split, "split", bandwidth=0.4)
    loops = {name: list(dict.fromkeys(whole[name].values.tolist())) for name in ("regression", "noise_sd", "head_dim")}
    np.testing.assert_array_equal(positions(whole, loops), np.arange(24))
    part = split.isel(cell=np.flatnonzero(~((split.grid == "split") & (split.noise_sd == 1) & (split.head_dim == 4))))
    step = draw(stated("nested_loop", grid="split", hue="bandwidth"), "f", part).axes[0].patches[0].get_data().values
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(step)), [6, 18])


@pytest.mark.parametrize("kind", ["nested_loop", "lollipop"])
def test_cells_with_few_of_all_combinations__stand_side_by_side_alone(leading, kind):
    cells, names = chosen(single(), leading), [f"factor_{k}" for k in range(30)]
    cells = cells.assign_coords({name: ("cell", np.arange(7.0)) for name in names})
    cells.attrs["factors"] = f"angles: {', '.join(names)}"
    axes = panels(draw(stated(kind, grid="angles", y="correlation"), "f", cells))[0]
    assert len(points(axes)) == 7 and max(map(len, (axes.get_xlabel(), axes.get_ylabel()))) <= 60
    # Nor are they a colour each, or a panel.
    for count, shown, own in ((1, "curve", []), (2, "lollipop", ["none", "correlation"]), (30, "lollipop", [])):
        none = SimpleNamespace(figures={}, claims={}, functions={"measures": own}, precision=Precision())
        cells.attrs["factors"] = f"angles: {', '.join(names[:count])}"
        (figure,) = figures_of(none, cells).values()
        assert (figure.kind, figure.hue, figure.y) == (shown, None, [*own[1:], "mse"][0])


def test_ordering__draws_the_share_of_each_index_in_each_panel_and_colour(split):
    figure = stated("ordering", grid="split", hue="bandwidth", panel="regression")
    code = np.arange(split.sizes["cell"])[:, None] / 100 + np.arange(len(INDICES)) / 1000
    made = split.assign(
        wrong_pair_share=(("figure", "cell", "index"), code[None]),
        wrong_pair_share_mcse=(("figure", "cell", "index"), np.full_like(code, 0.01)[None]),
    )
    shown = panels(draw(figure, "best", made))
    assert len(shown) == 2 and [tick.get_text() for tick in shown[0].get_yticklabels()] == list(INDICES)
    for axes, regression in zip(shown, dict.fromkeys(cells_where(made, "split").regression.values), strict=True):
        for bar, bandwidth in zip(bars(axes), (0.4, 0.8), strict=True):
            first = cells_where(made, "split", regression=regression, bandwidth=bandwidth).isel(cell=0)
            np.testing.assert_allclose(bar.lines[0].get_xdata(), first.wrong_pair_share.sel(figure="best"))
            np.testing.assert_allclose(np.round(bar.lines[0].get_ydata()), np.arange(len(INDICES)))
            np.testing.assert_allclose(half_lengths(bar, axis=0), COVERAGE * 0.01)


def test_lollipop__has_a_stick_from_the_target_to_each_estimate_in_its_row_and_panels_for_many_cells(split):
    figure = stated("lollipop", grid="split", hue="bandwidth", panel="regression", target=0.25)
    exact = np.where(split.noise_sd == 1.0, split.mse.sel(source="empirical") + 0.2, np.nan)
    split.mse.loc[{"source": "exact"}] = exact
    shown = draw(figure, "f", split).axes
    for axes, regression in zip(shown, dict.fromkeys(cells_where(split, "split").regression.values), strict=True):
        sticks = [item for item in axes.collections if item.get_label() == "stick"]
        for stick, bar, told, bandwidth in zip(sticks, bars(axes), lines(axes, "theory"), (0.4, 0.8), strict=True):
            cells = cells_where(split, "split", regression=regression, bandwidth=bandwidth)
            estimates, leading, exact = (cells.mse.sel(source=name).values for name in ("empirical", *THEORIES[::-1]))
            ends = np.array(stick.get_segments())[:, :, 0]
            np.testing.assert_allclose(np.sort(ends, axis=1).T, np.sort([np.full(12, 0.25), estimates], axis=0))
            x, y = bar.lines[0].get_data()
            np.testing.assert_allclose(x, estimates)
            np.testing.assert_array_equal(np.round(y), np.arange(12))
            np.testing.assert_array_equal(told.get_xdata(), np.where(cells.noise_sd == 1.0, exact, leading))
    texts = [tick.get_text() for tick in shown[0].get_yticklabels()]
    assert texts[:2] == ["0.5, 1", "0.5, 2"] and shown[0].get_ylim() == (11.5, -0.5)
    # In one column 72 sticks were 2 484 pixels tall; rows whose names were cut looked alike, scales differed.
    names = [f"{name}, a function of the keys" for name in split.regression.values]
    drawing = draw(stated("lollipop", grid="split"), "f", split.assign_coords(regression=("cell", names)))
    rows = [each.get_text() for each in panels(drawing)[0].get_yticklabels()]
    assert len(set(rows)) == 12 and len({axes.get_xlim() for axes in panels(drawing)}) == 1
    titles = [axes.get_title("left") for axes in panels(drawing)]
    assert titles == ["p = 1", "p = 2", "p = 4", "p = 8"] and drawing.get_size_inches()[1] < 6
    assert len(panels(drawing)[0].get_yticks()) == 12


@pytest.mark.parametrize("factors, kind, shown", [
    (None, "curve", {"x": "angle", "hue": "regression", "panel": "n_keys"}),  # the claim names x
    ({"head_dim": 4, "noise_sd": 3}, "curve", {"x": "head_dim", "hue": "noise_sd", "panel": None}),
    ({"noise_sd": 3, "bandwidth": 2, "regression": 2, "head_dim": 4}, "nested_loop", {"hue": "noise_sd"}),
    ({}, "lollipop", {"hue": None}),
])  # fmt: skip
def test_study_without_figures__gets_a_sensible_one(split_design, split, factors, kind, shown):
    without = split_design.model_copy(update={"figures": {}})
    if factors is not None:
        names = {name: split[name].values.tolist() for name in ("regression", "noise_sd", "bandwidth", "head_dim")}
        fixed = [name for name in names if name not in factors]
        cells = [i for i, grid in enumerate(split.grid.values) if grid == "split"]
        cells = [i for i in cells if all(names[name][i] == names[name][cells[0]] for name in fixed)]
        split = split.isel(cell=cells).assign_attrs(factors=f"split: {', '.join(factors)}")
        planned = tuple(split_design.cells[i] for i in cells)
        without = without.model_copy(update={"claims": {}, "factors": {"split": tuple(factors)}, "cells": planned})
    (figure,) = figures_of(without, split).values()
    assert figure.kind == kind and figure.y == "ensemble_variance"
    assert {name: getattr(figure, name) for name in shown} == shown
    assert image(draw(figure, "overview", split)).startswith(b"\x89PNG")
