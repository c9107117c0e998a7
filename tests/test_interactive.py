"""What Python users call: designs in every form, results that show themselves, plots, the source of their functions."""

import importlib
import linecache
import re
import shutil
import sys
import tomllib
import warnings
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pytest
import xarray as xr
from builders import DESIGN, UNCLAIMED, refuses, varied, write_design

import simstudy
from simstudy import plots
from simstudy.design.settings.functions import BY_VALUE, Code
from simstudy.errors import PrecisionWarning
from simstudy.report import terminal
from simstudy.report.figures import draw, image
from simstudy.results import cells_of
from simstudy.simulation import stand_ins


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Results of a dict, as TOML parses a file, and the folder of outputs."""
    output = tmp_path_factory.mktemp("interactive")
    return simstudy.run(tomllib.loads(DESIGN), output=output, executor="serial"), output


VERDICT = {"stop": "verdict"}


@pytest.mark.parametrize("wanted, told", [
    ({"mse": 0.001}, r"6 cells short of the target, furthest .*: MCSE of mse \S+, target \S+, "
     "ceiling of 128 replicates; raise max_replicates to go on"),
    (VERDICT, "undecided, not as expected: mse-falls: cells of angles stopped at max_replicates = 128"),
    ({"mse": 0.9}, ""),
])  # fmt: skip
def test_run_that_ends_short__warns_of_cells_what_they_reached_and_how_to_go_on(wanted, told, tmp_path):
    waiting = {"relative_mcse": None, "expected": None} if wanted == VERDICT else {}
    text = varied(DESIGN if waiting else UNCLAIMED, max_replicates=128, **waiting | wanted)
    with warnings.catch_warnings(record=True, action="always", category=PrecisionWarning) as found:
        simstudy.run(write_design(tmp_path, text), output=tmp_path, executor="serial")
    message = "".join(str(each.message) for each in found)
    assert len(found) == bool(told) and re.search(told, message), message
    assert {each.filename for each in found} <= {__file__}  # of the line that called


def test_dict_path_study_and_design__give_the_same_numbers(found, tmp_path):
    (results, output), path = found, write_design(tmp_path)
    for design in (path, str(path), simstudy.Study.of(path), simstudy.check(path)["quick"]):
        xr.testing.assert_equal(cells_of(simstudy.run(design, output=output, executor="serial")), cells_of(results))
    assert simstudy.open_results(output / "tiny" / "quick").attrs["design"] == DESIGN
    for call in (simstudy.run, simstudy.plan):
        refuses("^output = 3: give the path of a folder$", call, path, output=3)
    longer = write_design(tmp_path, varied(min_replicates=512))
    assert simstudy.plan(longer, output=tmp_path).grids[0][1::3] == (6, 6 * (16 - 4))  # cells, and batches left


def test_results__show_verdicts_cells_and_figures(found):
    results, _ = found
    assert results["angles"].mse.sizes == {"angle": 3, "bandwidth": 2}
    assert f"{results['angles'].n_replicates.sum():,} replicates, 0 failed, by " in repr(results.simstudy)
    shown = repr(results.simstudy)
    assert shown.startswith("A tiny study (quick)\n6 cells, ") and "mse-falls" in shown and "undecided" in shown
    assert results.simstudy.verdicts.verdict["mse-falls"] == results["verdicts"].verdict.item()
    assert isinstance(results.simstudy.cells, pd.DataFrame) and len(results.simstudy.cells) == 6
    assert [*results.simstudy.figures] == ["mse"]
    plot = results.simstudy.plot("mse")
    assert plot._repr_png_().startswith(b"\x89PNG") and plot.drawing.axes
    assert results.simstudy._repr_html_().startswith("<p>A tiny study (quick)<br>6 cells, ")
    refuses("figure = 'mze': not declared by the design; did you mean \"mse\"", results.simstudy.plot, "mze")


def test_results_without_claims__are_shown_as_well(tmp_path):
    path = write_design(tmp_path, varied(UNCLAIMED, angle=[45], bandwidth=[0.8]))
    results = simstudy.run(path, output=tmp_path, executor="serial")
    assert repr(results.simstudy).count("\n") == 1 and "<table" not in results.simstudy._repr_html_()
    assert results.simstudy.verdicts.empty
    assert [*results.simstudy.figures] == ["overview"] and results.simstudy.plot().drawing.axes
    assert simstudy.open_results(results) is results


def test_run__tells_how_far_it_is_only_where_somebody_watches(found, capsys, monkeypatch):
    design, output = tomllib.loads(DESIGN), found[1]
    capsys.readouterr()
    simstudy.run(design, output=output, executor="serial")
    assert capsys.readouterr() == ("", "")
    with monkeypatch.context() as patched:
        patched.setattr(terminal, "_output", type(terminal._output)(force_terminal=True, width=120))
        simstudy.run(design, output=output / "watched", executor="serial")
    assert "6/6 cells" in capsys.readouterr().out


def test_plot__is_the_drawing_of_the_report_with_axes_for_each_panel(design, results):
    told = {"grid": "angles", "hue": "n_keys", "panel": "regression"}
    axes = plots.plot(results, "curve", "ensemble_variance", x="angle", y_scale="log", **told)
    assert axes.shape == (2,) and axes[0].get_title("left") == "regression function: zero"
    assert image(axes[0].figure) == image(draw(design.figures["variance-by-angle"], "variance-by-angle", results))
    axes = plots.plot(results, "nested_loop", "mse", **told)
    assert axes.shape == (2,) and {each.get_ylabel() for each in axes} == {"mean squared error [Y²]"}


@pytest.mark.parametrize("arguments, message", [
    ({"grid": None}, "grid: left out, but these results have several"),
    ({"grid": "angels"}, 'plots.curve: figure.grid = .angels.: unknown grid; did you mean "angles"'),
    ({"y": "mes"}, 'y = .mes.: not in these results; did you mean "mse"'),
    ({"y": "equivalent_heads"}, "not in these results"),  # but for blanks
    ({"x_scale": "lgo"}, "x_scale = 'lgo': "),
    ({"x": "angel"}, 'figure.x = .angel.: unknown factor; did you mean "angle"'),
    ({"hue": "bandwidth"}, "figure.hue = .bandwidth.: unknown factor; known"),
    ({"x": "regression"}, "is not a number everywhere"),
    ({"where": 3}, "plots.curve: where = 3: Input should be a valid dictionary"),
    ({"kind": "pie"}, "kind = 'pie': choose one of curve, nested_loop, lollipop"),
])  # fmt: skip
def test_mistakes__are_told_in_one_line(results, arguments, message):
    refuses(message, plots.plot, results, **{"kind": "curve", "y": "mse", "x": "angle", "grid": "angles"} | arguments)


OURS = "FACTOR = 2.0\ndef g(x):\n    return FACTOR * x"
PARTS = {
    "module": "import ours\ndef f(x):\n    return ours.g(x)",
    "name": "from ours import g\ndef f(x):\n    return g(x)",
    "below": "import ours\ndef f(x):\n    return [each for each in map(lambda y: ours.g(y), [x])][0]",
    "closure": "from ours import FACTOR\ndef outer(c):\n    return lambda x: c * x\nf = outer(FACTOR)",
    "object": "from ours import FACTOR\nclass C:\n    __call__ = lambda self, x: self.c * x\nf = C()\nf.c = FACTOR",
    "method": "from ours import g\nclass C:\n    __call__ = lambda self, x: g(x)\nf = C()",
    "constant": "from ours import FACTOR\nclass C:\n    __call__ = lambda self, x: FACTOR * x\nf = C()",
    "default": "from ours import FACTOR\ndef f(x, *, c=FACTOR):\n    return c * x",
    "array": "import functools, ours, numpy as np\nf = functools.partial(np.multiply.outer, np.array(ours.FACTOR))",
}


@pytest.mark.parametrize("part", PARTS)
def test_given_function__is_known_by_what_it_rests_on_and_needs_no_file_where_it_runs(part, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)

    def made(ours, theirs=PARTS[part]):
        for module, source in {"ours": ours, "theirs": theirs}.items():
            (tmp_path / f"{module}.py").write_text(source)
            monkeypatch.delitem(sys.modules, module, raising=False)
        importlib.invalidate_caches()
        linecache.clearcache()
        text = stand_ins({"f": importlib.import_module("theirs").f})
        for module in ("ours", "theirs"):
            sys.modules.pop(module, None)
            (tmp_path / f"{module}.py").unlink()
        return text, Code(text, "", True, tuple(BY_VALUE[text].items())).function("f")(3.0)

    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (text, found), (other, changed) = made(OURS), made(OURS.replace("2.0", "5.0"))
    assert (found, changed) == (6.0, 15.0) and made(OURS)[0] == text != other
    said = "f imports ours inside a function, and that is not installed: import it above"
    refuses(said, made, OURS, "def f(x):\n    import ours\n    return ours.g(x)")


@pytest.mark.parametrize("times", [1, pytest.param(20, marks=pytest.mark.rare)])
def test_threads_that_run_open_plot_and_close__are_not_in_each_others_way(times, found, tmp_path):
    for number in range(3):
        shutil.copytree(found[1] / "tiny", tmp_path / str(number) / "tiny")

    def repeated(thread):
        output = tmp_path / str(thread % 3)
        for seed in range(times):
            tables = tomllib.loads(DESIGN) | {"simulation": {"seed": seed, "batch_size": 32}}
            if thread < 3:
                simstudy.run(tables, output=output, executor="threads", workers=2)
            results = simstudy.open_results(output / "tiny" / "quick")
            axes = plots.plot(results, "curve", "mse", x="angle", grid="angles", hue="bandwidth")
            assert axes[0].figure.canvas.get_width_height()[0] and results.simstudy.plot("mse")._repr_png_()
            results.close()

    with ThreadPoolExecutor(5) as threads:
        list(threads.map(repeated, range(5)))
