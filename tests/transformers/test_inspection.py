"""What is said of heads, against loops over the definition."""

import math
import tracemalloc

import numpy as np
import pytest
import xarray as xr
from builders import mean_correlation
from scipy.stats import spearmanr

import simstudy
from simstudy.theory import logit_moments
from simstudy.transformers.attention import observe, project, visible
from simstudy.transformers.heads import TransformerHeads
from simstudy.transformers.inspection import inspect_lengths

L, H, D, P = 2, 3, 6, 2


def random_heads(rng, **how):
    arrays = rng.standard_normal((4, L, H, D, P))
    return TransformerHeads(*arrays, *rng.standard_normal((3, L, H, P)), scale=0.4, **how)


def softmax_weights(heads, layer, head, states, causal=False, window=99):
    """Weights (T, T), one number after another."""
    weights = np.zeros((len(states), len(states)))
    for t, looking in enumerate(states):
        query = heads.query[layer, head].T @ looking + heads.query_bias[layer, head]
        seen = range(max(0, t - window + 1), min(len(states), t + (1 if causal else window)))
        keys = [heads.key[layer, head].T @ states[s] + heads.key_bias[layer, head] for s in seen]
        powers = [math.exp(heads.scale * float(query @ key)) for key in keys]
        weights[t, seen] = np.array(powers) / math.fsum(powers)
    return weights


@pytest.mark.parametrize("windows", [(99, 99), (3, 99)])
@pytest.mark.parametrize("causal", [False, True])
def test_observed__is_the_definition(causal, windows):
    rng = np.random.default_rng(0)
    heads = random_heads(rng, causal=causal, window=(windows[0], None))
    states = rng.standard_normal((L, 6, 7, D))
    mask = np.ones((6, 7), bool)
    mask[3, 5:] = mask[1, 0] = False
    states[:, ~mask] = np.nan  # what padding holds must not matter
    found = simstudy.inspect_heads(heads, states, mask)
    judged = [states[:, s, mask[s]] for s in (1, 3, 5)]
    means = np.zeros((L, 3))
    for layer in range(L):
        weights = [[softmax_weights(heads, layer, h, one[layer], causal, windows[layer]) for h in range(H)]
                   for one in judged]  # fmt: skip
        for h, g in ((0, 1), (1, 2), (0, 2)):
            values = [mean_correlation((each[h], each[g])) for each in weights]
            cell = {"layer": layer, "head_i": h, "head_j": g}
            assert found.weight_correlation.sel(source="observed", **cell) == pytest.approx(np.mean(values), abs=1e-12)
            error = found.weight_correlation_mcse.sel(source="observed", **cell)
            assert error == pytest.approx(np.std(values, ddof=1) / math.sqrt(3), abs=1e-12)
            means[layer] += np.array(values) / 3
        grams = np.mean([np.einsum("hts,gts->hg", each, each) / len(each[0]) for each in weights], axis=0)
        assert found.effective_heads.sel(source="observed", layer=layer) == pytest.approx(
            H * np.trace(grams) / grams.sum()
        )
        sinks = np.mean([[w.mean(axis=0).max() for w in each] for each in weights], axis=0)
        np.testing.assert_allclose(found.sink_share.sel(layer=layer), sinks)
    own = found.sel(source="observed")
    for name, expected in (("layer_correlation", means), ("mean_correlation", means.mean(axis=0))):
        np.testing.assert_allclose(own[name], expected.mean(axis=-1))
        np.testing.assert_allclose(own[f"{name}_mcse"], expected.std(axis=-1, ddof=1) / math.sqrt(3))


def test_exact__is_the_theory_of_the_fitted_covariance():
    """One token is judged in each sequence, and each sequence has two; the rest follows from the definition."""
    rng = np.random.default_rng(1)
    heads = random_heads(rng)
    fitted, judged = rng.standard_normal((2, L, 40, D)), rng.standard_normal((2, L, 9, D))
    one, two = fitted
    found = simstudy.inspect_heads(heads, [one, *judged, two], judged=[False, True, True, False], queries=9)
    for layer in range(L):
        keys = [np.concatenate([s[layer] @ heads.key[layer, h] for s in (one - one.mean(axis=1, keepdims=True),
                                two - two.mean(axis=1, keepdims=True))]) for h in range(H)]  # fmt: skip
        keys = [each - each.mean(axis=0) for each in keys]
        centres = [np.mean([s[layer].mean(axis=0) @ heads.key[layer, h] for s in (one, two)], axis=0) for h in range(H)]
        correlations = []
        for state in judged[:, layer].reshape(-1, D):
            queries = [heads.query[layer, h].T @ state + heads.query_bias[layer, h] for h in range(H)]
            logits = [heads.scale * keys[h] @ queries[h] for h in range(H)]
            own = [[heads.scale * queries[h] @ (heads.key[layer, h].T @ state - centres[h])] for h in range(H)]
            covariance = np.array([[a @ b / (80 - 2) for a in logits] for b in logits])
            correlations.append(logit_moments(covariance, 8, known=own).correlation)
        np.testing.assert_allclose(
            found.weight_correlation.sel(source="exact", layer=layer), np.mean(correlations, axis=0), atol=1e-9
        )


