"""Heads that take the pattern of others: who gives to whom, and what it costs."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ttest_rel

from simstudy.transformers.interventions import donor_map, intervene, sharing, zeroing


def test_most_similar_pairs__share_first_and_donors_keep_their_own():
    similarity = np.zeros((2, 4, 4))
    for layer, head, other, value in ((0, 0, 1, 0.9), (0, 1, 2, 0.8), (1, 2, 3, 0.7), (0, 2, 3, 0.6)):
        similarity[layer, head, other] = similarity[layer, other, head] = value
    # 0 takes from 1; so 1 takes from nobody, but may give to 2; 3 would take from 2, which has none of its own by then.
    similarity += 1e-6 * np.tri(4).T  # of two heads that tie, the first takes
    assert donor_map(similarity, 0.25) == {(0, 0): 1, (0, 2): 1}
    assert donor_map(similarity, 0.375) == {(0, 0): 1, (0, 2): 1, (1, 2): 3}
    assert donor_map(similarity, 0.0) == {}


def test_ties__are_broken_at_random_by_the_seed():
    """All pairs are alike: no layer comes first."""
    chosen = [donor_map(np.ones((8, 4, 4)), 0.25, seed) for seed in range(20)]
    layers = [layer for each in chosen for layer, _ in each]
    assert np.bincount(layers, minlength=8).min() > 0 and len({tuple(each) for each in chosen}) > 1
    assert donor_map(np.ones((8, 4, 4)), 0.25, 3) == chosen[3]


@pytest.mark.parametrize("seed", range(3))
def test_every_choice__gives_up_the_share_and_leaves_donors_alone(seed):
    similarity = np.random.default_rng(seed).random((3, 8, 8))
    donors = donor_map(similarity, 0.5)
    assert len(donors) == 12
    for (layer, head), donor in donors.items():
        assert head != donor and (layer, donor) not in donors


def test_pairs_that_must_not__share_nothing():
    similarity = np.full((1, 3, 3), np.nan)
    similarity[0, 2, 0] = 0.1
    assert donor_map(similarity, 0.9) == {(0, 2): 0}


def test_edits__replace_patterns_of_their_layer():
    weights = np.random.default_rng(0).random((3, 4, 4))
    edited = sharing({(1, 0): 2, (5, 1): 0})(1, weights)
    np.testing.assert_array_equal(edited, weights[[2, 1, 2]])
    gone = zeroing((1, 2), (0, 1))(1, weights)
    assert not gone[2].any() and np.array_equal(gone[:2], weights[:2]) and weights[2].any()


def mean_head(sequence, edit):
    """A model of one layer and two heads, which look at the token before and at all; its output is their sum."""
    weights = np.stack([np.eye(len(sequence), k=-1), np.full((len(sequence),) * 2, 1 / len(sequence))])
    return np.sum((weights if edit is None else edit(0, weights)) @ sequence, axis=0)


def test_damage__is_the_squared_change_over_the_variance():
    rng = np.random.default_rng(1)
    sequences = [rng.standard_normal((n, 2)) for n in (5, 9, 4)]
    edits = {"none": sharing({}), "share": sharing({(0, 0): 1}), "zero": zeroing((0, 1))}
    found = intervene(mean_head, sequences, edits)
    assert found.damage.sel(edit="none").values.tolist() == [0.0, 0.0, 0.0]
    for s, x in enumerate(sequences):
        before = np.vstack([np.zeros(2), x[:-1]])
        spread = np.sum((before - before.mean(axis=0)) ** 2)
        assert found.damage.sel(edit="share")[s] == pytest.approx(np.sum((before - x.mean(axis=0)) ** 2) / spread)
        assert found.damage.sel(edit="zero")[s] == pytest.approx(len(x) * np.sum(x.mean(axis=0) ** 2) / spread)
    assert found.mean_damage_mcse.sel(edit="share") == pytest.approx(
        found.damage.sel(edit="share").std(ddof=1) / 3**0.5
    )


def test_differences__are_paired_by_sequence():
    rng = np.random.default_rng(2)
    sequences = [rng.standard_normal((n, 2)) for n in (5, 9, 4, 7)]
    found = intervene(mean_head, sequences, {"share": sharing({(0, 0): 1}), "zero": zeroing((0, 1))})
    pair = found.sel(edit="share", other="zero")
    expected = ttest_rel(found.damage.sel(edit="share"), found.damage.sel(edit="zero"))
    assert pair.difference / pair.difference_mcse == pytest.approx(expected.statistic)
    np.testing.assert_allclose(pair.difference_interval, expected.confidence_interval(0.95))


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: donor_map(np.zeros((2, 3)), 0.5), "similarity has shape"),
        (lambda: donor_map(np.zeros((2, 3, 3)), 1.0), "share = 1.0"),
        (lambda: intervene(mean_head, [np.ones((2, 2))], {"none": sharing({})}), "1 sequences"),
        (lambda: intervene(mean_head, [np.ones((2, 2))] * 2, {}), "0 edits"),
    ],
)
def test_mistakes__are_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()
