"""What a study answers."""

import pytest
from builders_results import build_design, build_results

from simstudy.report.tables import count_verdicts, sentence, verdict_lines


@pytest.fixture(scope="module")
def lines(results):
    return verdict_lines(results)


def test_counts__say_whether_verdicts_are_as_expected(lines):
    holds, fails, opens = lines
    assert count_verdicts([]) == "The design makes no claim."
    assert count_verdicts([holds]) == "1 claim: 1 supported, 0 contradicted, 0 undecided; as expected"
    assert count_verdicts([holds, fails]) == "2 claims: 1 supported, 1 contradicted, 0 undecided; all as expected"
    assert count_verdicts(lines).endswith("1 undecided; 1 not as expected") and opens.expected == "supported"


def test_answer__is_a_sentence_with_its_number(lines):
    assert sentence(lines[1:]) == (
        "Monte Carlo agrees with leading order: contradicted, as expected (0.600 ± 0.012, claimed 0.4 to 0.6)."
    )


@pytest.fixture
def twofold(tmp_path):
    """A run in which the first claim has two comparisons, and is decided by the first."""
    found = build_results(build_design(tmp_path))
    found["comparison_claim"] = "comparison", ["falls", "falls", "agrees"]
    found["comparison_statistic"] = "comparison", ["first", "second", str(found.statistic.values[1])]
    found["statistic"] = "claim", ["first", *found.statistic.values.tolist()[1:]]
    return found


def test_what_the_design_names__stands_before_what_decides(twofold):
    line = verdict_lines(twofold)[0]
    assert (line.statistic, line.decided_by, line.estimate) == ("first", "", "0.500 ± 0.012")
    twofold["standing_statistic"] = "claim", ["second", "", ""]
    line = verdict_lines(twofold)[0]
    assert (line.statistic, line.decided_by, line.estimate) == ("second", "first", "0.600 ± 0.012")