@pytest.mark.parametrize("causal", [False, True])
def test_a_sink_at_the_beginning__is_taken_apart(causal):
    """Every sequence begins with one token that all heads look at: tokens drawn at random are none like it."""
    rng = np.random.default_rng(12)
    heads = random_heads(rng, causal=causal)
    heads.query_bias[:], heads.key[:, :, -1] = 3.0, 1.0
    states = rng.standard_normal((L, 40, 12, D))
    states[..., -1] = 0.0
    states[:, :, 0] = 4.0 * np.eye(D)[-1]
    found = simstudy.inspect_heads(heads, states, queries=4).weight_correlation
    first, second = np.triu_indices(H, 1)
    gaps = (found.sel(source="exact") - found.sel(source="observed")).values[:, first, second]
    others = (found.sel(source="redrawn") - found.sel(source="observed")).values[:, first, second]
    assert np.abs(gaps).max() < 0.1 < np.abs(others).max()


def test_gaussian_tokens__have_the_exact_correlation():
    """Independent Gaussian states are what theory speaks of: it then holds within its Monte Carlo error."""
    rng = np.random.default_rng(2)
    heads = random_heads(rng)
    found = simstudy.inspect_heads(heads, rng.standard_normal((L, 80, 12, D)), queries=3)
    values, errors = found.weight_correlation, found.weight_correlation_mcse
    for source, bound in (("exact", 5.0), ("redrawn", 5.0)):
        gap = values.sel(source=source) - values.sel(source="observed")
        error = np.hypot(errors.sel(source=source), errors.sel(source="observed"))
        # A query is a token of its own sequence, which theory does not know; nor is the mean of ratios their ratio.
        assert float(np.abs(gap).max()) < 0.03 + bound * float(error.max())


@pytest.mark.parametrize("how", [{}, {"causal": True, "rotary_base": 30.0}])
def test_theory__speaks_of_longer_sequences_than_it_has_seen(how):
    """Tokens are independent: all that length changes is how many there are, and how far apart."""
    rng = np.random.default_rng(3)
    arrays = rng.standard_normal((4, 1, H, D, P))
    heads = TransformerHeads(*arrays, scale=0.8, **how)
    short, long = (rng.standard_normal((1, *shape, D)) for shape in ((120, 15), (60, 60)))
    seen, found = simstudy.inspect_heads(heads, short, length=60), simstudy.inspect_heads(heads, long)
    predicted, wanted = (each.sel(source="exact", layer=0) for each in (seen, found))
    pairs = ~np.eye(H, dtype=bool)
    gap, error = predicted.weight_correlation - wanted.weight_correlation, wanted.weight_correlation_mcse
    assert np.abs(gap.values[pairs]).max() < 0.02 + 3 * error.values[pairs].max() < 0.1
    change = seen.weight_correlation.sel(source="observed", layer=0) - predicted.weight_correlation
    assert change.values[pairs].mean() > 0.1


def turning_heads(rng, scale, **how):
    """Logits fall with distance, over 60 tokens far more than over 15, by biases that turn slowly."""
    arrays, biases = 0.3 * rng.standard_normal((4, 1, H, D, 4)), np.zeros((2, 1, H, 4))
    biases[..., 1::2] = 2.5 * rng.standard_normal((2, 1, H, 2))
    return TransformerHeads(*arrays, query_bias=biases[0], key_bias=biases[1], scale=scale, rotary_base=900, **how)


@pytest.mark.parametrize("how", [{"window": 8}, {"window": 12, "causal": True}])
def test_windows__leave_theory_the_tokens_that_are_seen(how):
    """Neither their number nor their logits are those of the whole sequence; leading order holds for small logits."""
    rng = np.random.default_rng(5)
    heads = turning_heads(rng, 0.2, **how)
    found = simstudy.inspect_heads(heads, rng.standard_normal((1, 60, 60, D)), queries=4)
    values, errors = found.weight_correlation.sel(layer=0), found.weight_correlation_mcse.sel(layer=0)
    gap = np.abs(values - values.sel(source="observed")).sel(source=["exact", "leading"]).values
    error = np.hypot(errors.sel(source="exact"), errors.sel(source="observed")).max()
    assert gap[0].max() < 3 * error < 0.03
    assert heads.causal or gap[1].max() < 0.1


