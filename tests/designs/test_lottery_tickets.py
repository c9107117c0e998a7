"""Best masks against all subsets one by one, and rates where they are known."""

import itertools
import math
import runpy
from pathlib import Path

import numpy as np
import pytest

STUDY = runpy.run_path(str(Path(__file__).parents[2] / "designs" / "lottery-tickets" / "functions.py"))
RNG = np.random.default_rng(5)


def nearest(numbers, target):
    subsets = (math.fsum(s) for size in range(len(numbers) + 1) for s in itertools.combinations(numbers, size))
    return min(subsets, key=lambda total: abs(total - target))


@pytest.mark.parametrize("count", [2, 3, 7, 10])
def test_nearest_subset_sums__are_the_nearest_of_all(count):
    targets = np.array([0.0, 0.3, -1.2, 50.0, -50.0])
    numbers = RNG.uniform(-1.0, 1.0, (count, 5))
    expected = [nearest(column, target) for column, target in zip(numbers.T, targets, strict=True)]
    np.testing.assert_allclose(STUDY["nearest_subset_sums"](numbers, targets), expected, atol=1e-12)


def test_needed_width__is_the_first_that_reaches_every_target():
    numbers, targets = RNG.uniform(-1.0, 1.0, (32, 6)), RNG.uniform(-0.1, 0.1, 6)
    missed = [max(abs(nearest(x[:k], t) - t) for x, t in zip(numbers.T, targets, strict=True)) for k in range(2, 12)]
    first = next(k for k, error in enumerate(missed, 2) if error <= 0.02)
    assert first > 4
    assert STUDY["mask_heads"](targets, numbers, 0.02, n_features=3) == {"needed_width": 3 * first}
    assert STUDY["mask_heads"](targets + 99.0, numbers, 0.02, n_features=1) == {"needed_width": 32}


def test_last_layer__is_that_of_loops():
    tokens, targets, numbers = RNG.normal(size=(5, 3)), RNG.uniform(-0.5, 0.5, 18), RNG.uniform(-1.0, 1.0, (5, 18))
    ends = []
    for entries in (targets, [nearest(x, t) for x, t in zip(numbers.T, targets, strict=True)]):
        w, v = np.reshape(entries, (2, 3, 3))
        ends.append([])
        for x in tokens:
            kernel = [math.exp(x @ w @ key / 0.25) for key in tokens]
            state = x + sum(k * (key @ v) for k, key in zip(kernel, tokens, strict=True)) / sum(kernel)
            ends[-1].append((state - state.mean()) / state.std())
    expected = math.log(np.abs(np.subtract(*ends)).max())
    found = STUDY["mask_stack"](tokens, targets, numbers, layers=1, normalisation="layer_norm")
    assert found["log_stack_error"] == pytest.approx(expected, rel=1e-9)


def test_rates__are_those_of_theory():
    theory = STUDY["nearest_sum_theory"]
    fall = [theory(4 * k, n_features=4)["log_entry_error"] for k in (10**6, 10**6 + 1)]
    assert STUDY["nearest_sum_rate"](4) == pytest.approx((fall[1] - fall[0]) / 4, rel=1e-5)
    assert STUDY["needed_width_rate"](2, 10**300, 10**9) == pytest.approx(2 / math.log(2), rel=1e-3)


def test_rate_of_the_width__is_that_at_which_the_mean_of_the_largest_need_grows():
    """By summing over numbers k and places z of a target the chance that none of 2^k sums is within 10^-4."""
    z = np.linspace(-12.0, 12.0, 2001)
    normal = np.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi)
    missed = [normal @ np.exp(-2e-4 * 2.0**k * normal / math.sqrt(k / 36.0)) * 0.012 for k in range(2, 33)]
    few, many = (sum(1.0 - (1.0 - np.array(missed)) ** (8 * heads)) for heads in (16, 64))
    assert STUDY["needed_width_rate"](2, 32, 19) == pytest.approx(2 * (many - few) / math.log(4), rel=0.03)


def test_best_average__is_that_of_all_subsets_of_heads():
    errors = RNG.normal(size=6)
    means = [abs(np.mean(each)) for size in range(1, 7) for each in itertools.combinations(errors, size)]
    expected = {"log_average_error": math.log(abs(errors.mean())), "log_mask_error": math.log(min(means))}
    assert STUDY["choose_heads"](errors) == pytest.approx(expected)


def test_error_of_a_head__is_that_of_loops():
    tokens, targets, numbers = RNG.normal(size=(5, 2)), RNG.uniform(-0.5, 0.5, 6), RNG.uniform(-1.0, 1.0, (5, 6))
    masked, outputs = [nearest(x, t) for x, t in zip(numbers.T, targets, strict=True)], []
    for entries in (targets, masked):
        matrix = np.reshape(entries, (2, 3))
        kernels = [[math.exp(x @ matrix[:, :2] @ key) for key in tokens] for x in tokens]
        outputs.append([np.average(tokens @ matrix[:, 2], weights=each) for each in kernels])
    found = STUDY["mask_head"](tokens, targets, numbers)
    assert found["log_entry_error"] == pytest.approx(np.log(np.abs(masked - targets)).mean())
    assert found["log_output_error"] == pytest.approx(math.log(np.abs(np.subtract(*outputs)).max()))
