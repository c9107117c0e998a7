"""Captured numbers of a trained model against loops over the attention that it returns."""

import numpy as np
import pytest
from builders import Draw, functions_of

pytest.importorskip("transformers")
import torch

STUDY = functions_of("real-heads")


@pytest.fixture(scope="module")
def texts():
    return STUDY["texts"](Draw(1, 4), "rxnmapper", count=4)["tokens"][0]


def test_correlations__are_those_of_loops_over_returned_attention(texts):
    model = STUDY["load"]("rxnmapper")[0]
    model.set_attn_implementation("eager")
    for text, found in zip(texts, STUDY["observed"]("rxnmapper", texts)[0], strict=True):
        with torch.no_grad():
            own = model(torch.tensor(text[None, text > 0]), output_attentions=True).attentions
        weights = np.array([each[0].numpy() for each in own], float)
        unit = weights / np.sqrt((weights**2).sum(axis=-1, keepdims=True))
        for layer, h, g in ((0, 0, 1), (5, 2, 7), (11, 6, 6)):
            expected = np.mean([unit[layer, h, t] @ unit[layer, g, t] for t in range(unit.shape[2])])
            assert found[layer, h, g] == pytest.approx(expected, abs=1e-5)


def test_edits__change_the_output_of_later_layers_as_their_weights_say(texts):
    """A head that takes its own weights changes nothing; one that is removed changes what its donor does not."""
    same = {(layer, head): head for layer in range(12) for head in range(8)}
    assert STUDY["damage"]("rxnmapper", texts, STUDY["changed"](same)) < 1e-9
    removed, shared = (STUDY["damage"]("rxnmapper", texts, STUDY["changed"]({(5, 2): d})) for d in (None, 6))
    assert removed > 1e-6 and shared > 1e-6 and removed != shared
    # The loss rises where most heads take the weights of others at random.
    assert STUDY["share_and_lose"]("rxnmapper", texts, 0, "random", share=0.8)["loss_rise"] > 0.5


def test_donors__are_the_most_alike_and_keep_their_own_and_edits_give_others_their_weights():
    alike = np.random.default_rng(1).random((3, 4, 4))
    found = STUDY["donors"](alike, 0.5)
    assert len(found) == 6 and not {(layer, donor) for (layer, _), donor in found.items()} & found.keys()
    first = max((alike[each], each) for each in np.ndindex(alike.shape) if each[1] != each[2])[1]
    assert found[first[:2]] == first[2]
    assert len({str(STUDY["donors"](0.5 + 1e-12 * alike, 0.5, seed)) for seed in range(5)}) > 1  # up to rounding
    weights = torch.rand(2, 3, 5, 5)
    edit = STUDY["changed"]({(1, 2): None, (1, 0): 1, (0, 1): 2})
    expected = torch.stack([weights[:, 1], weights[:, 1], torch.zeros(2, 5, 5)], dim=1)
    assert torch.equal(edit(1, weights), expected) and torch.equal(edit(2, weights), weights)


def test_predictors__rest_on_the_texts_between_those_that_are_judged_and_a_missing_package_is_named(monkeypatch, texts):
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.1")
    with pytest.raises(ModuleNotFoundError, match=r"pip install --no-deps antiberty==0\.1\.3"):
        STUDY["loaded"].__wrapped__("antiberty")
    seen, theirs = STUDY["observed"]("rxnmapper", texts)[0], [["half", 0], ["observed", 1]]
    for predictor, first in theirs:
        found = STUDY["correlation"]("rxnmapper", texts, 0, predictor)
        np.testing.assert_array_equal(found, seen[first::2].mean(axis=0))


def test_probe__is_the_share_of_slopes_in_the_directions_of_most_heads(monkeypatch):
    """Of a model whose first layer reads independent features: the next token follows those that all heads look at."""
    rng = np.random.default_rng(2)
    tokens, shares = rng.integers(1, 9, size=(600, 12)), []
    for inside, scale in ((True, 1.0), (False, 1.0), (True, 5.0)):
        states = rng.normal(size=(*tokens.shape, 8))
        states[:, :-1, 0 if inside else 5] += tokens[:, 1:]
        states[..., 0] *= scale
        read = type("Output", (), {"hidden_states": (torch.tensor(states), None)})
        key = np.eye(8)[[[0, 1], [0, 1], [0, 2]]].swapaxes(1, 2)  # common: features 0 and 1
        monkeypatch.setitem(STUDY["probe"].__globals__, "load", lambda model, read=read: (lambda **given: read, {}))
        monkeypatch.setitem(STUDY["probe"].__globals__, "maps", lambda model, key=key: [{"key": key}])
        shares.append(STUDY["probe"]("any", tokens)["common_share"])
    assert shares == pytest.approx([1, 0, 1], abs=0.05)
