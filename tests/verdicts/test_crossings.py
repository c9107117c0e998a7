"""Crossings: against lines that are known to cross, with the errors that derivatives give."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from builders import DESIGN, edited, faults
from exact_estimates import claim, derived, exact_estimates

from simstudy.verdicts.comparisons import Comparison, Predictions, Selected
from simstudy.verdicts.judge import decide
from simstudy.verdicts.optima import crossing, crossings

X = np.array([32.0, 64.0, 128.0, 256.0, 512.0])
AGAINST = {"kind": "crossing", "x": "n_keys", "versus": {"rule": "average"}, "where": {"rule": "product"}}
LEVELS = [{"n_keys": n, "rule": rule} for n in X for rule in ("product", "average")]


def measures(difference: Sequence[float]) -> np.ndarray:
    """The measure of both rules, of which one exceeds the other by so much at the levels X."""
    return np.array([value for d in difference for value in (2.0 + d, 2.0)])


def falling(place: float) -> np.ndarray:
    """Differences that fall to 0 at a place, linear in the logarithm."""
    return np.log(place) - np.log(X)


def selected(difference: Sequence[float], error: Any = 0.01, theory: np.ndarray | None = None) -> Selected:
    told = None if theory is None else Predictions(theory, np.zeros_like(theory))
    estimates = exact_estimates(LEVELS, measures(difference), error)
    return Selected(estimates, list(range(0, len(LEVELS), 2)), ("n_keys", "rule"), told)


def differing(difference: Sequence[float], value: float, ratio: float = 1.1, error: Any = 0.01) -> Comparison:
    (comparison,) = crossings(claim(value=value, ratio=ratio, **AGAINST), selected(difference, error))
    return comparison


@pytest.mark.parametrize(
    ("value", "error", "verdict"),
    [(150.0, 0.005, "supported"), (200.0, 0.005, "contradicted"), (150.0, 0.5, "undecided")],
)
def test_crossing__is_found_and_judged_by_its_draws(value, error, verdict):
    found = differing(falling(150.0), value, error=error)
    assert found.estimate == pytest.approx(150.0) and decide([found], 0.01).verdict == verdict


def test_crossing_by_theory__is_that_of_its_values_and_nowhere_if_they_do_not_cross():
    leading = claim(source="leading", ratio=1.1, **AGAINST)
    for place, verdict in ((150.0, "supported"), (200.0, "contradicted"), (600.0, "undecided")):
        found = list(crossings(leading, selected(falling(150.0), 0.005, measures(falling(place)))))
        assert decide(found, 0.01).verdict == verdict
        assert [comparison.claimed for comparison in found] == ([pytest.approx(place)] if place < X[-1] else [])
    for n_keys, told in ((32, 1), (128, 0), (256, 0)):  # unknown far from the crossing, and beside it
        theory = measures(falling(150.0))
        theory[2 * list(X).index(n_keys)] = np.nan
        assert len(list(crossings(leading, selected(falling(150.0), 0.005, theory)))) == told


def test_crossing_outside__is_at_the_end_of_the_levels():
    falls = falling(150.0)
    found = [crossing(X, each) for each in (falls, falls + 9, falls - 9, np.abs(falls))]
    assert found == pytest.approx([150.0, 512.0, 32.0, 512.0])
    starts = [1.0, -1.0], [1.0, 0.0], [0.0, 1.0]  # it falls twice, and touches 0 at the second and the first level
    found = [crossing(X, np.array([*start, 1.0, -1.0, -1.0])) for start in starts]
    assert found == pytest.approx([np.sqrt(32 * 64), 64.0, 32.0])


def test_error_of_a_crossing__is_that_of_its_derivatives():
    difference, errors = [3.0, 1.0, 0.3, -1.7, -2.0], np.array([0.01, 0.02, 0.03, 0.01, 0.02])
    found = differing(difference, 150.0, error=np.repeat(errors, 2))
    expected = derived(lambda d: crossing(X, d), difference, errors * np.sqrt(2))
    assert found.estimate == pytest.approx(expected.value)
    assert found.mcse == found.given == pytest.approx(expected.mcse, rel=1e-5)


def test_error_that_all_levels_of_one_rule_share__moves_the_crossing_as_a_whole():
    difference = np.array([3.0, 1.0, 0.3, -1.7, -2.0])
    of = selected(difference)
    shared = [of.estimates.contributions[0] * (cell % 2 == 0) for cell in range(len(LEVELS))]
    shared = of._replace(estimates=dataclasses.replace(of.estimates, contributions=shared))
    (found,) = crossings(claim(value=150.0, ratio=1.1, **AGAINST), shared)
    moved = [crossing(X, difference + step) for step in (1e-6, -1e-6)]
    assert found.mcse == pytest.approx(0.01 * (moved[0] - moved[1]) / 2e-6, rel=1e-5)


@pytest.mark.parametrize(
    ("difference", "value", "ratio", "verdict"),
    [
        ([3.0, 3.0, 3.0, -3.0, -3.0], 150.0, 1.3, "supported"),
        ([3.0, -3.0, 3.0, -3.0, -3.0], 150.0, 1.3, "contradicted"),  # it fell before the interval, and came back
        ([3.0, 3.0, -3.0, 3.0, 3.0], 150.0, 2.0, "supported"),  # it falls within the interval, and comes back
        ([3.0, 3.0, 3.0, 3.0, -3.0], 150.0, 1.3, "contradicted"),  # it falls behind the interval
        ([-3.0, -3.0, -3.0, -3.0, -3.0], 64.0, 2.0, "supported"),  # at the first level, which is in the interval
        ([3.0, 3.0, 3.0, 3.0, 3.0], 256.0, 2.0, "supported"),  # at the last level, which is in the interval
    ],
)
def test_crossing__is_where_the_difference_falls_first(difference, value, ratio, verdict):
    assert decide([differing(difference, value, ratio)], 0.01).verdict == verdict


def test_parts_of_a_crossing__are_the_levels_and_ends_of_the_interval():
    difference = [3.0, 2.0, 1.0, -1.0, -2.0]
    found = differing(difference, 150.0, 1.5)
    places = [float(part.statistic.rpartition("= ")[2]) for part in found.parts]
    np.testing.assert_allclose(places, [32, 64, 100, 128, 225])
    expected = np.interp(np.log([32, 64, 100, 128, 225]), np.log(X), difference)
    np.testing.assert_allclose([part.estimate for part in found.parts], expected)


def test_interval_of_a_crossing__is_from_the_last_sure_excess_to_the_first_sure_fall():
    assert differing([5.0, 5.0, -5.0, 5.0, -5.0], 150.0, 1.1).confidence(0.01) == (64.0, 128.0)
    found = differing([5.0, 5.0, 5.0, -0.05, -5.0], 40.0, 1.1)
    p = differing([5.0, 5.0, 5.0, -0.05, -5.0], 181.0, 256.0 / 181.0).parts[-1].evidence.against
    # Any of five levels might have been the first to fall.
    assert found.confidence(4.9 * p) == (128.0, 512.0) and found.confidence(5.1 * p) == (128.0, 256.0)


@pytest.mark.parametrize("value", [100.0, 215.0, 250.0, 300.0, 400.0])
def test_interval_of_a_crossing__ends_where_the_claim_does_if_that_decides(value):
    found = differing([5.0, 5.0, 5.0, -0.5, -5.0], value, 1.1)  # between 128 and 256, at 240
    low, high = found.confidence(0.01)
    assert 128.0 <= low < 239.0 < high <= 512.0
    assert (found.evidence.in_favour < 0.01) == (low >= found.lower and high <= found.upper)
    assert (found.evidence.against < 0.01) == (low >= found.upper or high <= found.lower)


def test_interval_that_holds_all_levels__says_nothing():
    assert differing([1.0, 1.0, 1.0, -1.0, -1.0], 128.0, 9.0).doubt == "all levels lie within the ratio"


def test_single_pair__decides_nothing():
    alone = selected(falling(150.0))._replace(chosen=[0])
    (found,) = crossings(claim(value=150.0, ratio=1.1, **AGAINST), alone)
    assert decide([found], 0.01).verdict == "undecided" and found.doubt == "a single pair of cells"


CLAIM = """
[claims.crossing]
statement = "They cross."
kind = "crossing"
grid = "angles"
versus = { bandwidth = 1.0 }
measure = "mse"
x = "angle"
value = 60
ratio = 1.2
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("", "", "claims.crossing.x = 'angle': is 0 in a cell and has no logarithm"),
        ("angle = [0, 45, 90]", "angle = [30, 45, 65]", "claims.crossing.value = 60.0: must lie between 30"),
        ("angle = [0, 45, 90]", "angle = [30, 60, 90]", ""),
        ("value = 60", 'source = "exact"', "claims.crossing.source = 'exact': set exact = true in [grids.angles]"),
        ("value = 60", 'value = 60\nsource = "leading"', "claims.crossing.value = 60.0: state either value or source"),
    ],
)
def test_crossing_that_cannot_be_sought__is_refused(tmp_path, old, new, message):
    text = edited(DESIGN, "[figures.mse]", CLAIM + "\n[figures.mse]")
    found = faults(tmp_path, edited(text, old, new) if old else text)
    assert message in found and bool(found) == bool(message)
