"""Best masks of heads and stacks, changes of logits: against all subsets one by one, bounds, and theory."""

import itertools
import math

import naive
import numpy as np
import pytest
from builders import minimal_cell, numbers_of
from scipy import integrate, stats

from simstudy.attention.members import measure
from simstudy.attention.systems.masks import nearest_subset_sums, subset_sums
from simstudy.data.shared import SharedData
from simstudy.theory.instances import (
    best_average_error,
    best_average_rate,
    instance_leading_order,
    largest_entry_error,
    missed_share,
    nearest_sum_error,
    nearest_sum_rate,
    needed_units,
    needed_width_rate,
)

RNG = np.random.default_rng(5)


def cell_of(kind, n_keys=7, n_features=2, n_heads=1, **parameters):
    return minimal_cell(
        instance={"kind": kind} | parameters, n_keys=n_keys, n_features=n_features, n_heads=n_heads, head_dim=1,
        arrangement="aligned", bandwidth=0.8,
    )  # fmt: skip


def all_subsets(numbers):
    """Every subset as a list."""
    return [list(c) for size in range(len(numbers) + 1) for c in itertools.combinations(numbers, size)]


def nearest(numbers, target):
    return min((math.fsum(s) for s in all_subsets(numbers)), key=lambda total: abs(total - target))


@pytest.mark.parametrize("count", [2, 3, 7, 10])
def test_nearest_subset_sums__is_the_nearest_of_all(count):
    for target in (0.0, 0.3, -1.2, 50.0, -50.0):
        numbers = RNG.uniform(-1, 1, count)
        (found,) = nearest_subset_sums(numbers[:, None], np.array([target]))
        assert found == pytest.approx(nearest(numbers, target), abs=1e-12)
        sums = sorted(math.fsum(s) for s in all_subsets(numbers))
        np.testing.assert_allclose(np.sort(subset_sums(numbers)), sums, atol=1e-13)


def uniform(z):
    return math.erf(z / math.sqrt(2))


def test_masked_head__is_that_of_loops():
    cell = cell_of("masked_head", width=8, scale=0.7)
    shared = SharedData(cell, 0, 3)
    found, drawn = measure(cell, shared), shared.normals(7, 2 + 6 + 2 + 6)
    for r in range(3):
        u = [[uniform(z) for z in column[:4]] for column in drawn[r]]
        target = [[0.7 * u[2 + 3 * i + j][0] for j in range(3)] for i in range(2)]
        kept = [[[u[8 + i][k] * u[10 + 3 * i + j][k] for k in range(4)] for j in range(3)] for i in range(2)]
        masked = [[nearest(kept[i][j], target[i][j]) for j in range(3)] for i in range(2)]
        errors = [math.log(abs(masked[i][j] - target[i][j])) for i in range(2) for j in range(3)]
        assert found["log_entry_error"][r] == pytest.approx(np.mean(errors), rel=1e-9)
        tokens = [[drawn[r, j, i] for j in range(2)] for i in range(7)]
        worst, moved, share = 0.0, 0.0, 0.0
        for query in tokens:
            heads = []
            for w in (target, masked):
                logits = [sum(query[i] * w[i][j] * x[j] for i in range(2) for j in range(2)) / 0.64 for x in tokens]
                values = [sum(w[i][2] * x[i] for i in range(2)) for x in tokens]
                heads.append((logits, naive.normalised([math.exp(z) for z in logits]), values))
            (z, p, v), (z2, p2, v2) = heads
            error = max(abs(a - b) for a, b in zip(z, z2, strict=True))
            variation = np.abs(p - p2).sum() / 2
            worst, moved = max(worst, error), max(moved, abs(p @ v - p2 @ v2))
            share = max(share, variation / math.tanh(error / 2))
        assert found["log_logit_error"][r] == pytest.approx(math.log(worst), rel=1e-9)
        assert found["log_output_error"][r] == pytest.approx(math.log(moved), rel=1e-9)
        assert found["mask_bound_share"][r] == pytest.approx(share, rel=1e-7) and share < 1


