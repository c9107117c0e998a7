"""Names and numbers as people read them."""

import math

import pytest

from simstudy.design.measures import INDICES
from simstudy.report.labels import (
    INDEX_NAMES,
    between,
    level_name,
    level_of,
    measure_name,
    number,
    setting_and_level,
    with_error,
)

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("estimate", "mcse", "text"),
    [
        (0.51234, 0.0021, "0.5123 ± 0.0021"),
        (-0.51234, 0.0021, "-0.5123 ± 0.0021"),
        (0.5, 0.0996, "0.50 ± 0.10"),
        (0.5, 0.00996, "0.500 ± 0.010"),
        (12345.6, 120.0, "12350 ± 120"),
        (12345.6, 1.2, "12345.6 ± 1.2"),
        (-1e-9, 0.03, "0.000 ± 0.030"),
        (1.00000237, 1.9e-7, "1.00000237 ± 0.00000019"),
        (5.1234e-8, 2.1e-10, "(5.123 ± 0.021)e-8"),
        (1e-12, 3e-9, "(0.0 ± 3.0)e-9"),
        (5.1234e9, 2.1e7, "(5.123 ± 0.021)e9"),
        (1.0, 1e-17, "1 ± 1.0e-17"),
        (2.0, 300.0, "0 ± 300"),
        (0.5, 0.0, "0.5 ± 0"),
        (0.5, NAN, "0.5 (too few replicates)"),
        (0.5, INF, "0.5 ± inf"),
        (INF, 0.1, "inf ± 0.1"),
        (NAN, 0.1, "–"),
    ],
)
def test_with_error(estimate, mcse, text):
    assert with_error(estimate, mcse) == text


@pytest.mark.parametrize(("value", "text"), [(1e-5, "1e-5"), (123456.0, "1.235e5"), (0.25, "0.25"), (NAN, "–")])
def test_number(value, text):
    assert number(value) == text


def test_names__have_units():
    assert tuple(INDEX_NAMES) == INDICES
    assert [measure_name(name) for name in ("mse", "bias")] == ["mean squared error [Y²]", "bias"]
    assert setting_and_level("angle", 45.0) == "angle: 45°"
    assert setting_and_level("n_keys", 400.0) == "n = 400"


@pytest.mark.parametrize(
    ("level", "text"),
    [(0.5, "0.5"), ("rate(smoothness=2)", "rate(smoothness=2)"), ("", "none"), (NAN, "none"), (2, "2")],
)
def test_level_name(level, text):
    assert level_name(level) == text


@pytest.mark.parametrize(
    ("ends", "mcse", "expected"),
    [
        ((0.972924, 1.02976), 0.0066, "0.9729 to 1.0298"),
        ((-566.037, -468.586), 13.0, "-566 to -469"),
        ((-math.inf, 0.00773562), 0.00022, "≤ 0.00774"),
        ((1.23456e-8, 2.5e-8), 2.1e-10, "1.235e-8 to 2.5e-8"),
        ((0.4, 0.6), math.nan, "0.4 to 0.6"),
    ],
)
def test_ends_of_an_interval__have_the_digits_of_the_estimate(ends, mcse, expected):
    assert between(*ends, mcse) == expected


def test_level_of_intervals__is_what_the_claims_of_a_study_leave_on_both_sides():
    assert [level_of(count) for count in (1, 9, 20)] == ["90 %", "98.89 %", "99.5 %"]
