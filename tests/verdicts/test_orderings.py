"""Claims on the order of cells: against p-values of pairs, with an index that has an error, ties, and levels apart.

Also of a population of heads, of which the levels of head_seed are a sample.
"""

import numpy as np
import pytest
from builders import DESIGN, edited, mistakes
from exact_estimates import account, claim, compare, exact_estimates
from scipy import stats

from simstudy.verdicts.comparisons import Comparison, Selected
from simstudy.verdicts.estimates import estimates_of
from simstudy.verdicts.evidence import p_above, p_below
from simstudy.verdicts.orderings import rank_correlations, violations

RISING = {"against": "chordal", "direction": "increasing"}


def selected(values, index, index_error: float = 0.0, sides: str = "") -> Selected:
    levels = [{"x": float(k), "side": side} for k, side in enumerate(sides or "a" * len(values))]
    measure, diversity = exact_estimates(levels, values, 1.0), exact_estimates(levels, index, index_error)
    return Selected(measure, list(range(len(values))), ("x", "side"), None, diversity)


def wrong_share(of: Selected, **entries) -> Comparison:
    (found,) = violations(claim(kind="violated_pairs", **{"at_most": 0.0} | RISING | entries), of)
    return found


def correlation(of: Selected, **entries) -> Comparison:
    (found,) = rank_correlations(claim(kind="rank_correlation", **RISING | entries), of)
    return found


@pytest.mark.parametrize(("direction", "sign"), [("increasing", 1.0), ("decreasing", -1.0)])
def test_two_cells__have_the_evidence_of_their_difference(direction, sign):
    """One pair in order means a correlation of at least 0, and no pair violated."""
    of = selected([0.0, 5.0 * sign], [1.0, 2.0])
    apart = of.estimates.combine({1: sign, 0: -sign})
    for found in (wrong_share(of, at_most=0.0, direction=direction), correlation(of, direction=direction)):
        assert found.evidence.against == pytest.approx(p_below(apart, 0.0))
        assert found.evidence.in_favour == pytest.approx(p_above(apart, 0.0))
        assert found.estimate == pytest.approx(float("correlation" in found.statistic))
        assert found.ordered.estimate.tolist() == [5.0 * sign]


@pytest.mark.parametrize(("values", "side"), [([0.0, 9.0], 1), ([9.0, 0.0], 0)])
def test_pair_whose_index_is_in_doubt__is_proven_no_better_than_its_order(values, side):
    of = selected(values, [1.0, 3.5], index_error=1.0)
    order = p_below(of.diversity.combine({0: 1.0, 1: -1.0}), 0.0)
    sure = selected(values, [1.0, 3.5])
    for judge in (wrong_share, correlation):
        assert judge(sure).evidence[side] < 0.01 * order
        assert judge(of).evidence[side] == pytest.approx(order)


def test_values_of_an_index_that_rounding_tells_apart__are_one():
    """Otherwise the measure would have to rise from the first cell to the second."""
    of = selected([40.0, 0.0, 80.0], [0.5 - 1e-16, 0.5, 0.8])
    assert wrong_share(of, at_most=0.0).evidence.in_favour < 1e-6
    found = correlation(of, at_least=0.8)
    assert found.evidence.in_favour < 1e-6
    assert found.estimate == pytest.approx(stats.spearmanr([40, 0, 80], [0.5, 0.5, 0.8]).statistic)


def test_pairs_of_a_correlation__weigh_as_their_ranks_differ():
    """Two pairs in the wrong order may cost three times what one does: 1 − 6 Σ d²/n(n² − 1)."""
    near, far = selected([100.0, 0.0, 200.0, 300.0], range(4)), selected([200.0, 0.0, 100.0, 300.0], range(4))
    tie = selected([100.0, 0.0, 200.0, 300.0], [0.0, 1.0, 1.0, 2.0])  # ranks 1, 2.5, 2.5 and 4
    for of, truth in ((near, 1 - 6 * 2 / 60), (far, 1 - 6 * 6 / 60), (tie, 3.0 / np.sqrt(4.5 * 5.0))):
        assert correlation(of).estimate == pytest.approx(truth)
        assert correlation(of, at_least=truth - 1e-9).evidence.in_favour < 1e-6
        assert correlation(of, at_least=truth + 0.01).evidence.against < 1e-6


def test_interval__is_from_the_last_contradicted_to_the_first_supported_bound():
    of = selected([100.0, 0.0, 200.0, 200.1], range(4))  # one pair violated, one in doubt, of six
    assert wrong_share(of).confidence(0.01) == (pytest.approx(1 / 6), pytest.approx(1 / 3))
    low, high = correlation(of).confidence(0.01)
    assert (low, high) == (pytest.approx(0.6), pytest.approx(0.8))
    assert correlation(selected([300.0, 200.0, 100.0, 0.0], range(4))).confidence(0.01) == pytest.approx((-1.0, -1.0))
    assert wrong_share(of, at_most=0.16).evidence.against < 0.01 > wrong_share(of, at_most=0.34).evidence.in_favour


@pytest.mark.parametrize("bound", [0.1661, 0.1673, 0.33, 0.335, 0.59, 0.599, 0.601, 0.7995, 0.8005, 0.99])
def test_interval__agrees_with_the_verdict_and_holds_the_estimate(bound):
    of = selected([100.0, 0.0, 200.0, 200.1], range(4))
    for found, sign in ((wrong_share(of, at_most=bound), 1.0), (correlation(of, at_least=bound), -1.0)):
        low, high = found.confidence(0.01)
        assert low - 1e-6 <= found.estimate <= high + 1e-6
        near, far = sorted((sign * low, sign * high))
        assert (found.evidence.in_favour < 0.01) == (far <= sign * bound)
        assert (found.evidence.against < 0.01) == (near > sign * bound - 1e-8)


def test_levels_of_a_factor__are_judged_apart():
    of = selected([0.0, 10.0, 1.0, 20.0, 0.0, 9.0], [1.0, 2.0, 1.0, 2.0, 1.0, 1.0], sides="aabbcc")
    shares = violations(claim(kind="violated_pairs", by="side", at_most=0.0, **RISING), of)
    for judged in (shares, rank_correlations(claim(kind="rank_correlation", by="side", **RISING), of)):
        found = list(judged)
        assert [len(each.cells) for each in found] == [2, 2, 2] and "at side = b" in found[1].statistic
        # Without a pair that the index orders there is nothing to prove, either way.
        assert found[2].evidence == (1.0, 1.0)


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