def worst_variation(weights, size):
    """Largest total variation under changes of logits by ±size, over all choices of signs."""
    found = []
    for signs in itertools.product((-size, size), repeat=len(weights)):
        changed = naive.normalised([w * math.exp(s) for w, s in zip(weights, signs, strict=True)])
        found.append(np.abs(changed - weights).sum() / 2)
    return max(found)


@pytest.mark.parametrize("size", [0.1, 1.0, 3.0])
def test_bound__is_attained_by_the_extreme_and_by_no_choice_of_signs_exceeded(size):
    bound = math.tanh(size / 2)
    for direction in ("random", "adverse", "extreme"):
        cell = cell_of("perturbed_logits", error=size, direction=direction)
        shared = SharedData(cell, 0, 5)
        found, drawn = measure(cell, shared), shared.normals(7, 3)
        for r in range(5):
            weights = naive.normalised([math.exp(z) for z in drawn[r, 0]])
            if direction == "extreme":
                weights = naive.normalised([6 * math.exp(-size), 1, 1, 1, 1, 1, 1])
            limit = worst_variation(weights, size)
            assert limit <= bound * (1 + 1e-12)
            assert found["bound_share"][r] * bound <= limit * (1 + 1e-12)
            if direction == "random":
                change = [size * uniform(z) for z in drawn[r, 2]]
                changed = naive.normalised([w * math.exp(c) for w, c in zip(weights, change, strict=True)])
                assert found["bound_share"][r] == pytest.approx(np.abs(changed - weights).sum() / 2 / bound, rel=1e-9)
                moved = abs((changed - weights) @ drawn[r, 1]) / bound / np.ptp(drawn[r, 1])
                assert found["output_share"][r] == pytest.approx(moved, rel=1e-8)
        assert (found["bound_excess"] < 1e-13).all()
        assert (found["bound_share"] > 0.999).all() == (direction == "extreme")
        # The control: a bound for smaller changes is exceeded.
        assert (found["bound_share"] * bound > math.tanh(0.9 * size / 2)).any() == (direction != "random")


@pytest.mark.parametrize(("outputs", "correlation"), [(1, 0.0), (3, 0.0), (1, 0.6)])
def test_random_heads__are_those_of_all_subsets(outputs, correlation):
    cell = cell_of("random_heads", n_heads=5, outputs=outputs, correlation=correlation)
    shared = SharedData(cell, 0, 4)
    found, drawn = measure(cell, shared), shared.normals(6, outputs)
    for r in range(4):
        common, *own = drawn[r].T
        heads = [math.sqrt(correlation) * common + math.sqrt(1 - correlation) * z for z in own]
        sizes = [math.sqrt(np.mean(np.mean(s, axis=0) ** 2)) for s in all_subsets(heads) if s]
        assert found["log_mask_error"][r] == pytest.approx(math.log(min(sizes)), rel=1e-9)
        average = math.sqrt(np.mean(np.mean(heads, axis=0) ** 2))
        assert found["log_average_error"][r] == pytest.approx(math.log(average), rel=1e-9)
        assert found["log_mask_error"][r] < found["log_average_error"][r]


def mean_of(cell, name, count=3000):
    values = measure(cell, SharedData(cell, 0, count))[name]
    return values.mean(), values.std(ddof=1) / math.sqrt(count)


@pytest.mark.parametrize(("outputs", "correlation"), [(1, 0.0), (2, 0.5), (5, 0.9)])
def test_error_of_the_average__has_the_expectation_of_the_formula(outputs, correlation):
    cell = cell_of("random_heads", n_heads=6, outputs=outputs, correlation=correlation)
    value, error = mean_of(cell, "log_average_error")
    expected = numbers_of(cell)["log_average_error"]
    assert abs(value - expected) < 4 * error
    # The control: one head fewer is told apart, where heads are not nearly one.
    fewer = numbers_of(cell_of("random_heads", n_heads=3, outputs=outputs, correlation=correlation))
    assert correlation > 0.8 or abs(value - fewer["log_average_error"]) > 4 * error


