"""What confirmations are said to have found, and the comparison that stands for a claim in all runs."""

import math

import pytest
from builders_results import build_design, build_results

from simstudy.execution.store import store_of
from simstudy.report.confirmed import Confirmed, claims_of, found_of, history_of, standing_in, standing_of, verdict_of
from simstudy.report.pictures import Found
from simstudy.report.tables import verdict_lines

BEACON = "block 0000000000000000000abcdef"


def test_confirmations_that_differ__are_divided_and_none_is_picked():
    def found(verdict: str, void: str = "") -> Confirmed:
        judged = {"claim": Found(verdict, 1.0, 0.1, (0.8, 1.2))} if verdict else {}
        return Confirmed(BEACON, "0f", "2026-11-22", void, judged)

    yes, no, open_ = found("supported"), found("contradicted"), found("", "not finished")
    assert verdict_of("claim", [open_]) == verdict_of("claim", []) == "not confirmed"
    assert verdict_of("claim", [yes, open_, yes]) == "supported"
    assert verdict_of("claim", [yes, no]) == verdict_of("claim", [no, yes, yes]) == "divided"
    assert history_of("claim", [yes, open_]) == "0f: supported; 0f: not finished"


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
