"""Verdicts on constructed estimates whose truth is known, how a study stores them, and which comparison is shown.

Formulas of theory that are 1 % off are all found with a few hundred replicates of the default estimator.
"""

import tomllib
from types import SimpleNamespace

import numpy as np
import pytest
from builders import DESIGN, edited, mistakes, run, varied, write_design
from exact_estimates import N_BLOCKS, averaged, claim, derived, exact_accounts

from simstudy import theory
from simstudy.design.document import LEVEL, Claim, Grid
from simstudy.design.settings.records import records_in
from simstudy.verdicts.comparisons import Comparison, Predictions
from simstudy.verdicts.estimates import estimates_of
from simstudy.verdicts.evidence import Evidence, anytime_score, p_above, p_below, students_of
from simstudy.verdicts.judge import comparisons_of, decide, holm, judge, judge_claim, selected_by
from simstudy.verdicts.optima import SPENT
from simstudy.verdicts.predictions import Theory


def compare(stated, accounts, factors=("x",), theory=None, level=LEVEL) -> list[Comparison]:
    """What a claim comes down to in the cells of its grid."""
    return list(comparisons_of(stated, selected_by(stated, accounts, factors)._replace(theory=theory, level=level)))


def verdict(stated, accounts, theory=None) -> str:
    return decide(compare(stated, accounts, theory=theory), LEVEL).verdict


def predictions(*values, error=0.0):
    return Predictions(np.array(values), np.full(len(values), error))


def cells(means, noise=0.01):
    rng = np.random.default_rng(0)
    common = rng.normal(size=N_BLOCKS) * 0.3
    return [averaged({"x": float(i)}, m + common + noise * rng.normal(size=N_BLOCKS)) for i, m in enumerate(means)]


def blocks(*factors: float, n_blocks: int = N_BLOCKS, same: bool = False):
    values = np.ones(N_BLOCKS) if same else np.random.default_rng(0).normal(size=N_BLOCKS) + 5.0
    return [averaged({"x": float(i)}, factor * values, n_blocks=n_blocks) for i, factor in enumerate(factors)]


EQUALS, LARGER = {"kind": "equals"}, {"kind": "larger_than"}
RISING = {"kind": "monotone", "x": "x", "direction": "increasing"}
FALLING = RISING | {"direction": "decreasing"}
SLOPE = {"kind": "slope", "x": "x", "margin": 0.02}
MISSING = cells([1.0, 1.0])
MISSING[1].performance = None


@pytest.mark.parametrize("entries, accounts, expected, why_no_verdict", [
    (EQUALS | {"value": 1.0, "margin": 0.5}, cells([1.0, 1.1]), "supported", ""),
    (EQUALS | {"value": 2.0, "margin": 0.5}, cells([1.0, 2.0]), "contradicted", ""),
    (EQUALS | {"value": 1.0, "margin": 0.05}, cells([1.0, 1.0]), "undecided", ""),
    (LARGER | {"value": 0.5}, cells([1.0, 2.0]), "supported", ""),
    (LARGER | {"value": 1.5}, cells([1.0, 2.0]), "contradicted", ""),
    (RISING, cells([1.0, 1.1, 1.2]), "supported", ""),
    (RISING, cells([1.0, 1.1]), "supported", ""),
    (RISING, cells([1.0, 1.1, 1.1]), "undecided", ""),
    (FALLING, cells([1.0, 0.9, 0.95]), "contradicted", ""),
    (FALLING, cells([1.2, 1.1, 1.0]), "supported", ""),
    (SLOPE | {"value": 0.1}, cells([1.0, 1.1, 1.2]), "supported", ""),
    (SLOPE | {"value": 0.1}, cells([1.0, 1.1]), "supported", ""),
    (SLOPE | {"value": 0.0}, cells([1.0, 1.1, 1.2]), "contradicted", ""),
    (SLOPE | {"value": 0.2}, cells([1.0, 1.1, 1.2]), "contradicted", ""),
    (RISING, cells([1.0, 1.1, 1.2])[::-1], "supported", ""),  # whatever the order of the cells
    (FALLING, blocks(1.0, 1.0 + 1e-15, 1.0 + 2e-15, same=True), "undecided", ""),
    (RISING, blocks(0.0, 0.0), "undecided", ""),
    (EQUALS | {"value": 0.0, "margin": 0.1}, blocks(0.0, 0.0), "supported", ""),
    (LARGER | {"value": 0.1}, blocks(0.0, 0.0), "contradicted", ""),
    (LARGER | {"versus": {"x": 0.0}}, cells([1.0, 2.0]), "supported", ""),  # a cell is not compared with itself
    (EQUALS | {"value": 1.0, "margin": 0.5}, MISSING, "undecided", ""),
    # Both cells share whatever varies.
    (EQUALS | {"value": 2.0, "margin": 1e-6, "where": {"x": 0.0}, "versus": {"x": 1.0}, "compared": "ratio"},
     blocks(2.0, 1.0), "supported", ""),
    (RISING, cells([1.0]), "undecided", "a single cell"),
    (SLOPE | {"value": 0, "margin": 9.0}, cells([1.0]), "undecided", "a single cell"),
    (LARGER, blocks(1.0), "supported", ""),
    (LARGER, blocks(1.0, n_blocks=63), "undecided", "63 blocks of replicates or draws, 64"),
])  # fmt: skip
def test_verdict__on_known_truth(entries, accounts, expected, why_no_verdict):
    found = decide(compare(claim(**entries), accounts), LEVEL)
    assert found.verdict == expected and found.decisive.reason.startswith(why_no_verdict)


