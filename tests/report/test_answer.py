"""What a study answers, and the formulas that its claims name."""

import re

import pytest
from builders import edited
from builders_results import DESIGN, build_design, build_results

from simstudy.report.answer import formulas_of, groups, headline, said_of, standing_of
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
    assert [standing_of(line) for line in (holds, own)] == ["pilot, not confirmed", "confirmed"]
    assert standing_of(holds._replace(confirmed="supported")) == "confirmed"
    assert standing_of(holds._replace(confirmed="divided")) == "pilot supported, confirmed divided"


WITHOUT_FIGURES = re.sub(r"\[figures\..*?(?=\n\[profiles)", "", DESIGN, flags=re.DOTALL)
VALUE = 'measure = "mean_covariance"\nvalue = { kind = "correlation_floor", head_dim = 2, bandwidth = 0.5 }'


def test_page__names_formula_parameters_and_equation_of_a_claimed_value(tmp_path):
    design = build_design(tmp_path, edited(WITHOUT_FIGURES, 'measure = "mean_covariance"', VALUE))
    ((claim, formula),) = formulas_of(design).items()
    assert claim == "floor" and formula[:2] == ("correlation_floor", "head_dim = 2, bandwidth = 0.5")
    assert "(1 − κ²)^{p/2}" in formula.meaning and formula.equation == "correlation-floor"
    page = " ".join(render(build_results(design), design, {}).split())
    article = page[page.index(f'id="{design.study.name}-floor"') :].partition("</article>")[0]
    assert "<code>correlation_floor</code> at head_dim = 2, bandwidth = 0.5." in article
    assert "Equation <i>correlation-floor</i>" in article and page.count("Equation <i>") == 1
