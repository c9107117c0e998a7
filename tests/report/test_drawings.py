"""Figures of a study as files."""

import matplotlib as mpl

from simstudy.report.drawings import figure_files
from simstudy.report.labels import ALL_CLAIMS, Z_SCORES
from simstudy.report.tables import verdict_lines


def test_figure_files__are_those_of_the_design_and_the_same_whatever_matplotlib_is_told(design, results):
    files = figure_files(results, design)
    assert list(files) == [*design.figures, Z_SCORES]
    assert all(each.startswith(b"\x89PNG") for each in files.values())
    few = design.model_copy(update={"figures": {}})
    with mpl.rc_context({"text.usetex": True, "axes.facecolor": "red", "savefig.dpi": 10, "svg.fonttype": "path"}):
        assert figure_files(results, few) == {Z_SCORES: files[Z_SCORES]}
        again = figure_files(results, few, verdict_lines(results, []), "svg")
    assert list(again) == [Z_SCORES, ALL_CLAIMS]
    assert all(b"<svg" in each and b"<text" in each for each in again.values())
