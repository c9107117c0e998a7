"""Costs of a digit, of shared data and of variance reduction are measured on what they claim: everything once, tiny."""

from __future__ import annotations

from dataclasses import replace

import digits
import numpy as np
import pytest
import reductions
from builders import DESIGN, write_design
from digits import DIFFERENCE, MEASURES, SIZE, TARGETS

SMALL = replace(SIZE, keys=64, queries=3, replicates=1024)


def apart(one, other):
    """Largest difference of two ways in units of their errors."""
    gaps = [
        np.abs(one.estimate[name] - other.estimate[name]) / np.hypot(one.error[name], other.error[name])
        for name in (*MEASURES, DIFFERENCE)
    ]
    return max(gap.max() for gap in gaps)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_both_ways_estimate_the_same(target):
    own, other = digits.own_study(SMALL, target, 0), digits.numpy_study(SMALL, target, 0)
    assert own.seconds > 0 and other.seconds > 0
    assert apart(own, other) < 4
    assert apart(own, digits.numpy_study(SMALL, target._replace(noise_sd=1.5), 0)) > 6
    assert own.error[DIFFERENCE] < other.error[DIFFERENCE]


def test_errors_stated_are_those_of_independent_rounds():
    rounds = [digits.numpy_study(replace(SMALL, replicates=256), TARGETS[1], k) for k in range(40)]
    for name in (*MEASURES, DIFFERENCE):
        spread = np.std([one.estimate[name] for one in rounds], axis=0)
        stated = np.mean([one.error[name] for one in rounds], axis=0)
        assert (np.abs(np.log(spread / stated)) < 0.45).all()


def test_digit_rows__integrated_noise_pays_most_where_noise_is_all():
    rows = {(row.size, row.who): row.value.median for row in digits.digit_rows(SMALL, 2)}
    factors = {size: value for (size, who), value in rows.items() if who != "simstudy"}
    assert len(rows) == 16 and min(rows.values()) > 0
    assert factors["noise alone, mse"] > 3 * factors["signal, mse"]


def test_sharing_rows__count_cells_and_sets_of_data(tmp_path):
    (row,) = digits.sharing_rows(1, write_design(tmp_path, DESIGN), ("angles",))
    assert row.who == "6 cells on 1 sets of data" and row.value.median > 0.5


def test_reduced_variance__has_the_same_expectation():
    rng, target = np.random.default_rng(3), TARGETS[1]
    cell = digits.cells(SMALL, target)[1]
    known = reductions.expectations(cell, target, 15)
    plain = reductions.evaluate(cell, target, rng.standard_normal((1500, 8, 64)), known)
    reduced = reductions.without_linear(plain, known, 64)
    for before, after in ((plain.errors, reduced.errors), (plain.products, reduced.products)):
        gap = (before - after).mean(axis=1)
        error = gap.std() / np.sqrt(len(gap))
        assert abs(gap.mean()) < 4 * error
        assert after.mean(axis=1).var() < 0.8 * before.mean(axis=1).var()
    wrong = reductions.without_linear(plain, known, 40)
    gap = (plain.products - wrong.products).mean(axis=1)
    assert abs(gap.mean()) > 4 * gap.std() / np.sqrt(len(gap))


def test_reduction_rows():
    rows = list(reductions.reduction_rows(replace(SMALL, replicates=128), 1))
    assert len(rows) == 18 and all(row.value.median > 0 for row in rows)
    noise_alone = [row.value.median for row in rows if row.size.startswith("noise") and row.who == "linear parts"]
    assert noise_alone == pytest.approx([1.0] * 3)
