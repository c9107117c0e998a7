"""What a study answers, what its confirmations found, and the level of all studies of a page together."""

import math
import re

import pytest
from builders import edited
from builders_results import DESIGN, build_design, build_results

from simstudy.design.claims import LEVEL
from simstudy.execution.store import store_of
from simstudy.report import answer
from simstudy.report.all_studies import campaign
from simstudy.report.answer import formulas_of, groups, headline, said_of
from simstudy.report.confirmed import Confirmed, Found, claims_of, history_of, standing_in, standing_of, verdict_of
from simstudy.report.page import render
from simstudy.report.tables import verdict_lines


@pytest.fixture(scope="module")
def lines(results):
    return verdict_lines(results)


def test_headline__counts_verdicts_and_says_whether_they_are_as_declared(lines):
    holds, fails, opens = lines
    assert headline([]) == "The design makes no claim."
    assert headline([holds]) == "Of 1 claim 1 is supported, as declared. "
    assert headline([holds, fails]) == ("Of 2 claims 1 is supported and 1 is contradicted, all as declared. ")
    assert "1 is inconclusive, 1 not as declared" in headline(lines) and opens.declared == "supported"


def test_headline__counts_what_was_confirmed(lines):
    holds, fails, _ = lines
    agreed = holds._replace(confirmed="supported")
    assert headline([agreed, fails]).endswith(
        "1 of these verdicts was reached again on seeds that follow from a seal and a beacon."
    )
    alone = fails._replace(confirmed="contradicted", runs=(("confirmed", *fails.runs[0][1:]),))
    assert headline([agreed, alone]).endswith(
        "All of these verdicts were reached again on seeds that follow from a seal and a beacon."
    )
    assert headline([agreed, fails._replace(confirmed="divided")]).endswith(
        "; on 1 the confirmation says something else."
    )


def test_groups__put_the_abstract_first_in_its_order(lines):
    holds, fails, opens = lines
    given = [holds._replace(origin="foil"), fails._replace(origin="abstract C6"), opens._replace(origin="abstract C5")]
    found = groups(given)
    assert [group["origin"] for group in found] == ["abstract C5", "abstract C6", "foil"]
    assert [line.claim for group in found for line in group["lines"]] == ["floor", "agrees", "falls"]
    assert found[0]["meaning"].startswith("principal angles")


def test_what_is_said__of_a_claim_declared_false_is_no_failure(lines):
    holds, fails, opens = lines
    assert [said_of(line) for line in lines] == ["holds", "does not hold, as declared", "open, not as declared"]
    assert said_of(holds._replace(confirmed="contradicted")) == "does not hold, not as declared"
    assert said_of(fails._replace(confirmed="contradicted")) == "does not hold, as declared"
    assert said_of(opens._replace(confirmed="divided")) == "divided, not as declared"


def test_standing__of_a_pilot_of_a_confirmation_and_of_both(lines):
    holds = lines[0]
    own = holds._replace(runs=(("confirmed", *holds.runs[0][1:]),))
    assert [answer.standing_of(line) for line in (holds, own)] == ["pilot, not confirmed", "confirmed"]
    assert answer.standing_of(holds._replace(confirmed="supported")) == "confirmed"
    assert answer.standing_of(holds._replace(confirmed="divided")) == "pilot supported, confirmed divided"


WITHOUT_FIGURES = re.sub(r"\[figures\..*?(?=\n\[profiles)", "", DESIGN, flags=re.DOTALL)
VALUE = 'measure = "mean_covariance"\nvalue = { kind = "correlation_floor", head_dim = 2, bandwidth = 0.5 }'


