"""Figures of optima and nested loops: what is drawn, read back, against the made-up results."""

import numpy as np
import pytest
import xarray as xr
from builders_results import DESIGN, build_design, build_results, cells_where
from drawn import bars, half_lengths, lines, panels, reading, stated
from matplotlib.patches import StepPatch

from simstudy.design.measures import INDICES, THEORIES
from simstudy.report.figures import draw, image
from simstudy.report.figures.curve import places
from simstudy.report.figures.factorial import positions
from simstudy.report.figures.shared import STRIP
from simstudy.report.labels import COVERAGE
from simstudy.report.page import figures_of

GRID = """
[grids.split]
settings = { n_heads = 2, n_keys = 100, arrangement = "haar" }
factors.regression = ["zero", { kind = "ridge", amplitude = 2.0 }]
factors.noise_sd = [0.5, 1.0, 2.0]
factors.bandwidth = [0.4, 0.8]
factors.head_dim = [1, 2, 4, 8]

[profiles.quick]
"""
BEST = stated("optimum", grid="split", x="noise_sd", over="head_dim", tune=["bandwidth"], panel="regression")
OPTIMUM = {0.5: 4.0, 1.0: 2.0, 2.0: 1.0}


@pytest.fixture(scope="module")
def design(tmp_path_factory):
    return build_design(tmp_path_factory.mktemp("design"), DESIGN.replace("[profiles.quick]\n", GRID))


@pytest.fixture(scope="module")
def results(design) -> xr.Dataset:
    """Errors least at OPTIMUM, where the second bandwidth is worse; theory has nothing for large noise."""
    made = build_results(design).copy(deep=True)
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
    return made.assign(optimum_share=(("figure", "cell"), np.where(inside, share, np.nan)[None])).assign_coords(
        figure=["best"]
    )


def test_bandwidths__are_numbers_on_both_axes(design, results):
    over = BEST.model_copy(update={"over": "bandwidth", "x": "head_dim", "tune": ("noise_sd",)})
    along = BEST.model_copy(update={"x": "bandwidth", "tune": ("noise_sd",)})
    results = results.assign(optimum_share=xr.full_like(results.optimum_share, 0.5))
    for figure, ticks in ((over, [0.4, 0.8]), (along, [1, 2, 4, 8])):
        assert draw(figure, "best", results).axes[0].get_yticks().tolist() == ticks
    stratum = cells_where(results, "split", regression="zero").sel(figure="best")
    assert [(place.x, place.optimum) for place in places(over, stratum)] == [(x, 0.4) for x in (1, 2, 4, 8)]
    assert [place.x for place in places(along, stratum)] == [0.4, 0.8]


def test_optimum_figure__draws_places_with_their_bars_and_theory(design, results):
    drawing = draw(BEST, "best", results)
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


def test_nested_loop__has_a_step_for_each_combination_in_the_order_of_the_grid(design, results):
    drawing = draw(stated("nested_loop", grid="split", hue="bandwidth", y_scale="log"), "f", results)
    axes, strip, stairs = drawing.axes
    assert strip.get_label() == STRIP and strip.get_xlim() == axes.get_xlim()
    empirical = [item for item in axes.patches if isinstance(item, StepPatch) and item.get_label() == "empirical"]
    assert len(empirical) == 2
    for step, bandwidth in zip(empirical, (0.4, 0.8), strict=True):
        cells = cells_where(results, "split", bandwidth=bandwidth)
        np.testing.assert_array_equal(step.get_data().values, cells.mse.sel(source="empirical").values)
    flights = [item.get_data().values for item in stairs.patches]
    assert [len(np.unique(flight)) for flight in flights] == [2, 3, 4]
    # The last factor runs fastest, and the flights stand one above the other.
    assert [int((np.diff(flight) != 0).sum()) for flight in flights] == [1, 5, 23]
    assert flights[0].min() > flights[1].max() > flights[1].min() > flights[2].max()
    assert [text.get_text() for text in stairs.texts][1] == "noise standard deviation σ [Y]: 0.5, 1, 2"


def test_nested_loop__leaves_a_gap_where_a_cell_is_missing(design, results):
    whole = cells_where(results, "split", bandwidth=0.4)
    loops = {name: list(dict.fromkeys(whole[name].values.tolist())) for name in ("regression", "noise_sd", "head_dim")}
    np.testing.assert_array_equal(positions(whole, loops), np.arange(24))
    part = results.isel(
        cell=np.flatnonzero(~((results.grid == "split") & (results.noise_sd == 1) & (results.head_dim == 4)))
    )
    step = draw(stated("nested_loop", grid="split", hue="bandwidth"), "f", part).axes[0].patches[0].get_data().values
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(step)), [6, 18])


