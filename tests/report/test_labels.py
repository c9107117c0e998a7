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
    ("worded", "given", "text"),
    [
        (with_error, (0.51234, 0.0021), "0.5123 ± 0.0021"),
        (with_error, (-0.51234, 0.0021), "-0.5123 ± 0.0021"),
        (with_error, (0.5, 0.0996), "0.50 ± 0.10"),
        (with_error, (0.5, 0.00996), "0.500 ± 0.010"),
        (with_error, (12345.6, 120.0), "12350 ± 120"),
        (with_error, (12345.6, 1.2), "12345.6 ± 1.2"),
        (with_error, (-1e-9, 0.03), "0.000 ± 0.030"),
        (with_error, (1.00000237, 1.9e-7), "1.00000237 ± 0.00000019"),
        (with_error, (5.1234e-8, 2.1e-10), "(5.123 ± 0.021)e-8"),
        (with_error, (1e-12, 3e-9), "(0.0 ± 3.0)e-9"),
        (with_error, (5.1234e9, 2.1e7), "(5.123 ± 0.021)e9"),
        (with_error, (1.0, 1e-17), "1 ± 1.0e-17"),
        (with_error, (2.0, 300.0), "0 ± 300"),
        (with_error, (0.5, 0.0), "0.5 ± 0"),
        (with_error, (0.5, NAN), "0.5 (too few replicates)"),
        (with_error, (0.5, INF), "0.5 ± inf"),
        (with_error, (INF, 0.1), "inf ± 0.1"),
        (with_error, (NAN, 0.1), "–"),
        (number, (1e-5,), "1e-5"),
        (number, (123456.0,), "1.235e5"),
        (number, (0.25,), "0.25"),
        (number, (NAN,), "–"),
        # Ends of an interval have the digits of the estimate.
        (between, (0.972924, 1.02976, 0.0066), "0.9729 to 1.0298"),
        (between, (-566.037, -468.586, 13.0), "-566 to -469"),
        (between, (-INF, 0.00773562, 0.00022), "≤ 0.00774"),
        (between, (1.23456e-8, 2.5e-8, 2.1e-10), "1.235e-8 to 2.500e-8"),
        (between, (0.4, 0.6, NAN), "0.4 to 0.6"),
        # Of intervals: what the claims of a study leave on both sides.
        (level_of, (1,), "90 %"),
        (level_of, (9,), "98.89 %"),
        (level_of, (20,), "99.5 %"),
        (level_name, (0.5,), "0.5"),
        (level_name, ("rate(smoothness=2)",), "rate(smoothness=2)"),
        (level_name, ("",), "none"),
        (level_name, (NAN,), "none"),
        (level_name, (2,), "2"),
        (level_name, (False,), "false"),
        (measure_name, ("mse",), "mean squared error [Y²]"),
        (measure_name, ("bias",), "bias"),
        (setting_and_level, ("angle", 45.0), "angle: 45°"),
        (setting_and_level, ("n_keys", 400.0), "n = 400"),
    ],
)
def test_words(worded, given, text):
    assert worded(*given) == text


def test_every_index__has_a_name():
    assert tuple(INDEX_NAMES) == INDICES
