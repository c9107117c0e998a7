"""Verdicts on tables: the engine of studies, the error rate at many looks, and the units that a decision takes."""

import sys

import numpy as np
import pandas as pd
import pytest
from builders import DESIGN, edited, write_design
from commands import ROOT

import simstudy
from simstudy.design.claims import LEVEL
from simstudy.design.load import load_design
from simstudy.errors import UserError
from simstudy.judging.judged import repeated
from simstudy.judging.table import Columns, numbers_of, table_of

sys.path.insert(0, str(ROOT / "tests" / "verification"))
import verify_own_numbers as own_numbers

RNG = np.random.default_rng(0)
PAIR = pd.DataFrame({"a": RNG.normal(size=100), "b": RNG.normal(size=100)})
AGAINST = {"where": {"condition": "a"}, "versus": {"condition": "b"}}
OTHERS = """
[claims.least]
statement = "s"
kind = "optimum"
grid = "angles"
measure = "mse"
x = "angle"
value = 45
[claims.flat]
statement = "s"
kind = "slope"
grid = "angles"
measure = "ensemble_variance"
x = "bandwidth"
value = 0.0
margin = 0.01
[claims.ratio]
statement = "s"
kind = "equals"
grid = "angles"
measure = "mse"
where = { angle = 0 }
versus = { angle = 90 }
compared = "ratio"
value = 1.0
margin = 0.5
[figures.mse]"""


def tie(frame, margin, **options):
    claims = {"tie": {"kind": "equals", "value": 0.0, "margin": margin, **AGAINST}}
    return simstudy.judge(frame, claims, **options).to_dataframe().loc["tie"]


def test_judge__gives_the_verdicts_of_a_study_from_its_block_contributions(tiny, tmp_path):
    text = edited(edited(DESIGN, "[figures.mse]", OTHERS), "angle = [0,", "angle = [30,")
    text = edited(text, "angle = 0 ", "angle = 30 ")
    simstudy.run(write_design(tmp_path, text), output=tmp_path, executor="serial")
    pairs = list(own_numbers.rejudged(load_design(tmp_path / "design.toml"), tmp_path))
    assert [own.claim.values.tolist() for own, _ in pairs] == [["flat"], ["mse-falls", "least", "ratio"]]
    assert all(own_numbers.same(*pair) for pair in pairs)


def test_interval_of_the_truth__is_that_of_the_paired_difference():
    found = tie(PAIR + np.arange(100)[:, None], 1.0)
    difference = PAIR.a - PAIR.b
    assert found.estimate == pytest.approx(difference.mean()) and found.mcse == pytest.approx(difference.sem())
    assert found.confidence_lower < difference.mean() - 2 * difference.sem() < found.estimate


def test_gaps_under_one_condition__change_no_claim_that_does_not_name_it():
    """A method that fails where errors are large would else bias the errors of all others."""
    frame = PAIR.assign(c=PAIR.a.where(PAIR.a < 1.0))
    claims = {name: {"kind": "larger_than", "value": -9.0, "where": {"condition": name}} for name in "abc"}
    found = simstudy.judge(frame, claims, missing="drop")
    assert found.to_dataframe().estimate.tolist() == pytest.approx(frame.mean().tolist())
    n_lacking = int(frame.c.isna().sum())
    assert found.summary[0].endswith(f"{n_lacking} units left out of comparisons for lack of a number "
                                     f"({n_lacking} under condition = c)")  # fmt: skip
    assert simstudy.judge(frame, {"a": claims["a"]}).n_dropped == 0 < n_lacking


def test_clusters__are_what_there_must_be_enough_of():
    frame = pd.concat([PAIR.iloc[:60].assign(text=range(60))] * 4)
    assert tie(frame.drop(columns="text"), 10.0).verdict == "supported"
    found = tie(frame, 10.0, cluster="text")
    assert found.verdict == "inconclusive" and found.no_verdict_because == "60 clusters, 64 are needed"
    assert np.isnan(found.further_units)


