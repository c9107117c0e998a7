"""Factors that do nothing and claims on cells that cannot differ: refused, with the reason."""

import numpy as np
import pytest
from builders import DESIGN, edited, loaded, minimal_cell, mistakes

from simstudy.replicates.batch import simulate_batch

STUDENT = {"kind": "student_t", "df": 3.0}
ROUGH = {"kind": "additive", "decay": "none"}
FOREST = {"learner": "random_forest", "noise_treatment": "drawn", "n_keys": 12}
ANTS = dict(learner="ant_colony", noise_treatment="drawn", n_keys=6, queries={"kind": "points", "points": [[1]]})
SILENT = {"noise_sd": 0.0, "noise_treatment": "drawn"}
SAME = {
    "shape of integrated noise": ({}, {"noise": STUDENT}),
    "shape of no noise": (SILENT, SILENT | {"noise": STUDENT}),
    "draw of heads that are not random": ({}, {"head_seed": 3}),
    "angle of one head": ({"n_heads": 1}, {"n_heads": 1, "arrangement": "rotated", "angle": 30.0}),
    "correlation of independent features": ({}, {"key_distribution": {"kind": "gaussian", "correlation": 0.5}}),
    "structure without correlation": ({}, {"key_distribution": {"kind": "gaussian", "structure": "autoregressive"}}),
    "decay of equal amplitudes": ({"regression": ROUGH}, {"regression": ROUGH | {"rate": 2.0}}),
    "the same within a sum": (
        {"regression": {"kind": "sum", "terms": [ROUGH]}},
        {"regression": {"kind": "sum", "terms": [ROUGH | {"rate": 2.0}]}},
    ),
    "bandwidth of trees": (FOREST, FOREST | {"bandwidth": 0.1, "head_dim": 1, "arrangement": "aligned"}),
    "keys of ants": (ANTS, ANTS | {"key_distribution": "sphere", "noise": STUDENT, "bandwidth": 2.0}),
}  # fmt: skip
OTHER = [
    ({"noise_treatment": "drawn"}, {"noise_treatment": "drawn", "noise": STUDENT}),
    ({}, {"noise": {"kind": "heteroscedastic"}}),
    ({"arrangement": "haar"}, {"arrangement": "haar", "head_seed": 3}),
    ({"regression": ROUGH | {"decay": "power"}}, {"regression": ROUGH | {"decay": "power", "rate": 2.0}}),
    (FOREST, FOREST | {"noise": STUDENT}),
]


def numbers(settings):
    return simulate_batch([minimal_cell(**settings)], 0)[0]


@pytest.mark.parametrize("name", SAME)
def test_settings_that_decide_nothing__leave_identity_and_every_bit(name):
    first, second = SAME[name]
    assert minimal_cell(**first).identity("e") == minimal_cell(**second).identity("e")
    for one, other in zip(numbers(first), numbers(second), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("first", "second"), OTHER)
def test_settings_that_decide_something__give_another_identity(first, second):
    assert minimal_cell(**first).identity("e") != minimal_cell(**second).identity("e")
    assert (numbers(first).product_sum != numbers(second).product_sum).any()


NOISES = '[{ kind = "gaussian" }, { kind = "student_t", df = 3 }]'
COMPARISON = """
[claims.heavy]
statement = "Heavy tails do no harm."
kind = "equals"
grid = "angles"
measure = "mse"
where = { noise = "gaussian"%s }
versus = { noise = "student_t(df=3)" }
value = 0
margin = 0.1

[figures.mse]
"""


def noisy(*further):
    return edited(DESIGN, "angle = [0, 45, 90]", "\n".join([f"noise = {NOISES}", "angle = [0, 45, 90]", *further]))


def test_factor_that_does_nothing__is_refused(tmp_path):
    message = mistakes(tmp_path, noisy())
    assert "grids.angles.factors.noise = ('gaussian', 'student_t(df=3)'): decides no number of any cell" in message
    assert "of noise that is integrated out only the variance counts" in message
    loaded(tmp_path, edited(noisy(), "seed = 7", 'seed = 7\nnoise_treatment = "drawn"'))


def test_claim_on_cells_that_cannot_differ__is_named(tmp_path):
    text = edited(noisy('noise_treatment = ["integrated", "drawn"]'), "[figures.mse]", COMPARISON % "")
    message = mistakes(tmp_path, text)
    assert "claims.heavy.measure = 'mse': compares cells that hold the same numbers: noise = gaussian and" in message
    assert "at angle = 0.0, noise_treatment = integrated, bandwidth = 0.5" in message
    drawn = text.replace('where = { noise = "gaussian" }', 'where = { noise = "gaussian", noise_treatment = "drawn" }')
    loaded(tmp_path, drawn)


@pytest.mark.parametrize(
    "claim",
    [
        'kind = "monotone"\nx = "batch_size"\ndirection = "decreasing"',
        'kind = "equals"\nwhere = { batch_size = 32 }\nversus = { batch_size = 64 }\nvalue = 0\nmargin = 1',
        'kind = "rank_correlation"\nagainst = "vendi"\ndirection = "decreasing"\nat_least = 0.5',
    ],
)
def test_claim_on_replicates_shared_in_other_batches__is_refused(tmp_path, claim):
    """Their estimates are not independent, and blocks of other lengths do not tell how they covary."""
    text = edited(DESIGN, "angle = [0, 45, 90]", "angle = [0, 45, 90]\nbatch_size = [32, 64]")
    loaded(tmp_path, text)
    stated = 'kind = "monotone"\n', 'x = "angle"\ndirection = "decreasing"'
    message = mistakes(tmp_path, edited(edited(text, stated[0], ""), stated[1], claim))
    assert "claims.mse-falls.measure = 'mse': compares cells that share replicates in batches of dif" in message


def test_claim_along_levels_that_hold_the_same_numbers__is_named(tmp_path):
    text = edited(DESIGN, "angle = [0, 45, 90]", "n_heads = [1, 2]\nangle = [0, 45, 90]")
    message = mistakes(tmp_path, text)
    assert "claims.mse-falls.measure" in message and "one head is at no angle to another" in message
    loaded(tmp_path, edited(text, 'x = "angle"\ndirection', 'x = "angle"\nwhere = { n_heads = 2 }\ndirection'))


def test_weights_do_not_enter_measures_of_heads(tmp_path):
    text = edited(DESIGN, "bandwidth = [0.5, 1.0]", 'combination = ["uniform", "sum"]')
    text = edited(text, 'hue = "bandwidth"', 'hue = "combination"')
    claim = COMPARISON.replace("noise =", "combination =").replace('"gaussian"%s', '"uniform"')
    claim = claim.replace("student_t(df=3)", "sum")
    loaded(tmp_path, edited(text, "[figures.mse]", claim))
    message = mistakes(tmp_path, edited(text, "[figures.mse]", edited(claim, '"mse"', '"correlation"')))
    assert "combination = uniform and combination = sum at angle = 0.0 (combination: does not enter)" in message