@pytest.mark.parametrize("scale", ["linear", "log_x", "log_log"])
def test_slope__is_that_of_least_squares_with_the_error_of_its_derivatives(scale):
    x, y = np.array([1.0, 2.0, 8.0]), [1.0, 3.0, 2.0]
    accounts = exact_accounts([{"x": each} for each in x], y, 0.01)
    (found,) = compare(claim(kind="slope", x="x", scale=scale, value=0.0, margin=1.0), accounts)
    along = x if scale == "linear" else np.log(x)
    expected = derived(lambda v: np.polyfit(along, np.log(v) if scale == "log_log" else v, 1)[0], y, 0.01)
    assert found.estimate == pytest.approx(expected.value) and found.mcse == pytest.approx(expected.mcse)


def test_theory__agreement_within_the_margin_where_it_applies_with_its_numerical_error():
    stated = claim(kind="agrees_with_theory", margin=0.2)
    accounts = cells([1.0, 1.0, 5.0], noise=0.01)
    assert verdict(stated, accounts, theory=predictions(1.0, 1.05, np.nan)) == "supported"
    assert verdict(stated, accounts, theory=predictions(1.0, 1.05, 1.0)) == "contradicted"
    assert verdict(stated, accounts, theory=predictions(np.nan, np.nan, np.nan)) == "undecided"
    (one,) = compare(stated, accounts, ("x",), predictions(0.0, 1.0, np.nan))  # nothing is a ratio to 0
    assert one.statistic.endswith(", one of 1 cells with theory among 3")
    stated = claim(kind="agrees_with_theory", source="exact", margin=0.2)
    accounts = cells([2.0], noise=0.01)
    (plain,) = compare(stated, accounts, ("x",), predictions(2.0))
    (blurred,) = compare(stated, accounts, ("x",), predictions(2.0, error=0.3))
    assert blurred.mcse == pytest.approx(np.hypot(plain.mcse, blurred.estimate * 0.15), rel=1e-12)
    assert blurred.estimate == plain.estimate and blurred.statistic.startswith("mse / exact")
    # An error as large as the margin decides nothing, either way; without one both are decided.
    for truth, expected in ((2.0, "supported"), (1.4, "contradicted")):
        assert verdict(stated, accounts, theory=predictions(truth)) == expected
        assert verdict(stated, accounts, theory=predictions(truth, error=0.4)) == "undecided"


def test_bandwidth_rule__is_one_line_whatever_its_number_and_compared_with_itself():
    rng = np.random.default_rng(4)
    cells = [
        averaged({"x": p, "bandwidth": b, "bandwidth_rule": rule}, p + 20.0 * b + 0.01 * rng.normal(size=N_BLOCKS))
        for p in (1.0, 2.0, 4.0)
        for rule, b in (("attention", p**0.25), ("fixed(value=0.5)", 0.5))
    ]
    assert len(compare(claim(**RISING), cells, ("x", "bandwidth"))) == 4
    stated = claim(kind="equals", value=1.0, margin=0.1, where={"x": 2.0}, versus={"x": 1.0})
    estimates = [each.estimate for each in compare(stated, cells, ("x", "bandwidth"))]
    assert estimates == pytest.approx([1.0 + 20.0 * (2**0.25 - 1.0), 1.0], abs=0.01)


