"""Attention as models compute it: every door, what is known of padding, and what is refused."""

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
from builders import refuses

from simstudy.errors import UserError

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from simstudy.transformers.capture import capture  # noqa: E402

X = torch.randn(2, 9, 16, generator=torch.Generator().manual_seed(1))
PADDING = torch.zeros(2, 9, dtype=torch.bool)
PADDING[1, 6:] = True
LATER = torch.ones(9, 9).triu(1) > 0


def calls_of(model, run, **how):
    found = []
    with torch.no_grad(), capture(model.eval(), found.append, **how) as seen:
        run()
    assert seen.calls == len(found)
    return found


@pytest.mark.parametrize("options", [{}, {"add_bias_kv": True}, {"add_zero_attn": True}, {"kdim": 16, "vdim": 16}])
@pytest.mark.parametrize("masked", [{}, {"key_padding_mask": PADDING}, {"attn_mask": LATER, "is_causal": True}])
def test_multi_head__weights_are_those_that_it_returns_and_padded_queries_are_known(options, masked):
    layer, outputs = nn.MultiheadAttention(16, 2, batch_first=True, **options).eval(), []
    for average in (True, False):
        given = {"average_attn_weights": average, **masked}
        with torch.no_grad():
            own = layer(X, X, X, **given)
        (call,) = calls_of(layer, lambda given=given: outputs.append(layer(X, X, X, **given)))
        for one, other in zip(outputs[-1], own, strict=True):
            assert one.shape == other.shape and torch.allclose(one, other, atol=1e-6)
    assert torch.allclose(call.weights(), own[1], atol=1e-6)
    assert torch.equal(call.valid, ~PADDING) if "key_padding_mask" in masked else call.valid is None


def test_padded_encoder__runs_as_it_would_without_its_packed_path_and_unseen_keys_are_padding():
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2).eval()
    expected = encoder(X, src_key_padding_mask=PADDING).detach()  # with gradients, torch does not pack
    outputs = []
    found = calls_of(encoder, lambda: outputs.append(encoder(X, src_key_padding_mask=PADDING)))
    assert [call.name for call in found] == ["layers.0.self_attn", "layers.1.self_attn"]
    assert all(torch.equal(call.valid, ~PADDING) for call in found)
    assert torch.allclose(outputs[0][~PADDING], expected[~PADDING], atol=1e-6)
    assert torch.backends.mha.get_fastpath_enabled()
    model = Masked()
    for seen, known in ((~PADDING, ~PADDING), (PADDING | True, None)):
        mask = seen.view(2, 1, 1, 9).expand(2, 1, 9, 9)
        (call,) = calls_of(model, lambda mask=mask: model(X[:, None], mask))
        assert call.valid is None if known is None else torch.equal(call.valid, known)


class Own(nn.Module):
    """Attention of one's own: by the library's function, by a softmax and a product, or by a softmax and `einsum`."""

    def __init__(self, way="function"):
        super().__init__()
        self.read, self.route, self.way = nn.Linear(16, 48), nn.Linear(16, 3), way

    def forward(self, x, src_key_padding_mask=None):
        torch.softmax(self.route(x), dim=-1)  # multiplies nothing
        query, key, value = self.read(x).unflatten(-1, (3, 2, 8)).movedim(-3, 0).transpose(-3, -2)
        if self.way == "function":
            return nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=0.3)
        weights = nn.functional.dropout(torch.softmax(query @ key.transpose(-1, -2) / 3.0, dim=-1), 0.1, training=False)
        if self.way == "product":
            return weights @ value
        if self.way == "bmm":
            return torch.bmm(weights.flatten(0, 1), value.flatten(0, 1)).unflatten(0, (2, 2))
        if self.way == "blocks":
            return torch.einsum("...ts,...sd->...td", weights, value)
        if self.way == "einsum":
            return torch.einsum("bhts,bshd->bthd", weights, value.transpose(1, 2)).transpose(1, 2)
        return nn.functional.scaled_dot_product_attention(*(each.flatten(0, 1) for each in (query, key, value)))


class Masked(nn.Module):
    def forward(self, x, mask):
        return nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)


LATE = torch.arange(9)[:, None] > 2
ALIBI = -1.0 * (torch.arange(9)[:, None] - torch.arange(9)).abs()
LOWEST = torch.zeros(9, 9).masked_fill(~LATE, torch.finfo(torch.float16).min).half()


@pytest.mark.parametrize("x, mask", [
    (X[:, None], LATE | True), (X[:, None], LATE), (X[:, None], LATE.expand(2, 1, 9, 1)), (X, LATE[:1] | True),
    (X, LATE[:, 0]), (3 * X[:, None].half(), LOWEST), (X, ALIBI),
])  # fmt: skip
def test_masks__hold_for_keys_and_queries_as_in_torch_where_a_query_sees_a_key(x, mask):
    """Under the lowest number of half precision, a query that sees none has other weights by each kernel."""
    model, parts = Masked().eval(), []
    with torch.no_grad(), capture(model, lambda call: parts.extend([*call.tiles(4), call.plain])):
        model(x, mask)
    assert parts.pop() == (mask is not ALIBI)  # of what is added theory knows nothing
    found = torch.cat([nn.functional.pad(each, (0, 9 - each.shape[-1])) for _, each in parts[::-1]], 2)
    own = nn.functional.scaled_dot_product_attention(x, x, torch.eye(9).to(x).expand(*x.shape[:-1], 9), attn_mask=mask)
    assert torch.allclose(found.view(own.shape)[..., 3:, :], own[..., 3:, :].float(), atol=1e-3)


