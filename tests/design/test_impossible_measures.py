"""Claims on measures or moments that their cells cannot have are refused before the run, with those that exist."""

import pytest
from builders import DESIGN, edited, loaded, minimal_cell, mistakes

from simstudy.design.cells import impossibilities

ANTS = {"learner": {"kind": "ant_colony"}, "noise_treatment": "drawn"}


def test_measure_that_some_selected_cells_lack__is_refused_and_that_of_the_others_is_not(tmp_path):
    text = edited(DESIGN, 'measure = "mse"', 'measure = "regret"')
    text = edited(text, 'arrangement = "rotated"', 'arrangement = "orthogonal"')
    text = edited(text, "[precision]", 'noise_treatment = "drawn"\n[precision]')
    learners = 'learner = [{ kind = "nadaraya_watson" }, { kind = "ant_colony" }]'
    text = edited(text, "angle = [0, 45, 90]\nbandwidth = [0.5, 1.0]", f"{learners}\nn_heads = [2, 3]")
    text = edited(text, 'hue = "bandwidth"', 'hue = "learner"').replace('x = "angle"', 'x = "n_heads"')
    assert "measure = 'regret': does not exist in 2 of 4 cells (heads); " in mistakes(tmp_path, text)
    where = f'measure = "regret"\nwhere = {{ learner = "{minimal_cell(**ANTS).coordinates["learner"]}" }}'
    assert loaded(tmp_path, edited(text, 'measure = "regret"', where)).claims["mse-falls"].measure == "regret"


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
    alone = edited(edited(alone, "n_heads = 2", "n_heads = 1"), 'arrangement = "rotated"', 'arrangement = "haar"')
    alone = edited(alone, "angle = [0, 45, 90]", "n_keys = [20, 30, 40]").replace('x = "angle"', 'x = "n_keys"')
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


T2, T4, T5 = ({"kind": "student_t", "df": df} for df in (2.2, 4.0, 5.0))
DRAWN, SUM = {"noise_treatment": "drawn"}, {"kind": "sum", "terms": ["linear", "quadratic"]}


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        ({"noise": T4}, []),  # integrated out
        ({"noise": T4, **DRAWN}, ["noise"]),
        ({"noise": T5, **DRAWN}, []),
        ({"noise": T4, "noise_sd": 0.0, **DRAWN}, []),
        ({"key_distribution": T2, "regression": "ridge"}, []),
        ({"key_distribution": T4, "regression": "linear"}, ["key_distribution"]),
        ({"key_distribution": T5, "regression": "linear"}, []),
        ({"key_distribution": T5, "regression": SUM}, ["key_distribution"]),
        ({"key_distribution": T4, "noise": {"kind": "heteroscedastic"}}, ["key_distribution"]),
    ],
    ids=str,
)
def test_tails_under_which_squared_errors_have_no_variance__are_refused(settings, refused):
    assert [setting for setting, _ in impossibilities(minimal_cell(**settings))] == refused
