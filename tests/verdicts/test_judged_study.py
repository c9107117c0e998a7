"""How the verdicts of a whole study are stored: every comparison, its parts, and the theory of its own cells.

Formulas of theory that are 1 % off are all found with a few hundred replicates of the default estimator.
"""

from types import SimpleNamespace

import numpy as np
import pytest
from builders import DESIGN, edited, kinds_of, write_design
from exact_estimates import N_BLOCKS, averaged, claim, compare, exact_accounts, exact_estimates
from test_judge import cells, verdict

from simstudy import run, theory
from simstudy.design.claims import LEVEL, Claim
from simstudy.results import cells_of
from simstudy.verdicts.comparisons import Comparison, Selected
from simstudy.verdicts.evidence import NOTHING, Evidence
from simstudy.verdicts.judge import comparisons_of, judge, judge_claim, selected_by
from simstudy.verdicts.predictions import Theory


def told_of(accounts, exact=None, leading=None, errors=None):
    nothing = [np.nan] * len(accounts)
    columns = exact or nothing, leading or nothing, errors or nothing
    return {
        id(account.planned): {
            "exact": Theory({"mse": one}, {"mse": error}, {}, {}, ""),
            "leading": Theory({"mse": other}, {}, {}, {}, ""),
        }
        for account, one, other, error in zip(accounts, *columns, strict=True)
    }


def study(claims: dict, values: list[float]):
    design = SimpleNamespace(claims=claims, factors={"g": ("x",)}, cells=(), domains={})
    return design, cells(values)


def test_judge__stores_every_comparison_beside_the_verdicts():
    stated = {
        "rises": claim(kind="monotone", x="x", direction="increasing"),
        "large": claim(kind="larger_than", value=0.5, expected="contradicted"),
        "near": claim(kind="agrees_with_theory", margin=0.2),
    }
    design, accounts = study(stated, [1.0, 1.1, 1.2])
    told = told_of(accounts, leading=[1.0, 1.1, 1.9])
    judged = judge(design, accounts, told)
    assert judged.verdict.values.tolist() == ["supported", "supported", "contradicted"]
    assert judged.expected_verdict.values.tolist() == ["supported", "contradicted", "supported"]
    assert judged.comparison_claim.values.tolist() == ["rises"] * 2 + ["large"] * 3 + ["near"] * 3
    assert judged.comparison_claimed_lower.values == pytest.approx([0, 0, 0.5, 0.5, 0.5, 0.8, 0.8, 0.8])
    assert np.isinf(judged.comparison_claimed_upper.values[:5]).all()
    inside = judged.comparison_confidence_lower > judged.comparison_claimed_lower
    inside &= judged.comparison_confidence_upper < judged.comparison_claimed_upper
    assert inside.values.tolist() == [True] * 7 + [False]
    assert (judged.comparison_p_in_favour < LEVEL).values.tolist() == inside.values.tolist()
    assert judged.p_against.sel(claim="near") == judged.comparison_p_against[7] < LEVEL
    near = judged.sel(claim="near")
    assert (near.claimed_lower, near.claimed_value, near.claimed_upper) == (0.8, 1.0, 1.2)
    assert judged.p_in_favour.values[1] == judged.comparison_p_in_favour[2:5].max() > 0.0
    design.claims = {"near": stated["near"]}
    alone = judge(design, accounts, told)
    for name in ("p_against", "comparison_p_against"):  # p-values to be compared with the level of the study
        assert judged[name].values[-1] == pytest.approx(3 * alone[name].values[-1])
    assert not judge(*study({}, [1.0]), {})
    # Intervals are those of the level at which a claim is judged, and no p-value is more than 1.
    for name in ("confidence_lower", "comparison_confidence_lower"):
        assert judged[name].values[-1] < alone[name].values[-1]
    p_values = [judged[name] for name in ("p_against", "p_in_favour", "comparison_p_against", "comparison_p_in_favour")]
    assert max(float(each.max()) for each in p_values) == 1.0


def test_reason__is_stored_where_there_is_no_verdict_alone():
    blocks = np.random.default_rng(0).normal(size=N_BLOCKS)
    blocks[7] = 9.0  # its square is more than a fifth of all: only what is far off decides
    stated = {str(value): claim(kind="larger_than", value=value) for value in (-100.0, 0.0, 100.0)}
    design, _ = study(stated, [0.0])
    judged = judge(design, [averaged({"x": 0.0}, blocks)], {})
    assert judged.verdict.values.tolist() == ["supported", "undecided", "contradicted"]
    for reasons in (judged.no_verdict_because, judged.comparison_no_verdict_because):
        assert [reason[:12] for reason in reasons.values] == ["", "one block of", ""]


def test_doubtful_cells__take_the_evidence_of_what_rests_on_them_and_nothing_else(monkeypatch):
    stated, both = claim(kind="larger_than"), cells([1.0, 1.2])
    judged = judge_claim(stated, selected_by(stated, both, ("x",))._replace(doubtful={1: "no error"}), 1)
    assert judged.verdict == "undecided" and judged.decisive.doubt == "no error"
    sound, doubted = judged.comparisons
    assert sound.evidence.in_favour < LEVEL and doubted.evidence == NOTHING
    assert doubted.confidence(LEVEL) == (-np.inf, np.inf) and (doubted.lower, doubted.claimed) == (0.0, 0.0)
    assert doubted.estimate == pytest.approx(1.2, abs=0.1) and doubted.mcse > 0.0
    assert judge(*study({"large": stated}, [1.0]), {}).verdict.item() == "supported"
    monkeypatch.setattr("simstudy.verdicts.judge.without_error", lambda *_: {0: "no error"})
    found = judge(*study({"large": stated}, [1.0]), {})
    assert found.verdict.item() == "undecided" and found.no_verdict_because.item() == "no error"


