"""Formulas that claims name: with their parameters and the equation behind them, where the verdict stands."""

from __future__ import annotations

import re

from builders import edited
from builders_results import DESIGN, build_design, build_results

from simstudy.report.answer import formulas_of
from simstudy.report.page import render

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