def test_shares_of_the_ends__are_averaged_over_the_queries_that_see_them():
    """With a window of 3, three of nine queries see either end."""
    rng = np.random.default_rng(6)
    heads, states = random_heads(rng, window=3), rng.standard_normal((9, D))
    found = observe(heads, 0, project(heads, 0, states), visible(heads, 0, np.arange(9))).end_share
    weights = [softmax_weights(heads, 0, h, states, window=3) for h in range(H)]
    np.testing.assert_allclose(found, [[each[:3, 0].mean(), each[-3:, -1].mean()] for each in weights])


def test_windows__leave_out_queries_beyond_every_fitted_text():
    """Theory is fitted to six tokens: the later tokens of the judged texts must not matter to it."""
    rng = np.random.default_rng(7)
    heads, texts = random_heads(rng, window=3), [rng.standard_normal((L, n, D)) for n in (6, 12, 6, 12)]
    changed = [np.concatenate([text[:, :6], 2 * text[:, 6:]], axis=1) for text in texts]
    one, other = (simstudy.inspect_heads(heads, given, queries=12).weight_correlation for given in (texts, changed))
    np.testing.assert_allclose(one.sel(source="exact"), other.sel(source="exact"), rtol=1e-12)


def test_tokens_of_short_sequences__stand_as_far_apart_as_in_long_ones():
    rng = np.random.default_rng(4)
    heads = turning_heads(rng, 0.8, causal=True)
    short, long = (rng.standard_normal((1, *shape, D)) for shape in ((40, 15), (20, 60)))
    seen, found = simstudy.inspect_heads(heads, short, length=60), simstudy.inspect_heads(heads, long)
    gap = (seen.weight_correlation - found.weight_correlation).sel(source="exact", layer=0)
    assert np.abs(gap).max() < 0.05  # 0.25 if tokens stood next to one another


def test_contributions__have_the_covariance_of_noise_on_states():
    """Gram times overlap, against drawing the noise."""
    rng = np.random.default_rng(3)
    heads = random_heads(rng)
    states = rng.standard_normal((L, 4, 5, D))
    found = simstudy.inspect_heads(heads, states)
    for layer in range(L):
        expected, drawn = np.zeros((2, H, H))
        for s in (1, 3):
            weights = np.array([softmax_weights(heads, layer, h, states[layer, s]) for h in range(H)])
            noise = rng.standard_normal((40_000, 5, D))
            values = [noise @ heads.value[layer, h] @ heads.output[layer, h].T for h in range(H)]
            for t in range(5):
                added = np.array([np.einsum("s,rsd->rd", weights[h, t], values[h]) for h in range(H)])
                covariance = np.einsum("hrd,grd->hg", added, added) / len(noise)
                deviation = np.sqrt(np.diag(covariance))
                drawn += covariance / np.outer(deviation, deviation) / 10
        sizes = []
        for s in (1, 3):
            values = states[layer, s] @ heads.value[layer] + heads.value_bias[layer][:, None]
            mixed = [softmax_weights(heads, layer, h, states[layer, s]) @ values[h] for h in range(H)]
            sizes.append([np.mean((mixed[h] @ heads.output[layer, h].T) ** 2) for h in range(H)])
        np.testing.assert_allclose(found.output_size.sel(layer=layer), np.mean(sizes, axis=0))
        np.testing.assert_allclose(found.output_size_mcse.sel(layer=layer), np.ptp(sizes, axis=0) / 2)
        expected = found.contribution_correlation.sel(source="observed", layer=layer).values
        assert np.sqrt(np.mean((drawn - expected) ** 2)) < 0.01


def test_heads_whose_values_are_not_known__have_all_but_contributions():
    rng = np.random.default_rng(3)
    heads = random_heads(rng)
    states = rng.standard_normal((L, 4, 5, D))
    whole = simstudy.inspect_heads(heads, states)
    added = [name for name in whole if "contribution" in name or "output" in name]
    biases = {"query_bias": heads.query_bias, "key_bias": heads.key_bias}
    for known in ({}, {"value": heads.value}, {"output": heads.output}):
        given = TransformerHeads(query=heads.query, key=heads.key, scale=heads.scale, **biases, **known)
        part = simstudy.inspect_heads(given, states)
        xr.testing.assert_identical(part, whole.drop_vars(added))
    assert len(added) == 7