def test_one_unit_that_holds_a_fifth_of_the_squared_error__decides_nothing_near():
    frame = PAIR.copy()
    frame.loc[7, "a"] = 100.0
    found = tie(frame, 0.5)
    assert found.verdict == "inconclusive" and found.no_verdict_because.startswith("one unit of 100 holds")
    assert np.isnan(found.further_units)  # nobody knows how large the next such unit is


@pytest.mark.parametrize(("margin", "verdict"), [(0.05, "inconclusive"), (0.2, "supported")])
def test_units_that_do_not_differ__are_no_proof_of_a_tie(margin, verdict):
    """The next of 100 right answers may be wrong, and so may the next of 100 equal grades."""
    answers = np.r_[np.ones(95), np.zeros(5)]
    for scale in (1.0, 5.0):
        found = tie({"a": scale * answers, "b": scale * answers}, scale * margin)
        assert found.verdict == verdict and found.mcse == 0.0
    line = simstudy.judge({"a": answers**0.0}, {"c": {"kind": "larger_than", "value": 0.99}}).lines[0]
    assert (line.estimate, line.draws) == ("1 ± 0", "")


def test_further_units__are_those_of_a_table_that_goes_on_as_it_began():
    found = tie(PAIR - PAIR.mean(), 0.2)
    times = 1 + found.further_units / 100
    assert found.verdict == "inconclusive" and 1.5 < times < 100
    centred = PAIR - PAIR.mean()
    verdicts = [tie(pd.concat([centred] * count), 0.2).verdict for count in (int(times) - 1, int(times) + 2)]
    assert verdicts == ["inconclusive", "supported"]


def test_further_units_of_a_claim_on_several_conditions__name_the_comparison_that_would_decide():
    """Where the estimate shown is near its bound and another beyond it, by less than its error shows yet."""
    frame = pd.concat([PAIR - PAIR.mean() - [0, 0.15], 5 + PAIR], axis=1, keys=["x", "y"], names=["at", "condition"])
    found = simstudy.judge(frame, {"c": {"kind": "larger_than", "value": -0.1, "where": {"at": "x"}}})
    row = found.comparisons().set_index("statistic").estimate
    assert found.lines[0].verdict == "inconclusive" and row.tolist() == pytest.approx([0.0, -0.15])
    (wanted,) = found.wanted
    assert wanted.endswith("decide, by mean at at = x, condition = b") and wanted in repr(found)


def test_interval_outside_the_claim_without_a_verdict__has_its_reason():
    near, far = (tie(PAIR, 9.0), {"kind": "larger_than", "value": 9.0, **AGAINST})
    both = simstudy.judge(PAIR, {"near": {"kind": "equals", "value": 0, "margin": 9.0, **AGAINST}, "far": far})
    end = (near.confidence_upper + both.to_dataframe().confidence_upper["near"]) / 2
    claim = {"kind": "equals", "value": end + 1.0, "margin": 1.0, **AGAINST}
    found = simstudy.judge(PAIR, {"c": claim}).to_dataframe().loc["c"]
    assert found.verdict == "inconclusive" and found.confidence_upper < found.claimed_lower
    assert found.no_verdict_because == "outside, but what contradicts is corrected for 2 bounds"


def test_repeated_estimates__are_those_of_the_repeated_table():
    skewed = pd.DataFrame({"a": RNG.exponential(size=80), "b": RNG.exponential(size=80)})
    whole = numbers_of(table_of(pd.concat([skewed] * 1000), Columns())).estimates
    forecast = repeated(numbers_of(table_of(skewed, Columns())).estimates, 1000)
    for name, one in forecast.combine({0: 1.0, 1: -2.0})._asdict().items():
        assert one == pytest.approx(getattr(whole.combine({0: 1.0, 1: -2.0}), name), rel=0.02), name
    assert forecast.covariance([0, 1]) == pytest.approx(whole.covariance([0, 1]), rel=0.02)
    assert forecast.differences([0, 1]).mcse == pytest.approx(whole.differences([0, 1]).mcse, rel=0.02, abs=1e-9)


@pytest.mark.parametrize("law", own_numbers.LAWS)
def test_looking_again_after_more_units__keeps_the_level(law):
    rate = own_numbers.wrong_at_any_look(law, "larger", 60, own_numbers.looks(64, 600))
    assert rate <= LEVEL + 3.0 * (LEVEL * (1 - LEVEL) / 60) ** 0.5