def test_error_of_the_best__tends_to_that_of_a_poisson_process():
    value, error = mean_of(cell_of("random_heads", n_heads=12), "log_mask_error", 1500)
    assert abs(value - best_average_error(12, 1)) < 0.01 * abs(value) + 4 * error
    assert abs(value - best_average_error(11, 1)) > 8 * error
    cell = cell_of("masked_head", width=36, scale=0.5)
    value, error = mean_of(cell, "log_entry_error", 500)
    assert numbers_of(cell, instance_leading_order) == {"log_entry_error": nearest_sum_error(18, 0.5)}
    assert abs(value - nearest_sum_error(18, 0.5)) < 0.01 * abs(value) + 4 * error
    assert abs(value - nearest_sum_error(17, 0.5)) > 8 * error


def test_rates__are_those_at_which_errors_fall():
    # A hidden unit is one number more for each of d input features, of which an entry sees one.
    fall = nearest_sum_error(10**6 + 1, 0.5) - nearest_sum_error(10**6, 0.5)
    assert nearest_sum_rate(4) == pytest.approx(fall / 4, rel=1e-5)
    for outputs in (1, 4):
        fall = (best_average_error(10, outputs) - best_average_error(8, outputs)) / 2
        assert best_average_rate(9, outputs) == pytest.approx(fall, rel=2e-3)


def test_formulas__are_silent_where_they_do_not_hold():
    assert not numbers_of(cell_of("masked_head", width=8, scale=4.0), instance_leading_order)
    assert not numbers_of(cell_of("random_heads", n_heads=8, correlation=0.5), instance_leading_order)


def blocks(columns, d, scale, units):
    """Entries (i, j) of each matrix in turn, as the target has them and the numbers that a mask picks from."""
    u = [[math.erf(z / math.sqrt(2)) for z in column] for column in columns]
    for start in range(0, len(u), d + 2 * d * d):
        target = [[scale * u[start + d * i + j][0] for j in range(d)] for i in range(d)]
        first, second = u[start + d * d :], u[start + d * d + d :]
        numbers = [[[first[i][k] * second[d * i + j][k] for k in range(units)] for j in range(d)] for i in range(d)]
        yield target, numbers


def test_masked_heads__are_those_of_loops():
    cell = cell_of("masked_heads", n_keys=5, heads=2, width=8, tolerance=0.25, scale=0.4)
    shared = SharedData(cell, 0, 2)
    found, drawn = measure(cell, shared), shared.normals(9, 2 * 2 * 10)
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
    cell = cell_of("masked_stack", n_keys=5, n_features=3, layers=2, width=15, scale=0.7, normalisation=normalisation)
    shared = SharedData(cell, 0, 2)
    found, drawn = measure(cell, shared), shared.normals(5, 3 + 2 * 2 * 21)
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


def test_theory_of_masked_heads__is_that_of_many_draws_where_it_speaks():
    cell = cell_of("masked_heads", n_keys=5, heads=2, width=28, tolerance=0.003)
    predicted, found = numbers_of(cell, instance_leading_order), measure(cell, SharedData(cell, 0, 150))
    assert set(predicted) == {"log_largest_error", "needed_width"}
    for name, values in found.items():
        error = values.std(ddof=1) / math.sqrt(len(values))
        assert abs(values.mean() - predicted[name]) < 0.05 * abs(predicted[name]) + 4 * error
    # The controls: half the units, and ten times the accuracy, are told apart.
    assert abs(found["log_largest_error"].mean() - largest_entry_error(7, 16, 0.1)) > 2
    assert abs(found["needed_width"].mean() - 2 * needed_units(0.0003, 16, 0.1)) > 4


def test_rate_of_the_width__is_that_at_which_theory_grows():
    # Two features: 2d² = 8 entries for each head.
    few, many = (2 * needed_units(1e-4, 8 * heads, 1e-6) for heads in (2**4, 2**6))
    assert needed_width_rate(2, 32, 19) == pytest.approx((many - few) / math.log(4), rel=0.03)
    assert needed_width_rate(2, 10**300, 10**9) == pytest.approx(2 / math.log(2), rel=1e-3)


def test_theory_of_masked_heads__is_silent_where_rare_sources_reach_no_target():
    cell = cell_of("masked_heads", n_keys=5, heads=64, width=28, tolerance=0.01, scale=0.5)
    assert not numbers_of(cell, instance_leading_order)
