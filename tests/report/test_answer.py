"""What a study answers, and the level of all studies of a page together."""

import pytest
from builders_results import DESIGN, build_design, build_results

from simstudy.design.claims import LEVEL
from simstudy.report.all_studies import campaign
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


def test_what_is_said__of_a_claim_declared_false_is_no_failure(lines):
    assert [line.said for line in lines] == [
        "supported, as expected",
        "contradicted, as expected",
        "undecided, not as expected",
    ]


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


SLOPE = """[claims.path]
kind = "optimum_slope"
statement = "s"
grid = "many-heads"
measure = "mse"
x = "n_heads"
along = "bandwidth"
value = 1.0
margin = 0.5
[figures.variance-by-angle]"""


def judged(folder, p_against: list[float], p_in_favour: list[float], name: str = "made-up", text: str = DESIGN):
    """A study whose claims have these p-values, adjusted as results hold them, and the verdicts that follow."""
    design = build_design(folder, text.replace('name = "made-up"', f'name = "{name}"'))
    results = build_results(design)
    kinds = ["contradicted" if a < LEVEL else "supported" if f < LEVEL else "undecided"
             for a, f in zip(p_against, p_in_favour, strict=True)]  # fmt: skip
    for column, values in (("p_against", p_against), ("p_in_favour", p_in_favour), ("verdict", kinds)):
        results[column] = "claim", values
    return results, design


def test_one_study__has_the_level_of_the_campaign(tmp_path):
    found = campaign([judged(tmp_path, [0.04, 1.0, 1.0], [1.0, 0.04, 0.2])])
    assert found["verdicts"] == {"made-up": {"falls": "contradicted", "agrees": "supported", "floor": "undecided"}}
    assert tuple(found[name] for name in ("n_studies", "n_decided", "n_hold")) == (1, 2, 2)


@pytest.mark.parametrize("side", ["contradicted", "supported"])
def test_of_several_studies__each_gets_its_share_of_the_level(tmp_path, side):
    p_values = [LEVEL / 3 * 0.99, LEVEL / 3 * 1.01, 0.9 * LEVEL]
    columns = (p_values, [1.0] * 3) if side == "contradicted" else ([1.0] * 3, p_values)
    studies = [judged(tmp_path, *columns, name=name) for name in ("one", "two", "three")]
    found = campaign(studies)
    for name in ("one", "two", "three"):
        assert found["verdicts"][name] == {"falls": side, "agrees": "undecided", "floor": "undecided"}
    assert tuple(found[name] for name in ("n_studies", "n_decided", "n_hold")) == (3, 9, 3)


def test_study_without_claims__takes_no_share(tmp_path):
    silent = DESIGN.partition("[claims.falls]")[0] + "[profiles.quick]\n"
    design = build_design(tmp_path, silent.replace("made-up", "silent"))
    study = judged(tmp_path, [0.04, 1.0, 1.0], [1.0, 1.0, 1.0])
    found = campaign([study, (study[0], design)])
    assert found["n_studies"] == found["n_hold"] == 1 and "silent" not in found["verdicts"]


def test_slopes_of_optima__are_judged_at_the_level_of_their_study_alone(tmp_path):
    text = DESIGN.replace("[figures.variance-by-angle]", SLOPE)
    study = judged(tmp_path, [1e-9] * 4, [1.0] * 4, text=text)
    other = judged(tmp_path, [1.0] * 3, [1.0] * 3, name="other")
    assert campaign([study])["verdicts"]["made-up"]["path"] == "contradicted"
    assert campaign([study, other])["verdicts"]["made-up"] == {
        "falls": "contradicted", "agrees": "contradicted", "floor": "contradicted", "path": "undecided",
    }  # fmt: skip
