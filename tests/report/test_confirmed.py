"""What is said of a claim that was confirmed more than once."""

from __future__ import annotations

from simstudy.report.confirmed import Confirmed, history_of, verdict_of
from simstudy.report.pictures import Found

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
