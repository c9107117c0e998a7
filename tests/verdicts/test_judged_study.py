"""How the verdicts of a whole study are stored: every comparison, its parts, and the theory of its own cells."""

from __future__ import annotations

from types import SimpleNamespace
from typing import get_args

import numpy as np
import pytest
import xarray as xr
from exact_estimates import exact_accounts
from test_judge import N_BLOCKS, cells, claim, verdict

from simstudy.design.claims import LEVEL, Claim
from simstudy.verdicts.judge import compare, comparisons_of, judge


def study(claims: dict, values: list[float]):
    """A design of two cells with claims, as far as `judge` looks at it, and their accounts."""
    design = SimpleNamespace(claims=claims, factors={"g": ("x",)}, cells=())
    return design, cells(values)


def test_judge__stores_every_comparison_beside_the_verdicts():
    stated = {
        "rises": claim(kind="monotone", x="x", direction="increasing"),
        "large": claim(kind="larger_than", value=0.5, expected="contradicted"),
        "near": claim(kind="agrees_with_theory", margin=0.2),
    }
    design, accounts = study(stated, [1.0, 1.1, 1.2])
    theory = np.array([[np.nan] * 3, [np.nan] * 3, [1.0, 1.1, 1.9]])
    results = xr.Dataset({"mse": (("source", "cell"), theory)}, coords={"source": ["empirical", "exact", "leading"]})
    judged = judge(results, design, accounts).results
    assert judged.verdict.values.tolist() == ["supported", "supported", "contradicted"]
    assert judged.declared_verdict.values.tolist() == ["supported", "contradicted", "supported"]
    assert judged.comparison_claim.values.tolist() == ["rises"] * 2 + ["large"] * 3 + ["near"] * 3
    assert judged.comparison_claimed_lower.values == pytest.approx([0, 0, 0.5, 0.5, 0.5, 0.8, 0.8, 0.8])
    assert np.isinf(judged.comparison_claimed_upper.values[:5]).all()
    inside = judged.comparison_confidence_lower > judged.comparison_claimed_lower
    inside &= judged.comparison_confidence_upper < judged.comparison_claimed_upper
    assert inside.values.tolist() == [True] * 7 + [False]
    assert (judged.comparison_p_in_favour < LEVEL).values.tolist() == inside.values.tolist()
    assert judged.p_against.sel(claim="near") == judged.comparison_p_against[7] < LEVEL
    assert judged.claimed_value.sel(claim="near") == 1.0 and judged.claimed_upper.sel(claim="near") == 1.2
    alone = judge(results, *study({"near": stated["near"]}, [1.0, 1.1, 1.2])).results
    for name in ("p_against", "comparison_p_against"):  # p-values to be compared with the level of the study
        assert judged[name].values[-1] == pytest.approx(3 * alone[name].values[-1])
    assert judge(results, *study({}, [1.0])).results is results
    # Intervals are those of the level at which a claim is judged, and no p-value is more than 1.
    for name in ("confidence_lower", "comparison_confidence_lower"):
        assert judged[name].values[-1] < alone[name].values[-1]
    p_values = [judged[name] for name in ("p_against", "p_in_favour", "comparison_p_against", "comparison_p_in_favour")]
    assert max(float(each.max()) for each in p_values) == 1.0


def test_judge__stores_the_parts_of_a_comparison_after_it():
    stated = {"least": claim(kind="optimum", x="x", value=1.0)}
    judged = judge(xr.Dataset(), *study(stated, [1.2, 1.0, 1.1])).results
    whole, *parts = judged.comparison_statistic.values
    assert len(parts) == 2 and judged.comparison_part_of.values.tolist() == ["", whole, whole]
    assert judged.comparison_estimate.values == pytest.approx([1.0, 0.2, 0.1], abs=0.01)
    assert judged.verdict_comparisons.item() == 1


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
        (found,) = compare(above, accounts, ("x",), None)
        assert found.estimate == (2.0 if index == "chordal" else -2.0)


def test_judge__gives_each_claim_the_theory_of_its_own_cells_with_its_numerical_error():
    stated = {"near": claim(kind="agrees_with_theory", source="exact", margin=0.2),
              "leading": claim(kind="agrees_with_theory", margin=0.2)}  # fmt: skip
    design, accounts = study(stated, [1.0, 1.1])
    accounts = [*cells([9.0]), *accounts]
    accounts[0].planned.grid = "other"
    design.factors["other"] = ("x",)
    theory, errors = np.array([[5.0, 1.0, 1.1], [5.0, 1.0, 1.1]]), np.array([0.0, 0.0, 0.6])
    results = xr.Dataset(
        {"mse": (("source", "cell"), theory), "mse_numerical_error": ("cell", errors)},
        coords={"source": ["exact", "leading"]},
    )
    judged = judge(results, design, accounts).results
    assert judged.comparison_estimate.values == pytest.approx(1.0, abs=0.1)
    assert (judged.comparison_mcse.values > 0.5).tolist() == [False, True, False, False]
    assert judged.verdict.values.tolist() == ["inconclusive", "supported"]


def test_every_kind_of_claim__has_its_comparisons():
    assert comparisons_of.registry.keys() - {object} == {*get_args(get_args(Claim)[0])}
