"""Masks of many heads and of stacks of layers: against all subsets one by one, and theory against what is drawn."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from builders import minimal_cell, numbers_of
from scipy import integrate, stats

from simstudy.attention.instances import measure
from simstudy.attention.systems.masks import nearest_subset_sums
from simstudy.data.shared import SharedData
from simstudy.design.feasibility import impossibilities
from simstudy.theory.instances import instance_leading_order
from simstudy.theory.systems.masks import (
    largest_entry_error,
    missed_share,
    needed_units,
    needed_width_rate,
)


def cell_of(kind, n_features=2, n_keys=5, **parameters):
    return minimal_cell(
        instance={"kind": kind} | parameters, n_keys=n_keys, n_features=n_features, n_heads=1, head_dim=1,
        arrangement="aligned", bandwidth=0.8,
    )  # fmt: skip


def nearest(numbers, target):
    subsets = (s for size in range(len(numbers) + 1) for s in itertools.combinations(numbers, size))
    return min(map(math.fsum, subsets), key=lambda total: abs(total - target))


def blocks(columns, d, scale, units):
    """Entries (i, j) of each matrix in turn, as the target has them and the numbers that a mask picks from."""
    u = [[math.erf(z / math.sqrt(2)) for z in column] for column in columns]
    for start in range(0, len(u), d + 2 * d * d):
        target = [[scale * u[start + d * i + j][0] for j in range(d)] for i in range(d)]
        first, second = u[start + d * d :], u[start + d * d + d :]
        numbers = [[[first[i][k] * second[d * i + j][k] for k in range(units)] for j in range(d)] for i in range(d)]
        yield target, numbers


@pytest.mark.parametrize("count", [2, 5, 8])
def test_nearest_sums__are_those_of_each_entry_by_itself(count):
    rng = np.random.default_rng(3)
    numbers, targets = rng.uniform(-1, 1, (count, 40)), np.r_[rng.uniform(-1, 1, 38), 50.0, -50.0]
    alone = [nearest(each, target) for each, target in zip(numbers.T, targets, strict=True)]
    np.testing.assert_allclose(nearest_subset_sums(numbers, targets), alone, atol=1e-12)


def test_masked_heads__are_those_of_loops():
    cell = cell_of("masked_heads", heads=2, width=8, tolerance=0.25, scale=0.4)
    shared = SharedData(cell, 0, 2)
    found, drawn = measure(cell.instance, cell, shared), shared.normals(9, 2 * 2 * 10)
    for r in range(2):
        entries = [
            (numbers[i][j], target[i][j])
            for target, numbers in blocks(drawn[r], 2, 0.4, 9)
            for i in range(2)
            for j in range(2)
        ]
        assert len(entries) == 16
        largest = max(abs(nearest(numbers[:4], target) - target) for numbers, target in entries)
        assert found["log_largest_error"][r] == pytest.approx(math.log(largest), rel=1e-9)
        units = [k for k in range(2, 10) if all(abs(nearest(x[:k], t) - t) <= 0.25 for x, t in entries)]
        assert found["needed_width"][r] == 2 * units[0] > 4


def attended(states, logits, values, normalised):
    """Tokens after one layer, by loops over tokens and features."""
    d, out = len(logits), []
    for query in states:
        z = [sum(query[i] * logits[i][j] * key[j] for i in range(d) for j in range(d)) / 0.64 for key in states]
        weights = [math.exp(each) / sum(map(math.exp, z)) for each in z]
        mean = [sum(w * key[i] for w, key in zip(weights, states, strict=True)) for i in range(d)]
        row = [query[j] + sum(mean[i] * values[i][j] for i in range(d)) for j in range(d)]
        if normalised:
            centre = sum(row) / d
            row = [(x - centre) / math.sqrt(sum((y - centre) ** 2 for y in row) / d) for x in row]
        out.append(row)
    return out


@pytest.mark.parametrize("normalisation", ["none", "layer_norm"])
def test_masked_stack__is_that_of_loops(normalisation):
    cell = cell_of("masked_stack", n_features=3, layers=2, width=15, scale=0.7, normalisation=normalisation)
    shared = SharedData(cell, 0, 2)
    found, drawn = measure(cell.instance, cell, shared), shared.normals(5, 3 + 2 * 2 * 21)
    for r in range(2):
        matrices = list(blocks(drawn[r, 3:], 3, 0.7, 5))
        masked = [[[nearest(n[i][j], t[i][j]) for j in range(3)] for i in range(3)] for t, n in matrices]
        ends = []
        for stack in ([target for target, _ in matrices], masked):
            states = drawn[r, :3].T.tolist()
            for layer in (0, 2):
                states = attended(states, stack[layer], stack[layer + 1], normalisation == "layer_norm")
            ends.append(np.array(states))
        assert found["log_stack_error"][r] == pytest.approx(math.log(np.abs(ends[1] - ends[0]).max()), rel=1e-9)


def test_missed_share__is_the_mean_over_normal_places():
    count, scale = 14, 0.3
    deviation = math.sqrt(14 / 36)
    wide = math.sqrt(1 + 0.03 / 14 * 36)
    for error in (1e-5, 1e-3):

        def missed(z, error=error):
            rate = 2 * error * 2**14 * stats.norm.pdf(wide * z) / deviation
            return stats.norm.pdf(z) * math.exp(-rate)

        expected = integrate.quad(missed, -12, 12, limit=200)[0]
        assert missed_share(count, error, scale) == pytest.approx(expected, rel=1e-6)


def test_theory__is_that_of_many_draws_where_it_speaks():
    cell = cell_of("masked_heads", heads=2, width=28, tolerance=0.003)
    predicted, found = numbers_of(cell, instance_leading_order), measure(cell.instance, cell, SharedData(cell, 0, 150))
    assert set(predicted) == {"log_largest_error", "needed_width"}
    for name, values in found.items():
        error = values.std(ddof=1) / math.sqrt(len(values))
        assert abs(values.mean() - predicted[name]) < 0.05 * abs(predicted[name]) + 4 * error
    # The controls: half the units, and ten times the accuracy, are told apart.
    assert abs(found["log_largest_error"].mean() - largest_entry_error(7, 16, 0.1)) > 2
    assert abs(found["needed_width"].mean() - 2 * needed_units(0.0003, 16, 0.1)) > 4


def test_rate__is_that_at_which_theory_grows():
    # Two features: 2d² = 8 entries for each head.
    few, many = (2 * needed_units(1e-4, 8 * heads, 1e-6) for heads in (2**4, 2**6))
    assert needed_width_rate(2, 32, 19) == pytest.approx((many - few) / math.log(4), rel=0.03)
    assert needed_width_rate(2, 10**300, 10**9) == pytest.approx(2 / math.log(2), rel=1e-3)


def test_theory__is_silent_where_rare_sources_reach_no_target():
    cell = cell_of("masked_heads", heads=64, width=28, tolerance=0.01, scale=0.5)
    assert not numbers_of(cell, instance_leading_order)


@pytest.mark.parametrize(
    ("cell", "setting"),
    [
        (cell_of("masked_heads", heads=1, width=9, tolerance=0.1), "instance"),
        (cell_of("masked_stack", n_features=3, layers=1, width=3), "instance"),
        (cell_of("masked_stack", layers=1, width=8, normalisation="layer_norm"), "n_features"),
    ],
)
def test_what_an_instance_cannot_have__is_named(cell, setting):
    assert [name for name, _ in impossibilities(cell)] == [setting]
