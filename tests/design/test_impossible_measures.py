"""Claims on measures that their cells cannot have are refused before the run, with those that exist."""

import pytest
from builders import DESIGN, edited, loaded, minimal_cell, mistakes

from simstudy.design.mistakes import nearest

ANTS = {"learner": {"kind": "ant_colony"}, "noise_treatment": "drawn"}
ENSEMBLE = "squared_bias, mean_squared_bias, mean_variance, "


def of_one_head(text: str) -> str:
    text = edited(edited(text, "n_heads = 2", "n_heads = 1"), 'arrangement = "rotated"', 'arrangement = "haar"')
    return edited(text, "angle = [0, 45, 90]", "n_keys = [20, 30, 40]").replace('x = "angle"', 'x = "n_keys"')


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        ("regret", 'does not exist in 6 of 6 cells (an ensemble); it is that of ants: learner = "ant_colony"'),
        ("own_measure", "it is what a function of your own gives; state measure_function"),
        ("discrepancy", "it needs a reference computation; state reference"),
        ("bias_squared", f'did you mean "squared_bias"? give one of {ENSEMBLE}'),
        ("colour", f"give one of {ENSEMBLE}"),
    ],
)
def test_measure_that_no_cell_has__is_refused_in_one_line(tmp_path, measure, expected):
    message = mistakes(tmp_path, edited(DESIGN, 'measure = "mse"', f'measure = "{measure}"'))
    assert len(message.splitlines()) == 1 and f"claims.mse-falls.measure = '{measure}': " in message
    assert expected in message, message


def test_measure_that_some_selected_cells_lack__is_refused_and_that_of_the_others_is_not(tmp_path):
    text = edited(DESIGN, 'measure = "mse"', 'measure = "regret"')
    text = edited(text, 'arrangement = "rotated"', 'arrangement = "orthogonal"')
    text = edited(text, "[precision]", 'noise_treatment = "drawn"\n[precision]')
    learners = 'learner = [{ kind = "nadaraya_watson" }, { kind = "ant_colony" }]'
    text = edited(text, "angle = [0, 45, 90]\nbandwidth = [0.5, 1.0]", f"{learners}\nn_heads = [2, 3]")
    text = edited(text, 'hue = "bandwidth"', 'hue = "learner"').replace('x = "angle"', 'x = "n_heads"')
    assert "measure = 'regret': does not exist in 2 of 4 cells (an ensemble); " in mistakes(tmp_path, text)
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
    assert f"{path} = 'discrepancy': does not exist in 6 of 6 cells (an ensemble); it needs a reference" in message
    alone = edited(DESIGN, old, new.format("correlation"))
    loaded(tmp_path, alone)
    alone = of_one_head(alone)
    message = mistakes(tmp_path, alone)
    assert f"{path} = 'correlation': compares heads, of which each of these 6 cells has one" in message
    # Where some cells have two heads the others have no point.
    some = edited(alone, "bandwidth = [0.5, 1.0]", "n_heads = [1, 2]").replace('hue = "bandwidth"', 'hue = "n_heads"')
    loaded(tmp_path, some)


def test_error_wanted_that_no_cell_inherits__is_no_mistake(tmp_path):
    own = "[grids.angles.precision]\nrelative_mcse = { mse = 0.05 }\n[grids.angles.factors]"
    text = edited(DESIGN, "relative_mcse = { mse = 0.05 }", "relative_mcse = { discrepancy = 0.05 }")
    assert "precision.relative_mcse = 'discrepancy': does not exist in 6 of 6" in mistakes(tmp_path, text)
    loaded(tmp_path, edited(text, "[grids.angles.factors]", own))


def test_error_wanted_that_only_a_grid_with_errors_of_its_own_can_have__is_no_mistake(tmp_path):
    own = "[grids.pairs]\nsettings.n_heads = 2\nprecision.relative_mcse.mse = 0.05\nfactors.n_keys = [20, 30]"
    alone = edited(DESIGN, "relative_mcse = { mse = 0.05 }", "relative_mcse = { correlation = 0.05 }")
    alone = of_one_head(alone)
    assert "compares heads, of which each of these 6 cells has one" in mistakes(tmp_path, alone)
    loaded(tmp_path, edited(alone, "[claims.mse-falls]", f"{own}\n\n[claims.mse-falls]"))


def test_words_in_another_order__are_nearer_than_like_letters():
    assert nearest("bias_squared", ["mean_squared_bias", "squared_bias"]) == "squared_bias"
    assert nearest("variance-mean", ["variances", "mean_variance"]) == "mean_variance"
    assert nearest("colour", ["mse"]) == ""
