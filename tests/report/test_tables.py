"""Tables and figures of a report as files."""

import sys

import matplotlib as mpl
import numpy as np
import pandas as pd

from simstudy.report.labels import OVERVIEW
from simstudy.report.page import figure_files
from simstudy.report.tables import count_verdicts, csv_of, verdict_lines, verdict_table
from simstudy.report.terminal import say


def test_csv__holds_no_formulas():
    frame = pd.DataFrame({"text": ["=1+1", "+a", "-b", "@c", "\tx", "\rx", "a=b", ""], "number": -0.35 * np.arange(8)})
    lines = csv_of(frame).replace("\r", "CR").splitlines()
    # Python quotes a text with a carriage return from 3.13 on.
    returned = '"\'CRx"' if sys.version_info >= (3, 13) else "'CRx"
    assert lines[1:] == [
        "'=1+1,-0.0", "'+a,-0.35", "'-b,-0.7", "'@c,-1.0499999999999998", "'\tx,-1.4", f"{returned},-1.75",
        "a=b,-2.0999999999999996", ",-2.4499999999999997",
    ]  # fmt: skip


def test_verdict_lines__round_to_the_error_compare_with_what_was_expected_and_are_printed_as_they_are(results, capsys):
    lines = verdict_lines(results)
    assert [line.verdict for line in lines] == ["supported", "contradicted", "undecided"]
    assert [line.as_expected for line in lines] == [True, True, False]
    assert lines[1].estimate == "0.600 ± 0.012"
    assert lines[1].claimed == "0.4 to 0.6" and lines[1].confidence == "0.560 to 0.650" and lines[1].level == "96.67 %"
    assert lines[2].p_against == "< 0.0001" and lines[2].why == "too few blocks" and lines[2].expected == "supported"
    assert count_verdicts([]) == "The design makes no claim."
    say(verdict_table(lines))
    printed = capsys.readouterr().out
    assert "96.67 % confidence intervals, valid at any number of looks" in printed
    assert "ensemble_variance at [n_keys = 100]" in printed
    for word in ("falls", "undecided", "0.500 ± 0.012", "claimed -0.1 to 0.1", "within 0.460 to 0.550"):
        assert word in printed


def test_figure_files__are_the_same_whatever_matplotlib_is_told(design, results):
    files = figure_files(results, few := design.model_copy(update={"figures": {}}))
    assert list(files) == [OVERVIEW] and all(each.startswith(b"\x89PNG") for each in files.values())
    with mpl.rc_context({"text.usetex": True, "axes.facecolor": "red", "savefig.dpi": 10}):
        assert figure_files(results, few) == files


def test_what_the_design_names__stands_before_what_decides(results):
    """Where the first claim has two comparisons, and is decided by the first."""
    found = results.copy()
    found["comparison_claim"] = "comparison", ["falls", "falls", "agrees"]
    found["comparison_statistic"] = "comparison", ["first", "second", str(found.statistic.values[1])]
    found["statistic"] = "claim", ["first", *found.statistic.values.tolist()[1:]]
    named = found.assign(standing_statistic=("claim", ["second", "", ""]))
    for given, expected in ((found, ("first", "", "0.500 ± 0.012")), (named, ("second", "first", "0.600 ± 0.012"))):
        line = verdict_lines(given)[0]
        assert (line.statistic, line.decided_by, line.estimate) == expected
