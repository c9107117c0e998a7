"""Claims on measures or moments that their cells cannot have are refused before the run, with those that exist."""

import numpy as np
import pytest
from builders import DESIGN, edited, loaded, minimal_cell, mistakes, run

from simstudy.design.answerable import ORDER, lacking, tail
from simstudy.design.measures import INDICES, MEASURES, STATISTICS

ANTS = {"learner": {"kind": "ant_colony"}, "noise_treatment": "drawn"}


def of_one_head(text: str) -> str:
    text = edited(edited(text, "n_heads = 2", "n_heads = 1"), 'arrangement = "rotated"', 'arrangement = "haar"')
    return edited(text, "angle = [0, 45, 90]", "n_keys = [20, 30, 40]").replace('x = "angle"', 'x = "n_keys"')


def test_measure_that_some_selected_cells_lack__is_refused_and_that_of_the_others_is_not(tmp_path):
    text = edited(DESIGN, 'measure = "mse"', 'measure = "regret"')
    text = edited(text, 'arrangement = "rotated"', 'arrangement = "orthogonal"')
    text = edited(text, "[precision]", 'noise_treatment = "drawn"\n[precision]')
    learners = 'learner = [{ kind = "nadaraya_watson" }, { kind = "ant_colony" }]'
    text = edited(text, "angle = [0, 45, 90]\nbandwidth = [0.5, 1.0]", f"{learners}\nn_heads = [2, 3]")
    text = edited(text, 'hue = "bandwidth"', 'hue = "learner"').replace('x = "angle"', 'x = "n_heads"')
    assert "measure = 'regret': does not exist in 2 of 4 cells (heads); " in mistakes(tmp_path, text)
    where = f'measure = "regret"\nwhere = {{ learner = "{minimal_cell(**ANTS).coordinates["learner"]}" }}'
    design = loaded(tmp_path, edited(text, 'measure = "regret"', where))
    assert design.claims["mse-falls"].measure == "regret"


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ('y = "mse"', 'y = "{}"', "figures.mse.y"),
        ("relative_mcse = { mse = 0.05 }", "absolute_mcse = {{ {} = 0.05 }}", "precision.absolute_mcse"),
        ("[grids.angles.factors]", "[grids.angles.precision]\nrelative_mcse = {{ {} = 0.05 }}\n[grids.angles.factors]",
         "grids.angles.precision.relative_mcse"),
    ],
)  # fmt: skip
def test_measure_that_no_cell_has__is_neither_drawn_nor_wanted_to_some_error(tmp_path, old, new, path):
    message = mistakes(tmp_path, edited(DESIGN, old, new.format("discrepancy")))
    assert f"{path} = 'discrepancy': does not exist in 6 of 6 cells (heads); it needs a reference" in message
    alone = edited(DESIGN, old, new.format("correlation"))
    loaded(tmp_path, alone)
    alone = of_one_head(alone)
    message = mistakes(tmp_path, alone)
    assert f"{path} = 'correlation': does not exist in 6 of 6 cells (heads); it compares heads; use two" in message
    # Where some cells have two heads the others have no point.
    some = edited(alone, "bandwidth = [0.5, 1.0]", "n_heads = [1, 2]").replace('hue = "bandwidth"', 'hue = "n_heads"')
    loaded(tmp_path, some)


def test_error_wanted_that_no_cell_inherits__is_no_mistake(tmp_path):
    own = "[grids.angles.precision]\nrelative_mcse = { mse = 0.05 }\n[grids.angles.factors]"
    text = edited(DESIGN, "relative_mcse = { mse = 0.05 }", "relative_mcse = { discrepancy = 0.05 }")
    assert "precision.relative_mcse = 'discrepancy': does not exist in 6 of 6" in mistakes(tmp_path, text)
    loaded(tmp_path, edited(text, "[grids.angles.factors]", own))


def keys(df):
    return {"kind": "student_t", "df": df}


QUADRATIC = {"key_distribution": keys(3.0), "regression": {"kind": "sum", "terms": ["linear", "quadratic"]}}


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        ({"noise": keys(3.0)}, np.inf),  # integrated out
        ({"noise": keys(3.0), "noise_treatment": "drawn"}, 3.0),
        ({"noise": keys(3.0), "noise_treatment": "drawn", "noise_sd": 0.0}, np.inf),
        ({"key_distribution": keys(3.0), "regression": "ridge"}, np.inf),
        (QUADRATIC, 1.5),
        ({"key_distribution": keys(3.0), "noise": {"kind": "heteroscedastic"}}, 3.0),
        (QUADRATIC | {"noise": keys(2.2), "noise_treatment": "drawn", "regression": "linear"}, 2.2),
    ],
    ids=str,
)
def test_tail__is_that_of_the_heaviest_part(settings, limit):
    assert tail(minimal_cell(**settings))[0] == limit


def test_order__is_known_of_every_measure():
    bounded = {"query_correlation", "discrepancy", "failure_rate"}
    assert set(ORDER) <= set(MEASURES) | set(STATISTICS) | set(INDICES)
    assert set(MEASURES) <= set(ORDER) and not bounded & set(ORDER)
    heavy = [minimal_cell(noise=keys(3.0), noise_treatment="drawn"), minimal_cell()]
    assert lacking(heavy, 2) == "" and "in 1 of 2 cells" in lacking(heavy, 4)


HEAVY = edited(DESIGN, "[heads]", 'key_distribution = { kind = "student_t", df = %s }\n\n[heads]')


def test_claim_on_a_measure_that_need_not_exist__is_refused(tmp_path):
    loaded(tmp_path, HEAVY % 2.5)
    message = mistakes(tmp_path, edited(HEAVY % 2.5, 'regression = { kind = "ridge" }', 'regression = "quadratic"'))
    assert "claims.mse-falls.measure = 'mse': need not exist: that takes moments of order 2" in message
    assert "below 1.25 alone are sure to exist in 6 of 6 cells (a degree of 2 under keys student_t(df=2.5))" in message


def test_measure_without_an_error__gets_no_verdict(tmp_path):
    text = edited(DESIGN, "[heads]", 'noise = { kind = "student_t", df = 3 }\n\n[heads]')
    design = loaded(tmp_path, edited(text, "seed = 7", 'seed = 7\nnoise_treatment = "drawn"'))
    results = run(design, output=tmp_path / "out", executor="serial")
    assert results.verdict.item() == "undecided" and (results.comparison_p_against == 1.0).all()
    assert "no Monte Carlo error" in results.no_verdict_because.item() and results.verdict_estimate.notnull().all()
