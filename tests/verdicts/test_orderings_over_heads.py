"""Orderings of a population of heads, of which the levels of head_seed are a sample; errors of mixed cells."""

from __future__ import annotations

import numpy as np
import pytest
from builders import DESIGN, edited, mistakes
from exact_estimates import account, claim, compare

from simstudy.verdicts.measured import estimates_of

N_HEADS = 64


def signed(values: dict, errors: dict, n_blocks: int = 64, given=None, **coordinates):
    """Return an account whose contributions are of one size, and of signs of its own."""
    signs = np.random.default_rng(sum(coordinates.values())).choice([1.0, -1.0], n_blocks) / np.sqrt(n_blocks)
    contribution = {name: np.multiply.outer(signs, error) for name, error in errors.items()}
    return account(coordinates, values, contribution, given=given)


def compared(diversity: np.ndarray, measure: np.ndarray, error: float = 1e-6, **entries):
    accounts = [
        signed({"mse": m, "hdi": np.full(8, h)}, {"mse": error, "hdi": np.zeros(8)}, head_seed=seed)
        for seed, (h, m) in enumerate(zip(diversity, measure, strict=True))
    ]
    stated = {"against": "chordal", "direction": "increasing", "over": "head_seed"}
    (found,) = compare(claim(**stated | entries), accounts, ("head_seed",))
    return found


@pytest.fixture
def heads() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    diversity = rng.random(N_HEADS)
    return diversity, diversity + 1.5 * rng.random(N_HEADS)


def test_share_over_heads__has_the_error_of_leaving_each_head_out(heads):
    def share(kept) -> float:
        x, y = (values[kept] for values in heads)
        wrong = [(x[i] < x[j]) != (y[i] < y[j]) for i in range(len(x)) for j in range(i)]
        return float(np.mean(wrong))

    everything = np.arange(N_HEADS)
    left_out = np.array([share(np.delete(everything, head)) for head in everything])
    jackknife = np.sqrt((N_HEADS - 1) * left_out.var())
    found = compared(*heads, kind="violated_pairs", at_most=0.4)
    assert found.estimate == pytest.approx(share(everything), rel=1e-10)
    assert found.mcse == pytest.approx(jackknife, rel=1e-3)
    assert found.given < 0.01 * jackknife
    assert not found.cells  # more replicates of the same heads would not help


def test_errors_of_the_measure__add_to_those_of_heads(heads):
    exact, noisy = (compared(*heads, error=error, kind="violated_pairs", at_most=0.4) for error in (1e-6, 0.3))
    assert noisy.given > 0.5 * exact.mcse and noisy.mcse >= np.hypot(exact.mcse, noisy.given) * 0.99
    assert len(noisy.cells) == N_HEADS
    # Noise turns pairs of which none was wrong: that it moves the share counts as well as how the share varies.
    diversity, _ = heads
    moved = compared(diversity, diversity, error=0.3, kind="violated_pairs", at_most=0.4)
    assert moved.estimate == 0.0 and moved.given > 0.15


AT_MOST, AT_LEAST = {"kind": "violated_pairs", "at_most": 0.01}, {"kind": "rank_correlation", "at_least": 0.97}


@pytest.mark.parametrize(("entries", "value", "scale"), [(AT_MOST, 0.0, 1.0), (AT_LEAST, 1.0, 3.0)])
def test_no_wrong_pair_among_few_heads__proves_no_small_share(heads, entries, value, scale):
    diversity, _ = heads
    found = compared(diversity, diversity, **entries)
    few = 2 / (N_HEADS + 4)  # Agresti and Coull
    assert found.estimate == pytest.approx(value)
    assert found.mcse == pytest.approx(scale * np.sqrt(few * (1 - few) / (N_HEADS + 4)), rel=1e-3)
    assert found.evidence.in_favour > 0.05


def test_few_heads__give_no_verdict():
    diversity = np.arange(20.0)
    assert "20 blocks of replicates or draws" in compared(diversity, diversity, kind="rank_correlation").doubt


def test_two_cells_of_one_head_seed__are_refused(tmp_path):
    design = edited(DESIGN, 'arrangement = "rotated"', 'arrangement = "haar"')
    design = edited(design, "angle = [0, 45, 90]", "head_seed = [1, 2, 3]")
    stated = 'kind = "violated_pairs"\nat_most = 0.5\nagainst = "chordal"\nover = "head_seed"\n'
    design = edited(edited(design, 'kind = "monotone"\n', stated), 'x = "angle"\ndirection = "decreasing"\n', "")
    design = edited(design, 'x = "angle"', 'x = "head_seed"')
    assert "several cells have one level" in mistakes(tmp_path, design)


def test_cells_with_fixed_points__are_paired_by_batch_with_those_of_a_population():
    """A difference of two cells that share data, of which one has a contribution for each batch of 16 blocks."""
    given = signed({"mse": 1.0}, {"mse": 0.0}).performance
    given.contribution["mse"] = np.full(64, 0.01)
    over = signed({"mse": 1.0}, {"mse": 0.0}, n_blocks=4, given=given, x=1)
    over.performance.contribution["mse"] = np.array([0.1, -0.2, 0.05, 0.05])
    fixed = signed({"mse": 0.4}, {"mse": 0.0}, x=2)
    blocks = np.random.default_rng(4).normal(size=64) / 100
    fixed.performance.contribution["mse"] = blocks
    difference = estimates_of([over, fixed], "mse").combine({0: 1.0, 1: -1.0})
    expected = np.array([0.1, -0.2, 0.05, 0.05]) - blocks.reshape(4, 16).sum(axis=1)
    assert difference.mcse == pytest.approx(np.linalg.norm(expected))
    assert difference.given == pytest.approx(np.linalg.norm(0.01 - blocks)) and difference.n_blocks == 4
    apart = estimates_of([over, fixed], "mse").differences([0, 1]).at(0, 1)
    assert (apart.mcse, apart.given) == pytest.approx((difference.mcse, difference.given))
