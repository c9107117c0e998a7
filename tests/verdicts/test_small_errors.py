"""Formulas of theory that are 1 % off: every one is found with a few hundred replicates of the default estimator."""

from __future__ import annotations

from builders import DESIGN, edited, write_design

from simstudy import run, theory

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
        results = run(design, output=tmp_path / "out", executor="serial")
        assert set(results.estimator.values) == {"expansion"} and results.n_replicates.values.max() <= 512
        return set(results.verdict.values)

    assert verdicts() == {"supported"}
    right = theory.predicted_measures
    for factor in (0.99, 1.01):

        def wrong(*arguments, factor=factor):
            return {name: factor * value for name, value in right(*arguments).items()}

        monkeypatch.setattr(theory, "predicted_measures", wrong)
        assert verdicts() == {"contradicted"}
