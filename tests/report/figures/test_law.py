"""Figure of the law of variance for exchangeable members, against members that keep it and members that do not."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from matplotlib.container import ErrorbarContainer

from simstudy.design.figures import LawFigure
from simstudy.report.figures import draw

SIZES = (2.0, 8.0, 2.0, 8.0)


def results(growth: float) -> xr.Dataset:
    """Members of variance 2 and covariance 0.5, in two grids; in the second both change with the size by a factor."""
    factor = np.array([1.0, 1.0, 1.0, growth])
    size = np.array(SIZES)
    measures = {
        "mean_variance": 2.0 * factor,
        "mean_covariance": 0.5 * factor,
        "ensemble_variance": (0.5 + 1.5 / size) * factor,
    }
    data = {name: (("source", "cell"), values[None]) for name, values in measures.items()}
    data |= {f"{name}_mcse": ("cell", 0.01 * values) for name, values in measures.items()}
    coords = {"source": ["empirical"], "n_heads": ("cell", size), "grid": ("cell", ["heads", "heads", "ants", "ants"])}
    return xr.Dataset(data, coords, {"factors": "heads: n_heads; ants: n_heads"})


def test_law_figure__has_a_colour_for_each_grid_and_shows_a_negative_prediction():
    made = results(growth=3.0)
    made.mean_covariance[0, 2] = -1.0
    figure = LawFigure.model_validate(
        {"kind": "law", "title": "t", "grid": "heads", "beside": ["ants"], "y": "ensemble_variance"}
    )
    drawing = draw(figure, "f", made)
    axes, strip = drawing.axes
    heads, ants = (item for item in axes.containers if isinstance(item, ErrorbarContainer))
    assert heads.lines[0].get_xdata() == heads.lines[0].get_ydata()
    assert ants.lines[0].get_xdata()[0] == pytest.approx(-0.5 * 7 / 8 + 1 / 8) and axes.get_xlim()[0] < -0.3125
    # Heads follow the law; one below zero has no ratio.
    exact, unknown = (item for item in strip.containers if isinstance(item, ErrorbarContainer))
    assert exact.lines[0].get_ydata() == pytest.approx(0.0) and not len(unknown.lines[0].get_ydata())
    texts = [text.get_text() for legend in drawing.legends for text in legend.get_texts()]
    assert texts[:2] == ["heads", "ants"] and "(1−ρ)/M" in texts[3]


def test_strip__shows_by_how_much_the_law_is_missed():
    figure = LawFigure.model_validate({"kind": "law", "title": "t", "grid": "ants", "y": "ensemble_variance"})
    strip = draw(figure, "f", results(growth=1.2)).axes[1]
    (points,) = (item for item in strip.containers if isinstance(item, ErrorbarContainer))
    law, found = (0.5 * 7 / 8 + 2 / 8) / 2, (0.5 + 1.5 / 8) * 1.2 / 2
    assert points.lines[0].get_ydata()[0] == pytest.approx(found / law - 1) == pytest.approx(0.2)