def test_claims__may_be_tables_text_a_file_or_a_study(tmp_path):
    entries = {"kind": "larger_than", "value": -1.0, **AGAINST}
    text = 'numbers.missing = "drop"\n[claims.c]\nkind = "larger_than"\nvalue = -1.0\n'
    text += 'where.condition = "a"\nversus.condition = "b"\n'
    (tmp_path / "claims.toml").write_text(text)
    study = simstudy.Study("s", title="t", aim="a").claim("c", **entries)
    ways = [{"c": entries}, text, tmp_path / "claims.toml", str(tmp_path / "claims.toml"), study]
    found = [simstudy.judge(PAIR, way).to_dataframe() for way in ways]
    assert all(each.equals(found[0]) for each in found) and found[0].index.tolist() == ["c"]


@pytest.mark.parametrize(
    ("entries", "verdict"),
    [
        ({"kind": "monotone", "x": "size", "direction": "increasing"}, "supported"),
        ({"kind": "slope", "x": "size", "value": 0.1, "margin": 0.02}, "supported"),
        ({"kind": "optimum", "x": "size", "value": 10.0}, "supported"),
        ({"kind": "printed", "value": "1.0", "printed_in": "a table", "where": {"size": 10}}, "inconclusive"),
        ({"kind": "rank_correlation", "against": "size", "direction": "decreasing"}, "contradicted"),
        ({"kind": "violated_pairs", "against": "size", "direction": "increasing", "at_most": 0.1}, "supported"),
        ({"kind": "larger_than", "value": 2.5}, "contradicted"),
    ],
)
def test_kinds_of_designs__judge_means_by_a_factor(entries, verdict):
    noise = np.random.default_rng(1).normal(size=(200, 1)) + 0.3 * np.random.default_rng(2).normal(size=(200, 3))
    frame = pd.DataFrame(noise + np.array([1.0, 2.0, 3.0]), columns=pd.Index([10, 20, 30], name="size"))
    assert simstudy.judge(frame, {"c": entries}).dataset.verdict.item() == verdict


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"c": {"kind": "agrees_with_theory", "margin": 0.1}}, "unknown kind; known: equals, printed, larger_than"),
        (
            {"c": {"kind": "larger_than", "where": {"condition": "z"}}},
            'selects no condition of the table; it has condition = "a" or "b"',
        ),
        ({"c": {"kind": "larger_than", "where": {"n_heads": 2}}}, "unknown factor; known: condition"),
        (
            {"c": {"kind": "monotone", "x": "condition", "direction": "increasing"}},
            "is not a number in every condition",
        ),
        ({"c": {"kind": "rank_correlation", "against": "condition"}}, "is not a number under every condition"),
        ({"c": {"kind": "rank_correlation", "against": "vendi"}}, "unknown factor; known: condition"),
        ({"c": {"kind": "optimum", "x": "condition", "source": "leading"}}, "claims.c.value: missing"),
        ("no such file.toml", "cannot be read"),
        ("[claims.c]\nkind = ", "not valid TOML"),
        (7, "claims of type int; give tables by name"),
    ],
)
def test_mistakes_in_claims__are_those_of_designs(claims, said):
    with pytest.raises(UserError, match=r".") as refused:
        simstudy.judge(PAIR, claims)
    assert said in str(refused.value)


@pytest.mark.parametrize("given", [{"missing": "maybe"}, {"cluster": 3}, {"factors": "size"}])
def test_mistakes_in_arguments__name_the_argument(given):
    with pytest.raises(UserError, match=f"^judge: {next(iter(given))} = "):
        simstudy.judge(PAIR, {"c": {"kind": "larger_than", "value": 9.0}}, **given)


def test_verdicts__show_themselves():
    found = simstudy.judge(PAIR, {"c": {"kind": "larger_than", "value": 9.0}})
    assert "100 units, 2 conditions" in repr(found) and "contradicted" in repr(found)
    assert "<table" in found._repr_html_() and found.comparisons().statistic.tolist()[0] == "mean at condition = a"