def test_pairs__are_ranked_from_most_alike():
    rng = np.random.default_rng(8)
    heads = random_heads(rng)
    heads.query[1, 2], heads.key[1, 2] = heads.query[1, 0], heads.key[1, 0]
    heads.query_bias[1, 2] = heads.query_bias[1, 0]
    found = simstudy.inspect_heads(heads, rng.standard_normal((L, 6, 9, D)))
    pairs = [tuple(map(int, each)) for each in zip(found.pair_layer, found.pair_head_i, found.pair_head_j, strict=True)]
    assert sorted(pairs) == [(layer, h, g) for layer in range(L) for h, g in ((0, 1), (0, 2), (1, 2))]
    assert pairs[0] == (1, 0, 2) and found.pair_correlation[0] == pytest.approx(1.0)
    assert (np.diff(found.pair_correlation) <= 0).all()
    observed = found.sel(source="observed")
    for pair, (layer, h, g) in enumerate(pairs):
        for name in ("correlation", "correlation_mcse"):
            assert found[f"pair_{name}"][pair] == observed[f"weight_{name}"][layer, h, g]


@pytest.mark.parametrize(
    "causal, spoil, said",
    [
        (False, lambda own: own, None),
        (False, np.tril, "no later token"),
        (True, lambda own: own + 0.1, "looks at later tokens"),
        (True, lambda own: np.triu(np.tril(own) + 0.01 * np.tri(9), -3), "looks back 4 tokens, itself included"),
        (False, lambda own: own + 0.1, "further than the window"),
        (False, lambda own: 0.9 * own + 0.1 / 9, "after the norm"),
    ],
)
def test_attention_of_the_model__tells_what_is_wrong(causal, spoil, said):
    rng = np.random.default_rng(10)
    window = 6 if said == "further than the window" else 99
    heads = random_heads(rng, causal=causal, window=window)
    states = rng.standard_normal((L, 4, 9, D))
    own = np.array([[[softmax_weights(heads, layer, h, one, causal, window) for h in range(H)] for one in states[layer]]
                    for layer in range(L)])  # fmt: skip
    if said is None:
        simstudy.inspect_heads(heads, states, attention=spoil(own))
        return
    with pytest.raises(ValueError, match=f"attention of sequence 0, layer 0: weights differ by up to .*{said}"):
        simstudy.inspect_heads(heads, states, attention=list(spoil(own).swapaxes(0, 1)))


def test_predictions__stand_beside_a_constant_and_the_other_half():
    rng = np.random.default_rng(9)
    heads = random_heads(rng)
    states = rng.standard_normal((L, 6, 9, D))
    found = simstudy.inspect_heads(heads, states)
    swapped = simstudy.inspect_heads(heads, states, judged=[True, False] * 3).weight_correlation.sel(source="observed")
    np.testing.assert_array_equal(found.weight_correlation.sel(source="half"), swapped)
    one = [simstudy.inspect_heads(heads, states[:, [0, k, k, 2]], judged=[0, 1, 1, 0]) for k in (1, 3, 5)]
    pairs = lambda of, source: of.weight_correlation.sel(source=source).values[:, [0, 0, 1], [1, 2, 2]]  # noqa: E731
    constant = np.mean(pairs(found, "half"))
    assert np.all(pairs(found, "constant") == pytest.approx(constant))

    def errors(kept):
        observed = np.mean([pairs(one[s], "observed") for s in kept], axis=0)
        gaps = (pairs(found, "half") - observed, constant - observed)
        return [np.sqrt(np.mean(gap**2)) for gap in gaps]

    own, flat = errors([0, 1, 2])
    without = np.array([errors(kept) for kept in ([1, 2], [0, 2], [0, 1])])
    half = found.sel(source="half")
    assert half.prediction_error == pytest.approx(own) and half.prediction_gain == pytest.approx(flat - own)
    for name, values in (("error", without[:, 0]), ("gain", without[:, 1] - without[:, 0])):
        assert half[f"prediction_{name}_mcse"] == pytest.approx(np.sqrt(2 / 3 * np.sum((values - values.mean()) ** 2)))
    rank = spearmanr(pairs(found, "half").ravel(), pairs(found, "observed").ravel())[0]
    assert half.prediction_rank == pytest.approx(rank)


