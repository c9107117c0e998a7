"""One comparison stands for a claim in all its runs: which, and what is shown of a run without it."""

from __future__ import annotations

import math

import pytest
from builders_results import build_design, build_results

from simstudy.execution.store import store_of
from simstudy.report.confirmed import claims_of, found_of, standing_in, standing_of
from simstudy.report.tables import verdict_lines


@pytest.fixture
def results(tmp_path):
    """A run in which the first claim has two comparisons, and is decided by the first."""
    found = build_results(build_design(tmp_path))
    found["comparison_claim"] = "comparison", ["falls", "falls", "agrees"]
    found["comparison_statistic"] = "comparison", ["first", "second", str(found.statistic.values[1])]
    found["statistic"] = "claim", ["first", *found.statistic.values.tolist()[1:]]
    return found


def test_what_decides_the_pilot__is_shown_of_a_run_that_another_decides(results):
    other = results.copy()
    other["statistic"] = "claim", ["second", *results.statistic.values.tolist()[1:]]
    line = verdict_lines(other, standing=standing_of(results))[0]
    assert (line.statistic, line.decided_by, line.estimate) == ("first", "second", "0.500 ± 0.012")
    assert verdict_lines(results)[0].decided_by == ""


def test_what_theory_names__stands_before_what_decides(results):
    results["standing_statistic"] = "claim", ["second", "", ""]
    line = verdict_lines(results)[0]
    assert (line.statistic, line.decided_by, line.estimate) == ("second", "first", "0.600 ± 0.012")


def test_pilot_of_another_text_of_the_design__does_not_say_what_stands(results, tmp_path):
    design = build_design(tmp_path)
    store = store_of(design, tmp_path)
    store.write_dataset("results.nc", results)
    assert standing_in(design, store)["falls"] == "first"
    assert standing_in(design.model_copy(update={"text": f"{design.text}# Changed"}), store) is None


def test_runs_of_another_quantity__are_on_no_axis(results):
    found = found_of(results, {"falls": "elsewhere"})["falls"]
    assert math.isnan(found.estimate) and found.verdict == "supported"
    row = claims_of(results, {"falls": "elsewhere"})[0]
    assert row["statistic"] == "elsewhere" and math.isnan(row["claimed_lower"])
