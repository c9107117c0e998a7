"""Verdicts on tables of every layout: the engine of studies, error rates at many looks, units until a decision."""

import re
from pathlib import Path

import narwhals as nw
import numpy as np
import pandas as pd
import pytest
from builders import rare, refuses
from commands import python
from scipy import stats

import simstudy
from simstudy.design.document import LEVEL
from simstudy.errors import UserError
from simstudy.judging.judged import judgement_of, read_claims
from simstudy.judging.table import Columns, numbers_of, table_of
from simstudy.replicates.intervals import widening_of
from simstudy.verdicts.evidence import Contrast, exact_end, interval, p_above, p_below

VALUES = np.random.default_rng(0).normal(size=(90, 4))
CONDITIONS = [{"model": model, "size": size} for model in "AB" for size in (10, 20)]
WIDE = pd.DataFrame(VALUES, columns=pd.MultiIndex.from_product([["A", "B"], [10, 20]], names=["model", "size"]))
LONG = WIDE.rename_axis("task").stack(["model", "size"]).rename("score").reset_index()
OF_LONG = {"unit": "task", "value": "score"}
RNG = np.random.default_rng(0)
PAIR = pd.DataFrame({"a": RNG.normal(size=100), "b": RNG.normal(size=100)})
AGAINST = {"where": {"condition": "a"}, "versus": {"condition": "b"}}


def estimates(numbers, **columns):
    return numbers_of(table_of(numbers, Columns(**columns))).estimates


def covariance(found, conditions):
    placed = found.placed(conditions)
    return placed.T @ placed


@pytest.mark.parametrize("layout", ["wide", "long", "shuffled"])
def test_layouts__of_one_table_give_the_same_estimates_paired_by_unit(layout):
    numbers, columns = {
        "wide": (WIDE, {}),
        "long": (LONG, OF_LONG),
        "shuffled": (LONG.sample(frac=1, random_state=1).assign(note=1), OF_LONG | {"factors": ["model", "size"] * 2}),
    }[layout]  # fmt: skip
    found = estimates(numbers, **columns)
    order = [found.conditions.index(each) for each in CONDITIONS]
    assert found.values[order] == pytest.approx(VALUES.mean(axis=0))
    assert covariance(found, order) == pytest.approx(np.cov(VALUES.T) / 90)


@pytest.mark.parametrize("level", [1e8, 1e9, 1.6e10, 1e12])
def test_level__takes_no_digit_from_differences(level):
    pairs = level + VALUES[:, :2] * 0.27
    apart = pairs[:, 1] - pairs[:, 0]  # without rounding, as both are near
    found = estimates(dict(zip("ab", pairs.T, strict=True))).combine({1: 1.0, 0: -1.0})
    assert found.value == pytest.approx(apart.mean(), abs=2e-16 * level)
    assert found.mcse == pytest.approx(apart.std(ddof=1) / np.sqrt(90), rel=1e-3)


NAMES = (10, 20.5), ("a", "b"), ("10", "20"), ("1.1", "1.10"), ("007", "7"), ("1e5", "100000")


@pytest.mark.parametrize("names", NAMES)
def test_arrays_by_name__are_conditions_whose_names_stay_text_or_numbers(names):
    wide = pd.DataFrame(dict(zip(names, VALUES.T, strict=False)))
    long = wide.rename_axis("task").stack().rename("score").rename_axis(["task", "condition"]).reset_index()
    for numbers, columns in ((dict(wide), {}), (wide, {}), (long, OF_LONG)):
        assert estimates(numbers, **columns).conditions == [{"condition": name} for name in names]