def test_indices__stand_beside_random_subspaces():
    rng = np.random.default_rng(4)
    heads = random_heads(rng)
    found = simstudy.inspect_heads(heads, rng.standard_normal((L, 4, 5, D)))
    for layer in range(L):
        np.testing.assert_allclose(found.hdi.sel(layer=layer), simstudy.head_diversity(heads.key[layer], P**0.25))
    assert found.hdi_haar_mean.sel(index="chordal") == pytest.approx(1 - P / D, abs=0.15)


def test_logits_of_one_direction__have_rank_one():
    rng = np.random.default_rng(5)
    heads = random_heads(rng)
    heads.key[0, 1] = np.outer(rng.standard_normal(D), [1.0, -2.0])
    found = simstudy.inspect_heads(heads, rng.standard_normal((L, 4, 30, D))).logit_rank
    assert found.sel(layer=0, head=1) == pytest.approx(1.0)
    assert ((found > 1.01) & (found <= P)).values.sum() == L * H - 1


def test_leading_order__is_blank_with_the_reason_where_it_is_void():
    rng = np.random.default_rng(6)
    heads = random_heads(rng)
    heads.query[1] *= 10
    heads.query[0] *= 0.01
    heads.query_bias[0] *= 0.01
    found = simstudy.inspect_heads(heads, rng.standard_normal((L, 8, 20, D)))
    leading = found.weight_correlation.sel(source="leading")
    assert np.isfinite(leading.sel(layer=0)).all() and np.isnan(leading.sel(layer=1)).all()
    assert found.inapplicable.sel(source="leading").values.tolist()[0] == ""
    assert "3 of 3 heads" in str(found.inapplicable.sel(source="leading", layer=1).item())
    np.testing.assert_allclose(leading.sel(layer=0), found.weight_correlation.sel(source="exact", layer=0), atol=1e-3)


def test_lengths__are_inspected_as_if_each_were_alone():
    rng = np.random.default_rng(8)
    heads = random_heads(rng, rotary_base=100.0, causal=True)
    states = [rng.standard_normal((L, 20, D)) for _ in range(4)]
    for length, found in zip((20, 50), inspect_lengths(heads, states, (20, 50), queries=2, seed=3), strict=True):
        xr.testing.assert_identical(found, simstudy.inspect_heads(heads, states, length=length, queries=2, seed=3))


@pytest.mark.parametrize(
    "states, options, said",
    [
        (np.zeros((L, 4, 5)), {}, "give .layer, sequence, token, feature"),
        (np.zeros((L, 4, 5, D + 1)), {}, "states of sequence 0"),
        (np.full((L, 4, 5, D), np.nan), {}, "NaN"),
        (np.zeros((L, 4, 5, D)), {"mask": np.zeros((4, 5))}, "0 tokens"),
        (np.zeros((L, 4, 5, D)), {"mask": np.ones((5, 4))}, "mask has shape"),
        (np.zeros((L, 4, 5, D)), {"judged": [True, False, False, False]}, "4 sequences, 1 of them judged"),
        (np.zeros((L, 3, 5, D)), {}, "3 sequences, 1 of them judged; give at least 4"),
        (np.zeros((L, 4, 5, D)), {"queries": 0}, "queries = 0"),
        (np.zeros((L, 4, 5, D)), {"length": 4}, "length = 4; give 5 or more"),
        ([np.zeros((L, 5, D))] * 4, {"mask": np.ones((4, 5))}, "leave padding out"),
    ],
)
def test_mistakes__are_refused(states, options, said):
    with pytest.raises(ValueError, match=said):
        simstudy.inspect_heads(random_heads(np.random.default_rng(7)), states, **options)


@pytest.mark.rare
def test_144_heads__are_inspected_in_less_than_a_gigabyte():
    """Layers and heads as in the base model of BERT, 16 sequences of 128 tokens; layers come one after another."""
    rng, shape = np.random.default_rng(0), (12, 12, 768, 64)
    heads = TransformerHeads(*(rng.standard_normal((4, *shape), dtype=np.float32) / np.float32(768**0.5)))
    states = rng.standard_normal((12, 16, 128, 768), dtype=np.float32)
    tracemalloc.start()
    simstudy.inspect_heads(heads, states)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**30


@pytest.mark.filterwarnings("error")
def test_redrawn_tokens__have_weights_however_large_logits_are():
    rng = np.random.default_rng(4)
    heads = TransformerHeads(*rng.standard_normal((4, L, H, D, P)), scale=1e4)
    found = simstudy.inspect_heads(heads, rng.standard_normal((L, 12, 8, D)), queries=3)
    assert np.isfinite(found.weight_correlation.sel(source="redrawn")).all()