def test_ordering__draws_the_share_of_each_index_in_each_panel_and_colour(results):
    figure = stated("ordering", grid="split", hue="bandwidth", panel="regression")
    code = np.arange(results.sizes["cell"])[:, None] / 100 + np.arange(len(INDICES)) / 1000
    made = results.assign(
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


def test_lollipop__has_a_stick_from_the_target_to_each_estimate_in_its_row(results):
    figure = stated("lollipop", grid="split", hue="bandwidth", panel="regression", target=0.25)
    exact = np.where(results.noise_sd == 1.0, results.mse.sel(source="empirical") + 0.2, np.nan)
    results.mse.loc[{"source": "exact"}] = exact
    shown = draw(figure, "f", results).axes
    for axes, regression in zip(shown, dict.fromkeys(cells_where(results, "split").regression.values), strict=True):
        sticks = [item for item in axes.collections if item.get_label() == "stick"]
        drawn = zip(sticks, bars(axes), lines(axes, "theory"), (0.4, 0.8), strict=True)
        for stick, bar, told, bandwidth in drawn:
            cells = cells_where(results, "split", regression=regression, bandwidth=bandwidth)
            estimates, leading, exact = (cells.mse.sel(source=name).values for name in ("empirical", *THEORIES[::-1]))
            ends = np.array(stick.get_segments())[:, :, 0]
            np.testing.assert_allclose(np.sort(ends, axis=1).T, np.sort([np.full(12, 0.25), estimates], axis=0))
            x, y = bar.lines[0].get_data()
            np.testing.assert_allclose(x, estimates)
            np.testing.assert_array_equal(np.round(y), np.arange(12))
            np.testing.assert_array_equal(told.get_xdata(), np.where(cells.noise_sd == 1.0, exact, leading))
    texts = [tick.get_text() for tick in shown[0].get_yticklabels()]
    assert texts[:2] == ["0.5, 1", "0.5, 2"] and shown[0].get_ylim() == (11.5, -0.5)


def test_lollipop__of_many_cells_has_panels_of_its_own(results):
    """In one column 72 sticks were 2 484 pixels tall; rows whose names were cut looked alike, scales differed."""
    long = results.assign_coords(
        regression=("cell", [f"{name}, a function of the keys" for name in results.regression.values])
    )
    drawing = draw(stated("lollipop", grid="split"), "f", long)
    rows = [each.get_text() for each in panels(drawing)[0].get_yticklabels()]
    assert len(set(rows)) == 12 and len({axes.get_xlim() for axes in panels(drawing)}) == 1
    titles = [axes.get_title("left") for axes in panels(drawing)]
    assert titles == ["p = 1", "p = 2", "p = 4", "p = 8"] and drawing.get_size_inches()[1] < 6
    assert len(panels(drawing)[0].get_yticks()) == 12


@pytest.mark.parametrize(
    ("factors", "kind", "shown"),
    [
        (None, "curve", {"x": "angle", "hue": "regression", "panel": "n_keys"}),  # the claim names x
        ({"head_dim": 4, "noise_sd": 3}, "curve", {"x": "head_dim", "hue": "noise_sd", "panel": None}),
        ({"noise_sd": 3, "bandwidth": 2, "regression": 2, "head_dim": 4}, "nested_loop", {"hue": "noise_sd"}),
        ({}, "lollipop", {"hue": None}),
    ],
)
def test_study_without_figures__gets_a_sensible_one(design, results, factors, kind, shown):
    """Of its first claim; without claims of what its precision speaks of, over the factors that vary."""
    without = design.model_copy(update={"figures": {}})
    if factors is not None:
        names = {name: results[name].values.tolist() for name in ("regression", "noise_sd", "bandwidth", "head_dim")}
        fixed = [name for name in names if name not in factors]
        cells = [i for i, grid in enumerate(results.grid.values) if grid == "split"]
        cells = [i for i in cells if all(names[name][i] == names[name][cells[0]] for name in fixed)]
        results = results.isel(cell=cells).assign_attrs(factors=f"split: {', '.join(factors)}")
        planned = tuple(design.cells[i] for i in cells)
        without = without.model_copy(update={"claims": {}, "factors": {"split": tuple(factors)}, "cells": planned})
    (figure,) = figures_of(without, results).values()
    assert figure.kind == kind and figure.y == "ensemble_variance"
    assert {name: getattr(figure, name) for name in shown} == shown
    assert image(draw(figure, "overview", results)).startswith(b"\x89PNG")
