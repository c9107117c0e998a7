"""Key subspaces beside random ones: a cheap null against subspaces drawn whole, and keys that heads share."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

import simstudy
from simstudy.data.geometry import diversity_indices
from simstudy.transformers import subspaces
from simstudy.transformers.heads import TransformerHeads


@pytest.mark.parametrize("n_heads, n_features, p", [(8, 64, 16), (4, 40, 24), (1, 48, 16), (2, 16, 16)])
def test_null__has_mean_and_deviation_of_subspaces_drawn_whole(n_heads, n_features, p, monkeypatch):
    """At 24 of 40 dimensions two subspaces meet."""
    monkeypatch.setattr(subspaces, "_HAAR_DRAWS", 600)
    rng = np.random.default_rng(0)
    found = subspaces.haar_indices(n_heads, n_features, p, p**0.25, rng)
    whole = diversity_indices(rng.standard_normal((600, n_heads, n_features, p)), p**0.25)
    known = ~np.isnan(whole[0])
    assert np.array_equal(known, ~np.isnan(found[0]))
    errors = np.sqrt((found.var(axis=0) + whole.var(axis=0)) / 600)
    # Where subspaces meet, a sine is 0 up to rounding, which QR makes 1e-8.
    gaps = np.maximum(np.abs(found.mean(axis=0) - whole.mean(axis=0)) - 1e-7, 0.0)
    assert (gaps <= 4.5 * errors)[known].all()
    varies = known & (whole.std(axis=0) > 1e-7)
    np.testing.assert_allclose(found.std(axis=0)[varies], whole.std(axis=0)[varies], rtol=0.15)


def test_many_directions__keep_six_digits(monkeypatch):
    """Two of the heads are nearly parallel: their angles come from sines."""
    monkeypatch.setattr(subspaces, "_LARGE", 1)
    rng = np.random.default_rng(1)
    keys = rng.standard_normal((2, 5, 12, 3))
    keys[:, 4] = keys[:, 0] + 1e-3 * keys[:, 4]
    found = subspaces.geometry(keys, np.tile(np.arange(5), (2, 1)), map).indices
    np.testing.assert_allclose(found, diversity_indices(keys, 3**0.25), rtol=2e-6)


def test_keys_that_differ_in_their_bias_alone__are_two():
    keys, biases = np.ones((1, 3, 6, 2)), np.zeros((1, 3, 2))
    biases[0, 1] = 1.0
    assert subspaces.key_groups(keys, biases).tolist() == [[0, 1, 0]]


def test_heads_of_one_key_group__count_once():
    rng = np.random.default_rng(2)
    query, key = rng.standard_normal((2, 2, 4, 6, 2))
    key[:, 1], key[:, 3] = key[:, 0], key[:, 2]
    key[1, 3, 0, 0] += 1.0  # the second layer has three groups
    found = simstudy.inspect_heads(TransformerHeads(query, key, scale=0.4), rng.standard_normal((2, 6, 9, 6)))
    assert found.key_group.values.tolist() == [[0, 0, 2, 2], [0, 0, 2, 3]]
    np.testing.assert_allclose(found.hdi[0], simstudy.head_diversity(key[0, [0, 2]], 2**0.25), rtol=1e-6)
    units = [[(0, 0, 1)], [(0, 0, 2), (0, 0, 3), (0, 1, 2), (0, 1, 3)], [(0, 2, 3)],
             [(1, 0, 1)], [(1, 0, 2), (1, 1, 2)], [(1, 0, 3), (1, 1, 3)], [(1, 2, 3)]]  # fmt: skip
    means = {source: np.array([np.mean([found.weight_correlation.sel(source=source).values[place] for place in unit])
                               for unit in units]) for source in ("observed", "half", "exact")}  # fmt: skip
    assert found.weight_correlation.sel(source="constant")[0, 0, 1] == pytest.approx(means["half"].mean())
    for source in ("half", "exact"):
        scores = found.sel(source=source)
        gaps = means[source] - means["observed"]
        assert scores.prediction_error == pytest.approx(np.sqrt(np.mean(gaps**2)))
        assert scores.prediction_rank == pytest.approx(spearmanr(means[source], means["observed"])[0])
