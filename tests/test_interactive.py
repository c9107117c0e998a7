"""What Python users call: every form of a design, and results that show what they found."""

import subprocess
import sys
import tomllib

import pandas as pd
import pytest
import xarray as xr
from builders import DESIGN, write_design

import simstudy
from simstudy.errors import UserError
from simstudy.report import terminal


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Results of a dict, as TOML parses a file, and the folder of outputs."""
    output = tmp_path_factory.mktemp("interactive")
    return simstudy.run(tomllib.loads(DESIGN), output=output, executor="serial"), output


def test_dict_path_study_and_design__give_the_same_numbers(found, tmp_path):
    results, output = found
    path = write_design(tmp_path)
    for design in (path, str(path), simstudy.Study.of(path), simstudy.check(path)["quick"]):
        again = simstudy.run(design, output=output, executor="serial")
        xr.testing.assert_equal(again, results)
    stored = simstudy.open_results(output / "tiny" / "quick")
    assert stored.attrs["design"] == DESIGN
    assert simstudy.plan(path, output=tmp_path).grids[0].cells == 6


def test_results__show_verdicts_cells_and_figures(found):
    results, _ = found
    assert type(results) is xr.Dataset
    failed = results.assign(n_failed=results.n_failed + 200)
    assert f"{results.n_replicates.sum():,} replicates, 1,200 failed, by " in repr(failed.simstudy)
    shown = repr(results.simstudy)
    assert shown.startswith("A tiny study (quick)\n6 cells, ") and "mse-falls" in shown and "inconclusive" in shown
    assert results.simstudy.verdicts.verdict["mse-falls"] == results.verdict.item()
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
        simstudy.run(design, output=output, executor="serial")
    assert "6/6 cells" in capsys.readouterr().out
