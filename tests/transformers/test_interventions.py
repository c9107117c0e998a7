"""Heads that take the pattern of others: who gives to whom, and what it costs."""

import numpy as np
import pytest
from scipy.stats import ttest_rel

from simstudy.transformers.heads import TransformerHeads
from simstudy.transformers.interventions import averaging, donor_map, intervene, merged, sharing, zeroing


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


@pytest.mark.parametrize("causal", [False, True])
def test_averaging__adds_the_mean_of_what_heads_add(causal):
    rng = np.random.default_rng(4)
    weights, values = rng.random((3, 5, 5)), rng.standard_normal((5, 2))
    weights *= np.tri(5) if causal else 1
    edited = averaging((1, 2), (0, 0), causal=causal)(1, weights)
    np.testing.assert_array_equal(edited[:2], weights[:2])
    for t in range(5):
        seen = (weights[2] @ values)[: t + 1 if causal else None]
        np.testing.assert_allclose(edited[2, t] @ values, seen.mean(axis=0))


def test_part_of_the_weights_that_is_kept__gives_the_slope():
    """Of a loss that is quadratic in what the head adds: the damage over 1 - kept is its derivative in the limit."""
    x = np.random.default_rng(5).standard_normal((6, 2))
    loss = lambda sequence, edit: 0.5 * np.sum(mean_head(sequence, edit) ** 2)  # noqa: E731
    found = intervene(loss, [x, x + 1], {"less": zeroing((0, 1), kept=1 - 1e-6)})
    slopes = [-np.sum(mean_head(each, None) * each.mean(axis=0)) for each in (x, x + 1)]
    np.testing.assert_allclose(found.damage.sel(edit="less") / 1e-6, slopes, rtol=1e-4)
    assert found.damage.long_name == "rise of the loss"


def test_merged_heads__write_what_all_wrote_at_the_rank_of_one():
    """Against the best product of that rank; with biases, and exactly if a donor and its heads read two directions."""
    rng = np.random.default_rng(6)
    arrays = rng.standard_normal((4, 2, 4, 7, 2))
    arrays[2, 0, :, :, 1] = 0.0  # in the first layer each head reads one direction
    heads = TransformerHeads(*arrays, *rng.standard_normal((3, 2, 4, 2)))
    found = merged(heads, {(0, 0): 2, (1, 1): 3, (1, 0): 3})
    wrote = lambda of, layer, h: of.output[layer, h] @ of.value[layer, h].T  # noqa: E731
    added = lambda of, layer: np.einsum("hdp,hp->d", of.output[layer], of.value_bias[layer])  # noqa: E731
    np.testing.assert_allclose(wrote(found, 0, 2), wrote(heads, 0, 0) + wrote(heads, 0, 2), atol=1e-12)
    u, sizes, v = np.linalg.svd(sum(wrote(heads, 1, h) for h in (0, 1, 3)))
    np.testing.assert_allclose(wrote(found, 1, 3), (u[:, :2] * sizes[:2]) @ v[:2], atol=1e-12)
    for layer, gone, kept in ((0, [0], [1, 3]), (1, [0, 1], [2])):
        assert not any(wrote(found, layer, h).any() for h in gone)
        for h in kept:
            np.testing.assert_array_equal(wrote(found, layer, h), wrote(heads, layer, h))
        np.testing.assert_allclose(added(found, layer), added(heads, layer))


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
        (lambda: merged(TransformerHeads(*np.ones((2, 1, 2, 3, 1))), {}), "give W_V and W_O"),
    ],
)
def test_mistakes__are_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()
