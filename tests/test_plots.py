"""Plots for analysts: the drawings of the report, of any factors, as axes; what cannot be drawn is said in one line."""

import numpy as np
import pytest
from builders_results import DESIGN, build_design, build_results
from matplotlib.axes import Axes

from simstudy import plots
from simstudy.errors import UserError
from simstudy.report.figures import draw, image
from simstudy.verdicts.figure_data import z_scores


@pytest.fixture(scope="module")
def design(tmp_path_factory):
    return build_design(tmp_path_factory.mktemp("design"), DESIGN.replace("exact = true", "exact = false"))


@pytest.fixture(scope="module")
def results(design):
    return build_results(design)


def lines(axes: Axes, label: str) -> list[np.ndarray]:
    return [np.asarray(line.get_ydata()) for line in axes.lines if line.get_label() == label]


def test_curve__is_the_drawing_of_the_report(design, results):
    axes = plots.curve(results, "ensemble_variance", "angle", grid="angles", hue="n_keys", panel="regression",
                       y_scale="log")  # fmt: skip
    assert axes.shape == (2,) and axes[0].get_title("left") == "regression function: zero"
    declared = draw(design.figures["variance-by-angle"], "variance-by-angle", results)
    assert image(axes[0].figure, "png") == image(declared, "png")


def test_nested_loop__has_axes_for_each_panel(results):
    axes = plots.nested_loop(results, "mse", grid="angles", hue="n_keys", panel="regression")
    assert axes.shape == (2,) and {each.get_ylabel() for each in axes} == {"mean squared error [Y²]"}


def test_verdicts__are_drawn_and_refused_where_there_are_none(results):
    words, drawn = plots.verdicts(results)
    assert len(words.texts) == len(drawn.patches) == 3
    with pytest.raises(UserError, match="hold no verdicts"):
        plots.verdicts(results.drop_dims(["claim", "comparison"]))


def test_z_scores__are_drawn_in_order_against_normal_quantiles(results):
    (axes,) = plots.z_scores(results, "mse")
    (line,) = (each for each in axes.lines if each.get_label() == "leading")
    expected = z_scores(results, "mse", "leading")
    np.testing.assert_allclose(line.get_ydata(), np.sort(expected[np.isfinite(expected)]))
    x = np.asarray(line.get_xdata())
    assert (np.diff(x) > 0).all() and x[0] == pytest.approx(-x[-1])
    assert len(plots.z_scores(results)) == 9
    with pytest.raises(UserError, match="nothing to compare with theory"):
        plots.z_scores(results, "n_keys")


def test_z_scores__leave_out_errors_of_rounding(results):
    exact = results.copy(deep=True)
    exact["mse_mcse"][:] = 1e-18
    with pytest.raises(UserError, match="nothing to compare"):
        plots.z_scores(exact, "mse")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"y": "mse", "x": "angle"}, "grid: left out, but these results have several"),
        ({"y": "mse", "x": "angle", "grid": "angels"}, 'grid = .angels.: not in these results; did you mean "angles"'),
        ({"y": "mes", "x": "angle", "grid": "angles"}, 'y = .mes.: not in these results; did you mean "mse"'),
        ({"y": "mse", "x": "angel", "grid": "angles"}, 'no factor of grid .angles.; did you mean "angle"'),
        ({"y": "mse", "x": "angle", "grid": "angles", "hue": "bandwidth"}, "no factor of grid .angles.; known"),
        ({"y": "mse", "x": "regression", "grid": "angles"}, "its levels are no numbers"),
    ],
)
def test_mistakes__are_told_in_one_line(results, arguments, message):
    with pytest.raises(UserError, match=message):
        plots.curve(results, **arguments)