def test_order__is_doubtful_where_any_cell_is_if_no_replicate_would_help(monkeypatch):
    """It names no cells of its own then, and rests on all."""
    monkeypatch.setattr("simstudy.verdicts.judge.comparisons_of", lambda *_: [sure])
    proven = Evidence(np.array(1.0), np.array(0.0))
    sure = Comparison("order", 0.0, 0.1, -np.inf, 1.0, 1.0, proven, lambda _: (0.0, 0.1))
    of = Selected(exact_estimates([{}], [1.0], 1.0), [0], ())
    for doubtful, expected in (({}, "supported"), ({7: "no error"}, "undecided")):
        assert judge_claim(claim(kind="larger_than"), of._replace(doubtful=doubtful), 1).verdict == expected


def test_index__is_the_one_that_a_claim_names():
    accounts = exact_accounts([{"x": float(k)} for k in range(3)], [3.0, 2.0, 1.0], 0.01)
    for k, each in enumerate(accounts):
        indices = np.zeros(8)
        indices[[0, 2]] = k, -k  # chordal, and entropy the other way
        each.performance.estimate["hdi"], each.performance.contribution["hdi"] = indices, np.zeros((N_BLOCKS, 8))
    for index, direction in (("chordal", "decreasing"), ("entropy", "increasing")):
        ordered = claim(kind="violated_pairs", against=index, direction=direction, at_most=0.0)
        assert verdict(ordered, accounts) == "supported"
        above = claim(kind="larger_than", measure="hdi", index=index, where={"x": 2.0}, value=-3.0)
        (found,) = compare(above, accounts)
        assert found.estimate == (2.0 if index == "chordal" else -2.0)


def test_judge__gives_each_claim_the_theory_of_its_own_cells_with_its_numerical_error():
    stated = {"near": claim(kind="agrees_with_theory", source="exact", margin=0.2),
              "leading": claim(kind="agrees_with_theory", margin=0.2)}  # fmt: skip
    design, accounts = study(stated, [1.0, 1.1])
    accounts = [*cells([9.0]), *accounts]
    accounts[0].planned.grid = "other"
    design.factors["other"] = ("x",)
    told = told_of(accounts, exact=[5.0, 1.0, 1.1], leading=[5.0, 1.0, 1.1], errors=[0.0, 0.0, 0.6])
    judged = judge(design, accounts, told)
    assert judged.comparison_estimate.values == pytest.approx(1.0, abs=0.1)
    assert (judged.comparison_mcse.values > 0.5).tolist() == [False, True, False, False]
    assert judged.verdict.values.tolist() == ["undecided", "supported"]


def test_every_kind_of_claim__has_its_comparisons():
    assert comparisons_of.registry.keys() - {object} == {*kinds_of(Claim).values()}


MEASURES = ("mse", "squared_bias", "mean_variance", "mean_covariance", "correlation")
FORMULAS = [(measure, source) for source in ("leading", "exact") for measure in MEASURES]
CLAIM = """
[claims.{source}-{name}]
statement = "Two heads follow the formula."
origin = "identity"
kind = "agrees_with_theory"
grid = "angles"
measure = "{measure}"
source = "{source}"
margin = 0.004
"""


def test_formulas_that_are_one_percent_off__are_all_contradicted(tmp_path, monkeypatch):
    """With 2048 keys leading order and the theory of any number of keys differ by less than 0.01 %."""
    text = DESIGN.partition("[claims")[0].replace("n_keys = 40", "n_keys = 2048")
    text = edited(text, "head_dim = 2", "head_dim = 1")
    text = edited(text, "angle = [0, 45, 90]\nbandwidth = [0.5, 1.0]", "angle = [30, 60]\nbandwidth = [0.8]")
    text = edited(text, "[precision]", '[precision]\nstop = "verdict"')
    text = edited(text, "[grids.angles.factors]", "[grids.angles]\nexact = true\n[grids.angles.factors]")
    text += '[queries]\nqueries = { kind = "points", points = [[0.4]] }\n'
    text += "".join(CLAIM.format(source=s, measure=m, name=m.replace("_", "-")) for m, s in FORMULAS)
    design = write_design(tmp_path, text + "\n[profiles.quick]\n")

    def verdicts():
        (tmp_path / "tiny" / "quick" / "provenance.json").unlink(
            missing_ok=True
        )  # results are made anew of what is stored
        results = run(design, output=tmp_path, executor="serial")
        assert (
            set(cells_of(results).control_variate.values) == {"expansion"}
            and cells_of(results).n_replicates.values.max() <= 512
        )
        return set(results["verdicts"].verdict.values)

    assert verdicts() == {"supported"}
    right = theory.predicted_measures
    for factor in (0.99, 1.01):

        def wrong(*arguments, factor=factor):
            return {name: factor * value for name, value in right(*arguments).items()}

        monkeypatch.setattr(theory, "predicted_measures", wrong)
        assert verdicts() == {"contradicted"}
