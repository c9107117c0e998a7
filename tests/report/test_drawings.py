"""Figures of a study as files."""

from __future__ import annotations

import matplotlib as mpl

from simstudy.report.drawings import figure_files
from simstudy.report.labels import ALL_CLAIMS, Z_SCORES
from simstudy.report.tables import verdict_lines


def test_figure_files__are_those_of_the_design_and_the_same_whatever_matplotlib_is_told(design, results):
    lines = verdict_lines(results, [])
    files = figure_files(results, design, lines)
    assert list(files) == [*design.figures, Z_SCORES, ALL_CLAIMS]
    for each in files.values():
        assert each["png"].startswith(b"\x89PNG")
        assert b"<svg" in each["svg"]
    few = design.model_copy(update={"figures": {}})
    with mpl.rc_context({"text.usetex": True, "axes.facecolor": "red", "savefig.dpi": 10, "svg.fonttype": "none"}):
        again = figure_files(results, few, lines)
    assert again == {name: files[name] for name in again}
