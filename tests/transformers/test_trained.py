"""A trained transformer: its forward pass, and its heads against its own attention."""

import numpy as np
import pytest
from builders import mean_correlation, patterns
from scipy.special import ndtr
from scipy.stats import spearmanr

import simstudy
from simstudy.transformers.heads import TransformerHeads
from simstudy.transformers.sequences import draw_tokens
from simstudy.transformers.trained import _gelu, load_trained, restored_probabilities


@pytest.fixture(scope="module")
def trained():
    """RXNMapper, its vocabulary, random reactions, and its encodings of them."""
    model, vocabulary = load_trained("rxnmapper")
    rng = np.random.default_rng(0)
    reactions = [draw_tokens("rxnmapper", vocabulary, rng) for _ in range(12)]
    return model, vocabulary, reactions, [model(each) for each in reactions]


def test_forward_pass__restores_masked_tokens(trained):
    """What the model was trained for: a pass with any part wrong restores next to none."""
    model, vocabulary, reactions, _ = trained
    assert not any(vocabulary["[UNK]"] in numbers for numbers in reactions)
    restored = []
    for numbers in reactions[:4]:
        for place in range(2, len(numbers) - 1, 6):
            masked = [*numbers[:place], vocabulary["[MASK]"], *numbers[place + 1 :]]
            restored.append(restored_probabilities(model(masked))[place].argmax() == numbers[place])
    # Of many reactions 94 %: of these 46 tokens four standard errors less are 80 %.
    assert len(restored) > 40 and np.mean(restored) > 0.8


def test_trained_heads__are_those_of_the_models_own_attention(trained):
    """And exact theory tells which heads agree on other reactions, where angles do not; all of it: make verify."""
    model, _, reactions, encodings = trained
    own_weights = [patterns(model, each) for each in reactions[1::2]]
    layers = [0, 6, 11]
    heads = TransformerHeads(*(part[layers] for part in list(vars(model.heads).values())[:7]), scale=model.heads.scale)
    found = simstudy.inspect_heads(heads, [each.states[layers] for each in encodings]).weight_correlation
    first, second = np.triu_indices(8, 1)
    observed = found.sel(source="observed").values
    for k, layer in enumerate(layers):
        for h, g in zip(first, second, strict=True):
            own = np.mean([mean_correlation(each[layer][[h, g]]) for each in own_weights])
            assert abs(observed[k, h, g] - own) < 1e-5
    ranks = {
        source: spearmanr(
            found.sel(source=source).values[:, first, second].ravel(), observed[:, first, second].ravel()
        )[0]
        for source in ("angles", "exact")
    }
    assert ranks["exact"] > 0.6 > 0.4 > ranks["angles"]


def test_gelu__is_x_times_the_normal_distribution_function():
    """No restored token shows a digit that is wrong in the approximation."""
    x = np.linspace(-12, 12, 4001, dtype=np.float32)
    found = _gelu(x)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, x * ndtr(x.astype(np.float64)), rtol=2e-7, atol=4e-7)
    # A model whose numbers overflow goes on as its own code would.
    assert _gelu(np.array([np.inf, -np.inf, 3e38, -3e38], np.float32)).tolist() == [np.inf, 0.0, np.float32(3e38), 0.0]


def test_shared_keys__with_values_of_their_own_are_told_apart():
    rng = np.random.default_rng(0)
    query, key, value = rng.standard_normal((3, 2, 4, 8, 3))
    key[:, 1::2] = key[:, ::2]
    states = rng.standard_normal((5, 8))
    for values in (value, np.repeat(value[:, ::2], 2, axis=1)):
        heads = TransformerHeads(query, key, values)
        for part, matrices in (("key", key[1]), ("value", values[1])):
            np.testing.assert_allclose(heads.linear(part, 1, states), states @ matrices)
