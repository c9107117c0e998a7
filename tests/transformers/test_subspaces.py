"""Key subspaces beside random ones, keys that heads share, and dimensions of keys: against loops and known keys."""

import math

import numpy as np
import pytest
from scipy.stats import spearmanr

import simstudy
from simstudy.data.geometry import diversity_indices
from simstudy.temperatures import Problem, best_sharpness
from simstudy.transformers import subspaces
from simstudy.transformers.attention import GAPS, Projected, dimensions
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
    found = subspaces.geometry(keys, np.tile(np.arange(5), (2, 1)), map)[1]
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


@pytest.mark.parametrize("window", [99, 15])
@pytest.mark.parametrize("causal", [False, True])
def test_dimensions__are_those_of_loops(causal, window):
    rng = np.random.default_rng(0)
    query, key = rng.standard_normal((2, 3, 25, 4))
    back = np.subtract.outer(np.arange(25), np.arange(25))
    found = dimensions(Projected(query, key), 0.5, (np.abs(back) < window) & (back >= 0 if causal else True))
    for h in range(3):
        apparent, logs = [], {k: [] for k in GAPS}
        for t in range(2 if causal else 0, 25):
            seen = [s for s in range(t if causal else 25) if 0 < abs(s - t) < window]
            logits = [0.5 * float(query[h, t] @ key[h, s]) for s in seen]
            entries = [np.average(logits, weights=[math.exp(power * each) for each in logits]) for power in (2, 1)]
            apparent.append(4 * (entries[0] - entries[1]))
            gaps = sorted(max(logits) - each for each in logits)[1:]
            for k in GAPS:
                logs[k] += [math.log(gaps[k - 1] / each) for each in gaps[: k - 1]] if len(gaps) >= k else []
        assert found.apparent_dimension[h] == pytest.approx(np.mean(apparent), rel=1e-9)
        for k, value in zip(GAPS, found.log_gaps[h], strict=True):
            assert value == pytest.approx(np.mean(logs[k]) if logs[k] else math.nan, rel=1e-9, nan_ok=True)
        lengths = np.linalg.norm(key[h] - key[h].mean(axis=0), axis=1)
        assert found.key_length_variation[h] == pytest.approx(lengths.std() / lengths.mean())


def sphere(rng, n_tokens, d):
    key = rng.standard_normal((4, n_tokens, d))
    return key / np.linalg.norm(key, axis=-1, keepdims=True)


def test_dimension_of_the_sphere__is_found_at_four_and_not_beyond_sixteen():
    """Four draws each; at the best temperature a sphere of 63 dimensions does not look like more than 10."""
    rng, found = np.random.default_rng(1), {}
    for d in (4, 16, 64):
        key = sphere(rng, 4096, d)
        found[d] = dimensions(Projected(key, key), best_sharpness(Problem("unit", d), 4096), None)
        assert found[d].key_length_variation.max() < 0.02
    assert found[4].apparent_dimension.mean() == pytest.approx(3.0, abs=0.2)
    assert 2 / found[4].log_gaps[:, -1].mean() == pytest.approx(3.0, abs=0.5)
    assert 6.5 < found[16].apparent_dimension.mean() < found[64].apparent_dimension.mean() < 10.0
    assert found[64].log_gaps[:, 0].mean() > 2 / 5.0


def test_gaussian_keys__vary_in_length():
    key = np.random.default_rng(2).standard_normal((1, 4096, 64))
    found = dimensions(Projected(key, key), 0.1, None)
    assert found.key_length_variation == pytest.approx(1 / math.sqrt(128), rel=0.1)