@pytest.mark.parametrize("way", ["product", "bmm", "einsum"])
def test_softmax_that_multiplies_values__gives_weights_of_queries_that_are_no_padding(way):
    model = Own(way).eval()
    (call,) = calls_of(model, lambda: model(X, src_key_padding_mask=PADDING))
    query, key, _ = model.read(X).unflatten(-1, (3, 2, 8)).movedim(-3, 0).transpose(-3, -2)
    assert call.query is None and not call.plain and torch.equal(call.valid, ~PADDING)
    assert torch.allclose(call.weights(), torch.softmax(query @ key.mT / 3.0, -1), atol=1e-6)
    with torch.no_grad(), capture(model, lambda call: call.edit(call.weights() * 0.5)):
        halved = model(X)
    assert torch.allclose(halved, model(X) / 2.0, atol=1e-6)


def test_edit_of_an_own_model__takes_the_place_of_the_output_of_the_function_that_it_calls():
    model = Own()

    def silence(call):
        weights = call.weights()
        assert call.causal and call.scale == 0.3 and weights.triu(1).abs().max() == 0.0
        assert torch.equal(call.visible[0, 0], torch.ones(9, 9).tril().bool())
        weights[:, 1] = 0.0
        call.edit(weights)

    plain = model.eval()(X).detach()
    with torch.no_grad(), capture(model, silence):
        silenced = model(X)
    with torch.no_grad(), capture(model, lambda call: call.edit(call.weights()[:, [0, 0]])):
        shared = model(X)
    assert torch.allclose(silenced[:, 0], plain[:, 0], atol=1e-6) and silenced[:, 1].abs().max() == 0.0
    assert not torch.allclose(shared[:, 1], plain[:, 1]) and torch.equal(model(X), plain)
    for wrong in (lambda weights: weights[:, :1], lambda weights: weights.mT[..., :8], lambda weights: weights.numpy()):
        refused = pytest.raises(UserError, match=r"edit takes a tensor of the shape that weights\(\) has, .*, 2, 9, 9")
        with refused, torch.no_grad(), capture(model, lambda call, wrong=wrong: call.edit(wrong(call.weights()))):
            model(X)


def test_models_that_cannot_be_watched__are_refused_with_the_reason(monkeypatch):
    told = {"no attention was seen": nn.Identity().eval(), "Own is in training mode": Own(), "model of type dict": {}}
    for said, model in told.items():
        with pytest.raises(UserError, match=said), capture(model, lambda call: None):
            pass
    for way in ("mixed", "blocks"):
        unknown = "whose axes of sequences and heads are not known"
        refuses(unknown, calls_of, Own(way), lambda way=way: Own(way).eval()(X))
    own = nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(nn.functional, own.__name__, enlarged := lambda *given, **how: 1.01 * own(*given, **how))
    refuses("do not give its output", calls_of, Own(), lambda: Own().eval()(X))
    assert nn.functional.scaled_dot_product_attention is enlarged


def test_long_texts__are_computed_in_parts_with_the_same_output():
    pytest.importorskip("transformers")
    from families import tiny

    model = tiny("llama")
    ids, outputs, grams = torch.arange(80).view(2, 40) % 50, [], []
    mask = torch.arange(40) >= torch.tensor([[0], [7]])  # the first queries of the second text see no key

    def visit(call):
        grams.append(sum((w @ w.transpose(-1, -2)).diagonal(dim1=-2, dim2=-1).sum() for _, w in call.tiles(7)))

    for tile in (1000, 16):
        with torch.no_grad(), capture(model, visit, tile=tile):
            outputs.append(model(ids, attention_mask=mask.long()).last_hidden_state)
    assert torch.allclose(*outputs, atol=1e-5) and torch.allclose(torch.stack(grams[:2]), torch.stack(grams[2:]))
    found = []
    for gradient, model.config.output_attentions, asked in (
        (False, False, {}), (True, False, {}), (False, True, {}), (False, False, {"output_attentions": True}),
    ):  # fmt: skip
        with torch.set_grad_enabled(gradient), capture(model, found.append, tile=16):
            out = model(ids, attention_mask=mask.long(), **asked)
        assert torch.allclose(out.last_hidden_state, outputs[0], atol=1e-5)  # also of parts that nobody takes
        wanted = bool(asked or model.config.output_attentions)
        assert (found[-1].given is not None) == (gradient or wanted)  # by the model's own function
        assert not wanted or out.attentions[1] is found[-1].given


def test_other_threads__run_the_model_unwatched():
    began, ended = threading.Event(), threading.Event()

    class Slow(Masked):
        def forward(self, x):
            if len(x) == 1:
                began.set()
                ended.wait(60)
            return super().forward(x, None)

    model = Slow().eval()
    with torch.no_grad(), ThreadPoolExecutor(1) as pool, capture(model, lambda _: None) as seen:
        other = pool.submit(model, X[:1])
        began.wait(60)
        model(X)  # three axes: the first is that of sequences, as many as the model takes here
        ended.set()
        other.result()
    assert seen.calls == 1


def test_tensors__are_let_go_with_the_block():
    """Memory of many texts would grow until Python looks for circles, of which the first call of a process has some."""
    model, held = Own().eval(), []
    gc.disable()
    try:
        for _ in range(2):
            with torch.no_grad(), capture(model, lambda x, kept=[]: kept.append(x) or held.append(weakref.ref(x))):
                model(X)
        assert len(held) == 2 and held[1]() is None
    finally:
        gc.enable()