@pytest.mark.parametrize("of_one", [True, False])
def test_clusters__contribute_as_wholes(of_one):
    names = np.arange(90) if of_one else np.random.default_rng(1).integers(0, 30, 90)
    frame = pd.DataFrame(VALUES[:, :2], columns=["a", "b"]).assign(text=names)
    found = estimates(frame, cluster="text")
    groups, sizes = np.unique(names, return_counts=True)
    squares = sum(((VALUES[names == group, 0] - VALUES[:, 0].mean()).sum() / 90) ** 2 for group in groups)
    assert covariance(found, [0])[0, 0] == pytest.approx(squares * len(groups) / (len(groups) - 1))
    assert found.n_blocks[0] == len(groups)
    at_one_look = estimates(frame, cluster="text", looks="one").degrees([0])
    assert at_one_look == pytest.approx((sizes**2).sum() ** 2 / (sizes**4).sum() - 1, abs=0.01)
    long, columns = LONG.assign(text=names[LONG.task]), OF_LONG | {"factors": ("model", "size")}
    assert estimates(long, cluster="text", **columns).contributions[0] == pytest.approx(found.contributions[0])
    as_cluster = estimates(LONG, cluster="task", **columns).contributions[0]  # units and clusters may be one column
    assert as_cluster == pytest.approx(estimates(LONG, **columns).contributions[0])
    told_once = long.assign(text=long.text.where(~long.task.duplicated()))
    assert estimates(told_once, cluster="text", **columns).contributions[0] == pytest.approx(found.contributions[0])
    # Trials are units by the largest cluster and the range of all numbers.
    frame = pd.DataFrame({"a": np.ones(100), "b": np.r_[np.zeros(99), 5.0], "text": np.arange(100) // 4})
    for numbers, of, trials in ((frame[["a", "b"]], None, 20), (frame, "text", 5), ({"a": np.zeros(64)}, None, 64)):
        assert estimates(numbers, cluster=of).trials == pytest.approx(trials)


def test_units_that_lack_a_number__are_left_out_of_comparisons_with_it_alone():
    frame = pd.DataFrame(VALUES[:, :3], columns=["a", "b", "c"], dtype="Float64")
    frame.loc[[3, 7], "b"] = pd.NA
    table = table_of(frame, Columns(missing="drop"))
    numbers = numbers_of(table, [[0, 1], [2]])
    means = [*np.delete(VALUES, [3, 7], axis=0)[:, :2].mean(axis=0), VALUES[:, 2].mean()]
    assert numbers.estimates.values == pytest.approx(means) and numbers.estimates.n_blocks.tolist() == [88, 88, 90]
    assert numbers.missing.sum(axis=0).tolist() == [0, 2, 0] and numbers.used.all()
    alone = numbers_of(table._replace(missing="refuse"), [[0], [2]])
    assert alone.estimates.values[[0, 2]] == pytest.approx(VALUES[:, [0, 2]].mean(axis=0)) and not alone.missing.any()


def test_conditions_without_a_common_unit__are_independent_and_lack_nothing():
    apart = LONG[(LONG["size"] == 10) | (LONG.task < 70)].assign(run=lambda rows: rows["size"] * 100 + rows.task)
    found = estimates(apart, unit="run", value="score", factors=("model", "size"))
    at = [found.conditions.index(each) for each in CONDITIONS]
    own = VALUES[:, [0, 2]], VALUES[:70, [1, 3]]
    expected = np.zeros((4, 4))
    expected[np.ix_([0, 2], [0, 2])], expected[np.ix_([1, 3], [1, 3])] = (np.cov(x.T) / len(x) for x in own)
    assert covariance(found, at) == pytest.approx(expected, abs=1e-12)
    assert found.n_blocks[at].tolist() == [90, 70, 90, 70]


TWO = pd.DataFrame(VALUES[:, :2], columns=["a", "b"])
HOLED, TWICE = TWO.assign(b=TWO.b.where(TWO.index != 4)), pd.concat([LONG, LONG.iloc[[0]]])


@pytest.mark.parametrize("numbers, columns, said", [
    (HOLED, {}, 'unit 4, condition = b: no number, and 1 of 90 units lack one; mend that, or state missing'),
    (TWO.replace({VALUES[2, 0]: np.inf}), {}, "unit 2, condition = a: infinite"),
    (TWO * 1e-80, {}, "numbers: all below 1e-60, so that their squares vanish; give them in another unit"),
    (TWICE, OF_LONG, "task = 0, model = A, size = 10: two numbers"),
    (LONG, {"unit": "tusk", "value": "score"}, "unit = 'tusk': no column of the numbers; did you mean \"task\"?"),
    (pd.concat([LONG, LONG[["model"]]], axis=1), OF_LONG, "factors = 'model': the name of 2 columns; rename all but"),
    (LONG, {"value": "score"}, "unit: missing; name the column of units"),
    (LONG[["task", "score"]], OF_LONG, "factors: none"),
    (TWO.assign(t=[0, *range(89)]), {"unit": "t"}, "two rows; give one for each unit, state value, or state t as"),
    (TWO.assign(c=["0.5", "1,5"] * 45), {}, "no real numbers ('1,5' is none)"),
    (LONG.assign(note=range(360)), OF_LONG, "360 conditions in 360 rows, told apart by note; name in factors"),
    (LONG.replace({"model": {"B": None}}), OF_LONG,
     f"model: empty at task = 0, score = {VALUES[0, 2]}; fill it, or name in factors"),
    (TWO.assign(row=range(1, 91)), {}, "row: successive integers number the rows and are no condition; state"),
    (LONG[LONG.task < np.where(LONG.model == "A", 45, 0) + 45], OF_LONG, "45 of 90 units lack one"),
    (TWO * np.nan, {"missing": "drop"}, "no unit has numbers under condition = a; give them, or select other"),
    (TWO.assign(c=None), {"cluster": "c"}, "c: empty for a unit"),
    (LONG.assign(c=range(360)), OF_LONG | {"cluster": "c", "factors": ("model", "size")},
     "task = 0: in several clusters"),
    ({"a": [1.0], "b": [1.0, 2.0]}, {}, "give arrays of one length"),
    (TWO.iloc[:0], {}, "numbers: empty"),
    (VALUES, {}, "numbers of type ndarray"),
    (LONG.assign(c=None), OF_LONG | {"cluster": "c", "factors": ("model", "size")}, "c: empty for a unit"),
    (pd.DataFrame(VALUES[:, :2], columns=["a", "a"]), {}, "two columns {'condition': 'a'}"),
    (pd.DataFrame(VALUES[:, :2], columns=[1.0, np.nan]), {}, "condition: a level is NaN, which no claim"),
    (pd.DataFrame(VALUES[:, :2] * 1j, columns=["a", "b"]), {}, "a: of type complex128, no real numbers"),
])  # fmt: skip
def test_mistakes__are_one_line_that_says_where(numbers, columns, said):
    refuses(re.escape(said), estimates, numbers, **columns)


def tie(frame, margin, **options):
    claims = {"tie": {"kind": "equals", "value": 0.0, "margin": margin, **AGAINST}}
    return simstudy.judge(frame, claims, **options).to_dataframe().loc["tie"]


def test_interval_of_the_truth__is_that_of_the_paired_difference():
    found = tie(PAIR + np.arange(100)[:, None], 1.0)
    difference = PAIR.a - PAIR.b
    printed = difference.sem() * widening_of((difference - difference.mean()).values)
    assert found.estimate == pytest.approx(difference.mean()) and found.mcse == pytest.approx(printed)
    assert found.confidence_lower < difference.mean() - 2 * difference.sem() < found.estimate


def test_gaps_under_one_condition__change_no_claim_that_does_not_name_it():
    """A method that fails where errors are large would else bias the errors of all others."""
    frame = PAIR.assign(c=PAIR.a.where(PAIR.a < 1.0))
    claims = {name: {"kind": "larger_than", "value": -9.0, "where": {"condition": name}} for name in "abc"}
    each = simstudy.judge(frame, claims, missing="drop")
    assert each.to_dataframe().estimate.tolist() == pytest.approx(frame.mean().tolist())
    n = int(frame.c.isna().sum())
    assert each.summary[0].endswith(f"{n} units left out of comparisons for lack of a number ({n} under condition = c)")
    assert simstudy.judge(frame, {"a": claims["a"]}).n_dropped == 0 < n


def test_too_few_clusters_or_one_unit_that_holds_a_fifth_of_the_squared_error__decide_nothing():
    frame = pd.concat([PAIR.iloc[:60].assign(text=range(60))] * 4)
    assert tie(frame.drop(columns="text"), 10.0).verdict == "supported"
    found = tie(frame, 10.0, cluster="text")
    assert found.verdict == "undecided" and found.no_verdict_because == "60 clusters, 64 are needed"
    assert np.isnan(found.further_units)
    found = tie(PAIR.assign(a=PAIR.a.where(PAIR.index != 7, 100.0)), 0.5)
    assert found.verdict == "undecided" and found.no_verdict_because.startswith("one unit of 100 holds")
    assert np.isnan(found.further_units)  # nobody knows how large the next such unit is


@pytest.mark.parametrize(("margin", "verdict"), [(0.05, "undecided"), (0.2, "supported")])
def test_units_that_do_not_differ__are_no_proof_of_a_tie(margin, verdict):
    answers = np.r_[np.ones(95), np.zeros(5)]
    for scale in (1.0, 5.0):
        found = tie({"a": scale * answers, "b": scale * answers}, scale * margin)
        assert found.verdict == verdict and found.mcse == 0.0
    line = simstudy.judge({"a": answers**0.0}, {"c": {"kind": "larger_than", "value": 0.99}}).lines[0]
    assert (line.estimate, line.verdict_draws) == ("1.000 ± 0.014", "")


def test_further_units_and_reasons__are_those_of_a_table_that_goes_on_as_it_began():
    centred = PAIR - PAIR.mean()
    times = 1 + (found := tie(centred, 0.2)).further_units / 100
    assert found.verdict == "undecided" and 1.5 < times < 100
    verdicts = [tie(pd.concat([centred] * count), 0.2).verdict for count in (int(times) - 1, int(times) + 2)]
    assert verdicts == ["undecided", "supported"]
    near, far = (tie(PAIR, 9.0), {"kind": "larger_than", "value": 9.0, **AGAINST})
    both = simstudy.judge(PAIR, {"near": {"kind": "equals", "value": 0, "margin": 9.0, **AGAINST}, "far": far})
    end = (near.confidence_upper + both.to_dataframe().confidence_upper["near"]) / 2
    found = tie(PAIR.assign(a=PAIR.a - (end + 1.0)), 1.0)
    assert found.verdict == "undecided" and found.confidence_upper < found.claimed_lower
    assert found.no_verdict_because == "outside, but what contradicts is corrected for 2 bounds"


LAWS = {  # tables whose two conditions have the same mean
    "normal": lambda rng, n: pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n)}),
    "exponential": lambda rng, n: pd.DataFrame({"a": rng.exponential(size=n), "b": np.ones(n)}),
    "right answers": lambda rng, n: pd.DataFrame({"a": rng.random(n) < 0.7, "b": rng.random(n) < 0.7}),
    "rare events": lambda rng, n: pd.DataFrame({"a": rng.random(n) < 0.004, "b": rng.random(n) < 0.004}),
    "texts": lambda rng, n: pd.DataFrame(
        {"a": np.repeat(rng.normal(size=n // 2 + 1), 2)[:n] + rng.normal(size=n), "b": 0.0, "text": np.arange(n) // 2}
    ),
}
ON_THE_BOUNDARY = {
    "larger": {"kind": "larger_than", "value": 0.0, **AGAINST},
    "near": {"kind": "equals", "value": 0.1, "margin": 0.1, **AGAINST},
}


@pytest.mark.parametrize("law, claim, studies, last", [
    ("normal", "larger", 60, 600), *(rare(law, claim, 1000, 4096) for law in LAWS for claim in ON_THE_BOUNDARY),
])  # fmt: skip
def test_looking_again_after_more_units__keeps_the_level(law, claim, studies, last):
    rng, wrong, looks = np.random.default_rng(sum(map(ord, law + claim))), 0, [64]
    while looks[-1] < last:
        looks.append(min(looks[-1] * 5 // 4, last))
    one = read_claims({"c": ON_THE_BOUNDARY[claim]})[1].claims["c"]
    for _ in range(studies):
        table = LAWS[law](rng, last)
        columns = Columns(cluster="text" if "text" in table else None)
        found = (judgement_of(one, numbers_of(table_of(table[:look], columns)).estimates, 1) for look in looks)
        wrong += any(judgement.verdict != "undecided" for judgement in found)
    assert wrong / studies <= LEVEL + 3.0 * (LEVEL * (1 - LEVEL) / studies) ** 0.5


@pytest.mark.rare
@pytest.mark.parametrize("looks", ["one", "any"])
@pytest.mark.parametrize("methods", [4, 20])
def test_equal_methods__are_seldom_told_apart(methods, looks):
    rng, studies = np.random.default_rng(methods), 1000
    tables = (pd.DataFrame(rng.normal(size=(100, methods)) + rng.normal(size=(100, 1))) for _ in range(studies))
    rate = sum(simstudy.tied_sets(each, looks=looks).conditions.sets.nunique() > 1 for each in tables) / studies
    assert rate <= LEVEL + 3.0 * (LEVEL * (1 - LEVEL) / studies) ** 0.5


def test_claims__may_be_tables_text_a_file_or_a_study(tmp_path):
    entries = {"kind": "larger_than", "value": -1.0, **AGAINST}
    text = 'numbers.missing = "drop"\n[claims.c]\nkind = "larger_than"\nvalue = -1.0\n'
    text += 'where.condition = "a"\nversus.condition = "b"\n'
    (path := tmp_path / "claims.toml").write_text(text)
    ways = [{"c": entries}, text, path, str(path), simstudy.Study("s", title="t", aim="a").claim("c", **entries)]
    found = [simstudy.judge(PAIR, way).to_dataframe() for way in ways]
    assert all(each.equals(found[0]) for each in found) and found[0].index.tolist() == ["c"]


@pytest.mark.parametrize("entries, verdict", [
    ({"kind": "monotone", "x": "size", "direction": "increasing"}, "supported"),
    ({"kind": "optimum", "x": "size", "value": 10.0}, "supported"),
    ({"kind": "violated_pairs", "against": "size", "direction": "increasing", "at_most": 0.1}, "supported"),
    ({"kind": "larger_than", "value": 2.5}, "contradicted"),
    ({"kind": "larger_than", "where": {"size": 30}, "versus": {"size": 10}, "compared": "ratio"}, "supported"),
    ({"kind": "slope", "x": "size", "scale": "log_log", "value": 1.0, "margin": 0.5}, "supported"),
])  # fmt: skip
def test_kinds_of_designs__judge_means_by_a_factor(entries, verdict):
    noise = np.random.default_rng(1).normal(size=(200, 1)) + 0.3 * np.random.default_rng(2).normal(size=(200, 3))
    frame = pd.DataFrame(noise + np.array([1.0, 2.0, 3.0]), columns=pd.Index([10, 20, 30], name="size"))
    assert simstudy.judge(frame, {"c": entries}).dataset.verdict.item() == verdict
    assert simstudy.judge(0.0 * frame, {"c": entries}).n_units == 200  # without warnings, as of a logarithm


@pytest.mark.parametrize("claims, said", [
    ({"c": {"kind": "agrees_with_theory", "margin": 0.1}}, "unknown kind; known: equals, larger_than"),
    ({"c": {"kind": "larger_than", "where": {"condition": "z"}}}, "selects nothing; there is condition ="),
    ({"c": {"kind": "larger_than", "where": {"n_heads": 2}}}, "unknown key; known: condition"),
    ({"c": {"kind": "monotone", "x": "condition", "direction": "increasing"}}, "not a number everywhere"),
    ({"c": {"kind": "violated_pairs", "at_most": 0.1, "against": "condition"}}, "is not a number under every"),
    ({"c": {"kind": "optimum", "x": "condition", "source": "leading"}}, "claims.c.value: missing"),
    ("no such file.toml", "cannot be read"),
    ("[claims.c]\nkind = ", "not valid TOML"),
    (7, "claims of type int; give tables by name"),
])  # fmt: skip
def test_mistakes_in_claims__are_those_of_designs(claims, said):
    with pytest.raises(UserError, match=re.escape(said)):
        simstudy.judge(PAIR, claims)
    for argument, given in {"missing": "maybe", "cluster": 3, "factors": "size"}.items():
        with pytest.raises(UserError, match=f"^judge: {argument} = .*: Input should be (a valid (str|list)|'ref)"):
            simstudy.judge(PAIR, {"c": {"kind": "larger_than", "value": 9.0}}, **{argument: given})


@pytest.mark.parametrize("n", [2, 30, 1000])
def test_one_look__has_the_p_values_and_intervals_of_scipy(n):
    rng = np.random.default_rng(n)
    means, shares = rng.normal([0.2, 0.0], size=(n, 2)), rng.random((n, 2)) < [0.7, 0.6]
    plus, minus = int((shares[:, 0] & ~shares[:, 1]).sum()), int((shares[:, 1] & ~shares[:, 0]).sum())
    share = {"kind": "larger_than", "where": {"condition": "a"}, "value": 0.55}
    t, binomial = stats.ttest_rel(*means.T, alternative="greater"), stats.binomtest(int(shares[:, 0].sum()), n)
    larger = {"kind": "larger_than", **AGAINST}
    for numbers, claim, p, ends in (
        (means, larger, t.pvalue, stats.ttest_rel(*means.T).confidence_interval(0.9)),
        (shares, larger, stats.binomtest(plus, max(plus + minus, 1), 0.5, "greater").pvalue, None),
        (shares, share, stats.binomtest(int(shares[:, 0].sum()), n, 0.55, "greater").pvalue,
         binomial.proportion_ci(0.9)),
        *((np.full((n, 2), end), {"kind": "equals", "value": end, "margin": 0.3}, 0.7**n, None) for end in (0.0, 1.0)),
        (np.zeros((n, 2)), share | {"value": 0.01}, 1.0, None),
    ):  # fmt: skip
        found = simstudy.judge(dict(zip("ab", numbers.T, strict=True)), {"c": claim}, looks="one")
        row = found.to_dataframe().loc["c"]
        assert row.p_in_favour == pytest.approx(p, rel=1e-9)
        if ends is not None:
            assert (row.confidence_lower, row.confidence_upper) == pytest.approx((ends.low, ends.high), rel=1e-9)
    assert "at one look" in found.dataset.p_against.long_name and "all looks" not in found.dataset.p_against.long_name


@pytest.mark.parametrize("n", [8, 20])
@pytest.mark.parametrize("moved", [0.0, 0.1, -0.35])
def test_difference_of_shares__has_an_interval_that_covers_whatever_they_are(n, moved):
    plus, minus = np.array([(i, j) for i in range(n + 1) for j in range(n + 1 - i)], float).T
    found = Contrast((plus - minus) / n, 0.1, n, n - 1, 0.0, 0.0, one_look=True, plus=plus, minus=minus)
    for differ in np.linspace(abs(moved), 1.0, 9):
        up = (differ + moved) / 2
        chance = stats.multinomial.pmf(np.c_[plus, minus, n - plus - minus], n, [up, differ - up, 1 - differ])
        for p in (p_above(found, moved), p_below(found, moved)):
            assert chance[p < 0.05].sum() <= 0.05
    assert ((exact_end(found, 0.05) >= 0.0) == (stats.binom.sf(plus - 1, plus + minus, 0.5) < 0.05)).all()
    ends = interval(found.at(9), 0.05)
    assert p_above(found.at(9), ends[0] - 1e-9) <= 0.05 + 1e-6 >= p_below(found.at(9), ends[1] + 1e-9)


def test_ratio__is_no_harder_to_prove_above_a_smaller_bound():
    signs, claim = np.tile([-1, 1], 50), {"kind": "larger_than", **AGAINST, "compared": "ratio"}
    frame = pd.DataFrame({"a": np.r_[2.88, 0.8 + 0.4 * np.sort(signs)], "b": np.r_[3.6, 1.0 + 0.9 * signs]})
    found = simstudy.judge(frame, {f"above-{k}": claim | {"value": k / 10} for k in range(6)}).to_dataframe()
    assert found.p_in_favour.is_monotonic_increasing and (found.verdict[:4] == "supported").all()


def test_what_looks_cost__is_said():
    frame = PAIR.assign(c=RNG.exponential(size=100) ** 2)
    means = "any number of looks{} intervals of means {} 1.7 times as long"
    held = means.format(":", "are") + ' as at one look (looks = "one").', means.format("", "would be") + "."
    for looks, said in ("any", held[0]), ("one", f"one look, at as many units as were fixed before; at {held[1]}"):
        found = simstudy.judge(frame, {"c": {"kind": "larger_than", **AGAINST}}, looks=looks)
        assert found.cost == f"Verdicts hold at {said}" and found.cost in repr(found)
    assert "100 units, 3 conditions" in repr(found) and "<table" in found._repr_html_()
    assert found.comparisons().statistic.tolist() == ["mean at condition = a minus condition = b"]
    mild = {"a": np.arange(99.0) ** 2}  # at 5 %, but not at a hundredth of that
    for numbers, count, noted in ((frame, 1, "1 comparison"), (mild, 1, ""), (mild, 100, "100 comparisons")):
        cost = simstudy.judge(numbers, {f"c{k}": {"kind": "larger_than"} for k in range(count)}, looks="one").cost
        assert cost.endswith(f"In {noted} units are too few or too skewed for Student's t.") == bool(noted)
    assert np.isnan(simstudy.judge({"a": [9.0]}, {"c": {"kind": "larger_than"}}, looks="one").to_dataframe().mcse["c"])
    (wanted,) = (found := simstudy.judge(PAIR, {"c": {"kind": "larger_than", **AGAINST}}, looks="one")).wanted
    assert "units, all of them new, would probably decide" in wanted and wanted in repr(found)


ANSWERS = {"a": [True, None, False] * 30, "b": [True, False, False] * 30}
FRAMES = {
    "objects": pd.DataFrame,
    "nullable": lambda table: pd.DataFrame(table).convert_dtypes(dtype_backend="numpy_nullable"),
    "arrays": dict,
    "narwhals": lambda table: nw.from_native(pd.DataFrame(table)),
    "arrow": lambda table: (
        pytest.importorskip("pyarrow") and pd.DataFrame(table).convert_dtypes(dtype_backend="pyarrow")
    ),
    "polars": lambda table: pytest.importorskip("polars").DataFrame(table),
    "lazy": lambda table: pytest.importorskip("polars").LazyFrame(table),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_right_wrong_and_missing__are_read_from_frames_of_all_libraries(kind):
    found = estimates(FRAMES[kind](ANSWERS), missing="drop")
    assert found.values == pytest.approx([0.5, 0.5]) and found.n_blocks.tolist() == [60, 60]
    refuses("unit 1, condition = a: no number, and 30 of 90 units lack one", estimates, FRAMES[kind](ANSWERS))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells the most memory of a process")
def test_thousands_of_conditions__take_little_memory_and_too_many_are_refused():
    program = """
import re, numpy as np, pandas as pd, simstudy
claims = {"c": {"kind": "larger_than", "versus": {"condition": 3999}}}
simstudy.judge(pd.DataFrame(np.random.default_rng(0).normal(size=(100, 4000))), claims)
print(int(re.search(r"VmHWM:\\s*([0-9]+)", open("/proc/self/status").read())[1]) >> 10)
"""
    assert int(python("-c", program).stdout) <= 200
    refuses("20,001 conditions; judge at most 20,000 together", estimates, pd.DataFrame(np.zeros((1, 20001))))


@pytest.mark.parametrize("looks", ["one", "any"])
def test_tied_sets__share_a_number_where_no_difference_is_shown(looks):
    rng, means = np.random.default_rng(3), [0.0, 0.0, 0.3, 0.5, 0.5, 0.8]
    frame = pd.DataFrame(rng.normal(size=(300, 6)) + rng.normal(size=(300, 1)) + means, columns=list("abcdef"))
    found = simstudy.tied_sets(frame, looks=looks)
    order = found.conditions.condition.tolist()
    sets = [set(each.split()) for each in found.conditions.sets]
    assert sorted(order[:1]) == ["f"] and found.conditions["mean"].is_monotonic_decreasing and len(found.pairs) == 15
    raw = [stats.ttest_rel(frame[order[i]], frame[order[j]]).pvalue for i, j in found.pairs[["first", "second"]].values]
    if looks == "one":  # Holm's adjustment, as others compute it
        stepped = np.maximum.accumulate(np.sort(raw) * np.arange(15, 0, -1)).clip(max=1.0)
        assert found.pairs.p.values == pytest.approx(stepped[stats.rankdata(raw, "ordinal") - 1])
    assert (found.pairs.p >= np.array(raw)).all()
    shared = [bool(sets[pair.first] & sets[pair.second]) for pair in found.pairs.itertuples()]
    assert shared == (found.pairs.p >= 0.05).tolist() and "Student" not in found.note
    assert {"a", "b"} <= {name for name, each in zip(order, sets, strict=True) if each & sets[order.index("a")]}
    refuses("1 condition; give 2 to 200", simstudy.tied_sets, frame[["a"]])
    assert all(each.error.isna().all() for each in simstudy.tied_sets(frame[:1], looks=looks)[:2])
    for power, names, said in ((9, "b", "In 1 pair units are"), (2, "bcdef", "In 5 pairs units are")):  # by all pairs
        skewed = {"a": np.arange(99.0) ** power} | dict.fromkeys(names, np.zeros(99))
        assert (said in simstudy.tied_sets(skewed, looks=looks).note) == (looks == "one")
