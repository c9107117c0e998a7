"""What Python users call: designs in every form, results that show themselves, plots, the source of their functions."""

import importlib
import linecache
import re
import runpy
import subprocess
import sys
import tomllib
import warnings

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from builders import DESIGN, edited, write_design
from builders_results import DESIGN as MADE_UP
from builders_results import build_design, build_results
from matplotlib.axes import Axes

import simstudy
from simstudy import plots
from simstudy.errors import PrecisionWarning, UserError
from simstudy.report import terminal
from simstudy.report.figures import draw, image
from simstudy.results import cells_of
from simstudy.shown import z_scores
from simstudy.simulation import source_text


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Results of a dict, as TOML parses a file, and the folder of outputs."""
    output = tmp_path_factory.mktemp("interactive")
    return simstudy.run(tomllib.loads(DESIGN), output=output, executor="serial"), output


WANTED = "relative_mcse = { mse = 0.05 }"


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ("relative_mcse = { mse = 0.001 }", r"6 cells short of the target, furthest .*: MCSE of mse \S+, target \S+, "
         "ceiling of 128 replicates; raise max_replicates to go on"),
        ('stop = "verdict"', "undecided, not as expected: mse-falls: cells of angles stopped at max_replicates = 128"),
        ("relative_mcse = { mse = 0.9 }", ""),
    ],
)  # fmt: skip
def test_run_that_ends_short__warns_of_cells_what_they_reached_and_how_to_go_on(wanted, told, tmp_path):
    """In Python nothing said so."""
    text = edited(edited(DESIGN, WANTED, wanted), 'expected = "undecided"', "")
    text = edited(text, "max_replicates = 512", "max_replicates = 128")
    text = text if "verdict" in wanted else text.partition("[claims")[0] + "[profiles.quick]\n"
    with warnings.catch_warnings(record=True, action="always", category=PrecisionWarning) as found:
        simstudy.run(write_design(tmp_path, text), output=tmp_path, executor="serial")
    message = "".join(str(each.message) for each in found)
    assert len(found) == bool(told) and re.search(told, message), message
    assert {each.filename for each in found} <= {__file__}  # of the line that called


def test_dict_path_study_and_design__give_the_same_numbers(found, tmp_path):
    results, output = found
    path = write_design(tmp_path)
    for design in (path, str(path), simstudy.Study.of(path), simstudy.check(path)["quick"]):
        again = simstudy.run(design, output=output, executor="serial")
        xr.testing.assert_equal(cells_of(again), cells_of(results))
    stored = simstudy.open_results(output / "tiny" / "quick")
    assert stored.attrs["design"] == DESIGN
    assert simstudy.plan(path, output=tmp_path).grids[0].cells == 6


def test_results__show_verdicts_cells_and_figures(found):
    results, _ = found
    assert results["angles"].mse.sizes == {"angle": 3, "bandwidth": 2}
    assert f"{results['angles'].n_replicates.sum():,} replicates, 0 failed, by " in repr(results.simstudy)
    shown = repr(results.simstudy)
    assert shown.startswith("A tiny study (quick)\n6 cells, ") and "mse-falls" in shown and "undecided" in shown
    assert results.simstudy.verdicts.verdict["mse-falls"] == results["verdicts"].verdict.item()
    assert isinstance(results.simstudy.cells, pd.DataFrame) and len(results.simstudy.cells) == 6
    assert results.simstudy.figures == ("mse",)
    plot = results.simstudy.plot("mse")
    assert plot._repr_png_().startswith(b"\x89PNG") and plot.drawing.axes
    assert results.simstudy._repr_html_().startswith("<p>A tiny study (quick)<br>6 cells, ")
    with pytest.raises(UserError, match="figure = 'mze': not declared by the design; did you mean \"mse\""):
        results.simstudy.plot("mze")


def test_plots_and_theory__are_there_without_an_import_of_their_own():
    subprocess.run([sys.executable, "-c", "import simstudy; simstudy.plots.nested_loop, simstudy.theory"], check=True)


def test_results_without_claims__are_shown_as_well(tmp_path):
    tables = tomllib.loads(DESIGN)
    del tables["claims"], tables["figures"]
    tables["grids"]["angles"]["factors"] = {"angle": [45]}
    results = simstudy.run(tables, output=tmp_path, executor="serial")
    assert repr(results.simstudy).count("\n") == 1 and "<table" not in results.simstudy._repr_html_()
    assert results.simstudy.verdicts.empty


def test_run__tells_how_far_it_is_only_where_somebody_watches(found, capsys, monkeypatch):
    design, output = tomllib.loads(DESIGN), found[1]
    capsys.readouterr()
    simstudy.run(design, output=output, executor="serial")
    assert capsys.readouterr() == ("", "")
    with monkeypatch.context() as patched:
        console = type(terminal._output)(force_terminal=True, width=120)
        patched.setattr(terminal, "_output", console)
        simstudy.run(design, output=output / "watched", executor="serial")
    assert "6/6 cells" in capsys.readouterr().out


@pytest.fixture(scope="module")
def design(tmp_path_factory):
    return build_design(tmp_path_factory.mktemp("design"), MADE_UP.replace("exact = true", "exact = false"))


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
        ({"y": "mse", "x": "angle", "grid": "angles", "x_scale": "lgo"}, "x_scale = 'lgo': "),
        ({"y": "mse", "x": "angel", "grid": "angles"}, 'no factor of grid .angles.; did you mean "angle"'),
        ({"y": "mse", "x": "angle", "grid": "angles", "hue": "bandwidth"}, "no factor of grid .angles.; known"),
        ({"y": "mse", "x": "regression", "grid": "angles"}, "its levels are no numbers"),
    ],
)
def test_mistakes__are_told_in_one_line(results, arguments, message):
    with pytest.raises(UserError, match=message):
        plots.curve(results, **arguments)


HELPERS = {
    "module": ("import ours\ndef f(x):\n    return ours.g(x)", "ours, which f uses, is of ours, which is not inst"),
    "inner": ("def f(x):\n    import ours\n    return ours.g(x)", "f imports ours, which is not installed"),
    "class": ("class C: pass\ndef f(x):\n    return C()", "C, which f uses, is of theirs, which is not installed"),
    "name": ("from ours import h\ndef g(x):\n    return x\ndef f(x):\n    return g(x) + h(x)",
             "g, which h uses, is the name of another object too: rename one of them"),
    "builtin": ("from ours import k\ndef f(x):\n    return k(x) + sum(x)", "sum, which f uses, is the name of another"),
    "list": ("y = []\ndef f(x):\n    return y", "y, which f uses, is list: define it inside f"),
    "lambda": ("g = lambda x: x\ndef f(x):\n    return g(x)", "give a function that is defined by def"),
    "attribute": ("mean = []\ndef f(x):\n    return x.mean()", np.mean),
    "copied": ("from ours import h\ndef f(x):\n    return h(x)", lambda x: 2 * x),
    "mutual": ("def f(x):\n    return x if len(x) < 2 else g(x)\ndef g(x):\n    return f(x[1:])", lambda x: x[-1:]),
    "default": ("S = 3.0\ndef f(x, *, s=S):\n    return s * x", lambda x: 3 * x),
    "annotation": ("from typing import Any as Every\ndef f(x: Every) -> Every:\n    return x", lambda x: x),
    "decorator": ("def same(g):\n    return g\n@same\ndef f(x):\n    return x", lambda x: x),
    "constants": ("import numpy as np\nA, B, C = -float('inf'), np.float64(2.0), float('nan')\n"
                  "def f(x):\n    return np.array([A, B, C])", lambda x: [-np.inf, 2.0, np.nan]),
    "alias": ("def _g(x):\n    return x\ng = _g\ndef f(x):\n    return g(x)", lambda x: x),
    "installed": ("import os.path as p\nfrom numpy.linalg import norm as n\ndef f(x):\n    return p.sep and n(x)",
                  np.linalg.norm),
    "ours": ("from simstudy import head_diversity as h\ndef f(x):\n    return h(x[:, None]).sel(index='vendi')",
             lambda x: 1.0),
}  # fmt: skip
OURS = "def g(x):\n    return 2 * x\ndef h(x):\n    return g(x)\ndef sum(x):\n    return 0\ndef k(x):\n  return sum(x)"


@pytest.mark.parametrize("name", HELPERS)
def test_source__holds_all_that_functions_use_or_says_what_it_cannot_hold(name, tmp_path, monkeypatch):
    text, expected = HELPERS[name]
    for module, source in {"ours": OURS, "theirs": text}.items():
        (tmp_path / f"{module}.py").write_text(source)
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    linecache.checkcache()
    f = importlib.import_module("theirs").f
    if isinstance(expected, str):
        with pytest.raises(UserError, match=expected):
            source_text([f])
        return
    (tmp_path / "functions.py").write_text(source_text([f]))
    x = np.arange(4.0)
    assert np.array_equal(runpy.run_path(str(tmp_path / "functions.py"))["f"](x), expected(x), equal_nan=True)