def test_holm__matches_a_worked_example_and_every_kind_of_claim_has_its_comparisons():
    np.testing.assert_allclose(holm(np.array([0.01, 0.04, 0.03, 0.005])), [0.03, 0.06, 0.06, 0.02])
    assert holm(np.array([0.9, 0.6])).tolist() == [1.0, 1.0]
    assert comparisons_of.registry.keys() - {object} == {*records_in(Claim)}


def comparison(against: float, in_favour: float) -> Comparison:
    evidence = Evidence(np.array(against), np.array(in_favour))
    return Comparison("s", 1.0, 0.1, 0.0, np.inf, 0.0, evidence, lambda _: (0.0, 2.0))


def test_decision__falls_at_the_level_by_the_surest_against_and_the_least_sure_in_favour():
    p_values = (1.0, 0.0099), (1.0, 0.0101), (0.0099, 1.0), (0.0101, 1.0), (0.01, 0.01)
    found = [decide([comparison(*each)], 0.01).verdict for each in p_values]
    assert found == ["supported", "undecided", "contradicted", "undecided", "undecided"]
    both = [comparison(p, p) for p in (1e-6, 1e-3)]
    for order in (both, both[::-1]):
        assert decide(order, 0.01).verdict == "contradicted" and decide(order, 0.01).decisive is both[0]
    against = [each._replace(evidence=each.evidence._replace(against=np.array(1.0))) for each in both]
    assert decide(against, 0.01).verdict == "supported" and decide(against, 0.01).decisive is against[1]


def test_optima_of_several_comparisons__share_what_is_spent_on_the_levels_that_may_be_least():
    """At the level a second level may not be least; at its share of it, it may, and the interval is wider."""
    p_value = LEVEL * SPENT / 2 / 2**0.5 / 4  # of one of five levels against the least
    gap = 0.01 * 2**0.5 * float(students_of(anytime_score(p_value, N_BLOCKS), 0.0, N_BLOCKS - 1))
    x, curved = 2.0 ** np.arange(5), 20.0 * (np.arange(5) - 2.3) ** 2
    levels = [{"z": z, "x": each, "h": k} for z in (2.0, 8.0) for each in x for k in range(2)]
    accounts = exact_accounts(levels, np.repeat(np.concatenate([[4.0, 1.0, 1.0 + gap, 4.0, 9.0], curved]), 2), 0.01)
    stated, factors = claim(kind="optimum_slope", x="x", along="z", value=0.0, margin=0.1), ("z", "x", "h")
    found = judge_claim(stated, selected_by(stated, accounts, factors), 1)
    assert len(found.comparisons) == 2 and found.level == LEVEL
    apart = (compare(stated, accounts, factors, None, LEVEL / share) for share in (1, 2))
    whole, shared = ([each.confidence(LEVEL) for each in comparisons] for comparisons in apart)
    assert [each.confidence(LEVEL) for each in found.comparisons] == shared != whole


def test_ratio__has_the_error_of_its_denominator_and_is_judged_without_division():
    at, ratio = [{"x": 0.0}, {"x": 1.0}], {"where": {"x": 0.0}, "versus": {"x": 1.0}, "compared": "ratio"}
    for values, error in (([2.0, 1.0], [0.01, 0.02]), ([2.0, -1.0], [0.1, 0.2])):
        accounts = exact_accounts(at, values, error)
        (found,) = compare(claim(kind="equals", value=2.0, margin=9.0, **ratio), accounts)
        expected = derived(lambda v: v[0] / v[1], values, error)
        assert found.estimate == pytest.approx(expected.value) and found.mcse == pytest.approx(expected.mcse)
        for end, side in zip(found.confidence(LEVEL), Evidence._fields[::-1], strict=True):
            apart = estimates_of(accounts, "mse").combine({0: 1.0, 1: -end})
            assert min(p_above(apart, 0.0), p_below(apart, 0.0)) == pytest.approx(LEVEL)
            (there,) = compare(claim(kind="larger_than", value=end, **ratio), accounts)
            assert getattr(there.evidence, side) == pytest.approx(LEVEL)
    (unsure,) = compare(claim(kind="larger_than", **ratio), exact_accounts(at, [2.0, 1.0], [0.01, 0.9]))
    assert unsure.confidence(LEVEL) == (-np.inf, np.inf) and min(unsure.evidence) > LEVEL
    assert unsure.reason == "the denominator of the ratio may be 0"