def test_page__names_formula_parameters_and_equation_of_a_claimed_value(tmp_path):
    design = build_design(tmp_path, edited(WITHOUT_FIGURES, 'measure = "mean_covariance"', VALUE))
    ((claim, formula),) = formulas_of(design).items()
    assert claim == "floor" and [formula[name] for name in ("name", "parameters", "equation")] == [
        "correlation_floor", "head_dim = 2, bandwidth = 0.5", "correlation-floor"]  # fmt: skip
    assert "(1 − κ²)^{p/2}" in formula["meaning"]
    page = " ".join(render(build_results(design), design, {}).split())
    article = page[page.index(f'id="{design.study.name}-floor"') :].partition("</article>")[0]
    assert "<code>correlation_floor</code> at head_dim = 2, bandwidth = 0.5." in article
    assert "Equation <i>correlation-floor</i>" in article and page.count("Equation <i>") == 1


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
def twofold(tmp_path):
    """A run in which the first claim has two comparisons, and is decided by the first."""
    found = build_results(build_design(tmp_path))
    found["comparison_claim"] = "comparison", ["falls", "falls", "agrees"]
    found["comparison_statistic"] = "comparison", ["first", "second", str(found.statistic.values[1])]
    found["statistic"] = "claim", ["first", *found.statistic.values.tolist()[1:]]
    return found


def test_what_decides_the_pilot__is_shown_of_a_run_that_another_decides(twofold):
    other = twofold.copy()
    other["statistic"] = "claim", ["second", *twofold.statistic.values.tolist()[1:]]
    line = verdict_lines(other, standing=standing_of(twofold))[0]
    assert (line.statistic, line.decided_by, line.estimate) == ("first", "second", "0.500 ± 0.012")
    assert verdict_lines(twofold)[0].decided_by == ""


def test_what_theory_names__stands_before_what_decides(twofold):
    twofold["standing_statistic"] = "claim", ["second", "", ""]
    line = verdict_lines(twofold)[0]
    assert (line.statistic, line.decided_by, line.estimate) == ("second", "first", "0.600 ± 0.012")


def test_pilot_of_another_text_of_the_design__does_not_say_what_stands(twofold, tmp_path):
    design = build_design(tmp_path)
    store = store_of(design, tmp_path)
    store.write_dataset("results.nc", twofold)
    assert standing_in(design, store)["falls"] == "first"
    assert standing_in(design.model_copy(update={"text": f"{design.text}# Changed"}), store) is None


def test_runs_of_another_quantity__are_on_no_axis(twofold):
    row = claims_of(twofold, {"falls": "elsewhere"})[0]
    assert math.isnan(row["found"].estimate) and row["found"].verdict == "supported"
    assert row["statistic"] == "elsewhere" and math.isnan(row["claimed_lower"])


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
    kinds = ["contradicted" if a < LEVEL else "supported" if f < LEVEL else "inconclusive"
             for a, f in zip(p_against, p_in_favour, strict=True)]  # fmt: skip
    for column, values in (("p_against", p_against), ("p_in_favour", p_in_favour), ("verdict", kinds)):
        results[column] = "claim", values
    return results, design


def test_one_study__has_the_level_of_the_campaign(tmp_path):
    found = campaign([judged(tmp_path, [0.04, 1.0, 1.0], [1.0, 0.04, 0.2])])
    assert found["verdicts"] == {"made-up": {"falls": "contradicted", "agrees": "supported", "floor": "inconclusive"}}
    assert tuple(found[name] for name in ("n_studies", "n_decided", "n_hold")) == (1, 2, 2)


@pytest.mark.parametrize("side", ["contradicted", "supported"])
def test_of_several_studies__each_gets_its_share_of_the_level(tmp_path, side):
    p_values = [LEVEL / 3 * 0.99, LEVEL / 3 * 1.01, 0.9 * LEVEL]
    columns = (p_values, [1.0] * 3) if side == "contradicted" else ([1.0] * 3, p_values)
    studies = [judged(tmp_path, *columns, name=name) for name in ("one", "two", "three")]
    found = campaign(studies)
    for name in ("one", "two", "three"):
        assert found["verdicts"][name] == {"falls": side, "agrees": "inconclusive", "floor": "inconclusive"}
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
        "falls": "contradicted", "agrees": "contradicted", "floor": "contradicted", "path": "inconclusive",
    }  # fmt: skip