def test_comparison_that_the_design_names__stands_for_the_claim(tmp_path):
    text = edited(DESIGN, 'x = "angle"\nd', 'x = "angle"\nstands = { angle = 90, bandwidth = 1.0 }\nd')
    results = run(write_design(tmp_path, text), output=tmp_path, executor="serial")
    assert results.representative_statistic.item() == "change of mse, angle 45 → 90 at bandwidth = 1"
    elsewhere = mistakes(tmp_path, edited(text, "angle = 90, bandwidth = 1.0", "angle = 30"))
    assert "stands = {'angle': 30}: is no cell that the claim selects" in elsewhere
    excluded = edited(DESIGN, 'kind = "monotone"', 'kind = "slope"\nvalue = 0.0\nmargin = 0.5\nexcludes = -0.4')
    told = mistakes(tmp_path, edited(excluded, 'direction = "decreasing"\n', ""))
    assert "claims.mse-falls.excludes = -0.4: must be farther from value than margin" in told


def told_of(accounts, exact=None, leading=None, errors=None):
    rows = zip(*(each or [np.nan] * len(accounts) for each in (exact, leading, errors)), strict=True)
    told = ((Theory({"mse": one}, {"mse": error}, ""), Theory({"mse": other}, {}, "")) for one, other, error in rows)
    named = (dict(zip(("exact", "leading"), each, strict=True)) for each in told)
    return {id(each.planned): theories for each, theories in zip(accounts, named, strict=True)}


def study(claims: dict, values: list[float]):
    return SimpleNamespace(claims=claims, factors={"g": ("x",)}, cells=(), grids={"g": Grid()}), cells(values)


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
    design, _ = study({str(value): claim(kind="larger_than", value=value) for value in (-100.0, 0.0, 100.0)}, [0.0])
    judged = judge(design, [averaged({"x": 0.0}, blocks)], {})
    assert judged.verdict.values.tolist() == ["supported", "undecided", "contradicted"]
    for reasons in (judged.no_verdict_because, judged.comparison_no_verdict_because):
        assert [reason[:12] for reason in reasons.values] == ["", "one block of", ""]


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


def test_formulas_that_are_one_percent_off__are_all_contradicted(tmp_path, monkeypatch):
    point = {"kind": "points", "points": [[0.4]]}
    settings = {"n_keys": 2048, "head_dim": 1, "stop": "verdict", "queries": point, "angle": [30, 60]}
    tables = tomllib.loads(varied(**settings, bandwidth=[0.8]))
    tables["grids"]["angles"]["exact"] = True
    claim = {"statement": "Two heads follow the formula.", "origin": "identity", "kind": "agrees_with_theory"}
    claim |= {"grid": "angles", "margin": 0.004}
    measures = ("mse", "squared_bias", "mean_variance", "mean_covariance", "correlation")
    formulas = [{"measure": measure, "source": source} for source in ("leading", "exact") for measure in measures]
    tables["claims"] = {f"formula-{number}": claim | each for number, each in enumerate(formulas)}

    def verdicts():
        # Results are made anew of what is stored.
        (tmp_path / "tiny" / "quick" / "provenance.json").unlink(missing_ok=True)
        results = run(tables, output=tmp_path, executor="serial")
        assert set(results.control_variate.values) == {"expansion"} and results.n_replicates.max() <= 512
        return set(results.verdict.values)

    assert verdicts() == {"supported"}
    right = theory.predicted_measures
    for factor in (0.99, 1.01):

        def wrong(*arguments, factor=factor):
            return {name: factor * value for name, value in right(*arguments).items()}

        monkeypatch.setattr(theory, "predicted_measures", wrong)
        assert verdicts() == {"contradicted"}
