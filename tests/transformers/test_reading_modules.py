"""Modules of torch and models of TransformerLens, of which stand-ins have as much as is asked for."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from layouts import BERT, CONFIG, D, H, L, P, by_linear_maps, require_same

import simstudy
from simstudy.errors import UserError


def test_weights_of_torch_and_timm__are_fused(parts):
    arrays = {}
    for layer in range(L):
        matrix, bias = parts["matrices"][:, layer].transpose(0, 2, 1).reshape(-1, D), parts["biases"][:, layer].ravel()
        arrays |= {f"layers.{layer}.self_attn.in_proj_weight": matrix, f"layers.{layer}.self_attn.in_proj_bias": bias,
                   f"blocks.{layer}.attn.qkv.weight": matrix, f"blocks.{layer}.attn.qkv.bias": bias}  # fmt: skip
        for place in (f"layers.{layer}.self_attn.out_proj", f"blocks.{layer}.attn.proj"):
            arrays[f"{place}.weight"] = parts["output"][layer].T
    for kind in ("torch", "timm"):
        require_same(simstudy.read_heads(arrays, {"model_type": kind, **CONFIG}), parts)
    one = {name.removeprefix("layers.0.self_attn."): array for name, array in arrays.items() if "layers.0" in name}
    config = {"model_type": "torch", **CONFIG, "num_hidden_layers": 1}
    assert np.array_equal(simstudy.read_heads(one, config).query[0], simstudy.read_heads(arrays, config).query[0])
    with pytest.raises(UserError, match=r"lack layers\.1"):
        simstudy.read_heads(one, config | {"num_hidden_layers": 2})


class Module:
    """As much of a torch.nn.Module as is asked for: torch itself is no dependency."""

    class Tensor:
        def __init__(self, array):
            self.array = array

        def detach(self):
            return self

        cpu = float = detach

        def numpy(self):
            return self.array

    def __init__(self, arrays, config):
        self.arrays, self.config = arrays, type("Config", (), {"to_dict": lambda _: config})()

    def state_dict(self):
        return {name: self.Tensor(array) for name, array in self.arrays.items()}


class Attention(Module):
    """As much of a torch.nn.MultiheadAttention."""

    def __init__(self, layer, parts):
        matrix, bias = parts["matrices"][:, layer].transpose(0, 2, 1), parts["biases"][:, layer]
        self.in_proj_weight, self.num_heads = matrix.reshape(-1, D), H
        self.arrays = {"in_proj_weight": self.in_proj_weight, "in_proj_bias": bias.ravel(),
                       "out_proj.weight": parts["output"][layer].T}  # fmt: skip


def test_attention_of_torch__is_found_in_any_module(parts):
    layers = {f"layers.{layer}.self_attn": Attention(layer, parts) for layer in range(L)}
    across = {"layers.0.multihead_attn": Attention(0, parts)}

    class Whole(Module):
        modules = None

        def named_modules(self):
            return ({"": self} | layers | across).items()

    whole = Whole({}, None)
    del whole.config
    require_same(simstudy.read_heads(whole), parts)


def test_module__is_read_by_its_own_configuration(parts):
    arrays = by_linear_maps(parts, BERT, "encoder.layer.{0}.attention.output.dense")
    require_same(simstudy.read_heads(Module(arrays, {"model_type": "bert", **CONFIG})), parts)


def lens_model(parts, **settings):
    """As much of a model of TransformerLens as is asked for."""
    arrays = {f"blocks.{layer}.attn.b_O": np.zeros(D) for layer in range(L)}
    for (k, name), layer in itertools.product(enumerate("QKV"), range(L)):
        split = parts["matrices"][k, layer].reshape(D, H, P).swapaxes(0, 1)
        arrays |= {f"blocks.{layer}.attn.W_{name}": split, f"blocks.{layer}.attn.b_{name}":
                   parts["biases"][k, layer].reshape(H, P), f"blocks.{layer}.attn.W_O":
                   parts["output"][layer].reshape(H, P, D)}  # fmt: skip
    usual = {"positional_embedding_type": "standard", "attention_dir": "causal", "use_attn_scale": True,
             "attn_scale": -1.0}  # fmt: skip
    model = Module(arrays, None)
    del model.config
    model.cfg = SimpleNamespace(**usual | settings)
    return model


def test_models_of_transformer_lens__are_read_by_its_names(parts):
    require_same(simstudy.read_heads(lens_model(parts)), parts)
    require_same(simstudy.read_heads(lens_model(parts).arrays), parts)
    rotary = {"positional_embedding_type": "rotary", "rotary_base": 50, "rotary_dim": 2}
    heads = simstudy.read_heads(lens_model(parts, **rotary, attn_scale=4.0, attention_dir="bidirectional"))
    assert (heads.rotary_base, heads.rotary_factors.shape, heads.scale, heads.causal) == (50, (L, 1), 0.25, False)
    assert simstudy.read_heads(lens_model(parts).arrays).causal
    for settings, said in (({"use_qk_norm": True}, "use_qk_norm"), ({"attn_scores_soft_cap": 50.0}, "cap = 50.0"),
                           ({"positional_embedding_type": "alibi"}, "'alibi'")):  # fmt: skip
        with pytest.raises(UserError, match=f"cfg says .*{said}"):
            simstudy.read_heads(lens_model(parts, **settings))
    with pytest.raises(UserError, match="give rotary_base, and rotary_dim"):
        simstudy.read_heads({**lens_model(parts).arrays, "blocks.0.attn.rotary_sin": np.ones(1)})


def test_modules_of_newer_versions__have_newer_names(parts):
    names = [f"layers.{{0}}.attention.{name}_proj" for name in "qkv"]
    arrays = by_linear_maps(parts, names, "layers.{0}.attention.o_proj")
    require_same(simstudy.read_heads(Module(arrays, {"model_type": "vit", **CONFIG})), parts)


class Tokens(Module.Tensor):
    ndim = property(lambda self: self.array.ndim)

    def swapaxes(self, *axes):
        return Tokens(self.array.swapaxes(*axes))


class Running:
    """A module that adds one to what it is given, and calls hooks first."""

    def __init__(self, **how):
        self.hooks = {}
        vars(self).update(how)

    def register_forward_pre_hook(self, hook, with_kwargs):
        assert with_kwargs
        self.hooks[hook] = hook
        return SimpleNamespace(remove=lambda: self.hooks.pop(hook))

    def __call__(self, *given, **named):
        for hook in self.hooks.values():
            hook(self, given, named)
        return Tokens(next(iter((*given, *named.values()))).array + 1)


@pytest.mark.parametrize("batch_first", [True, False])
def test_states__are_what_enters_attention(batch_first):
    attention = {f"layers.{layer}.self_attn": Running(in_proj_weight=1, batch_first=batch_first) for layer in range(L)}

    def model(tokens, times=1):
        for each in [*attention.values()] * times:
            tokens = each(tokens) if batch_first else each(query=tokens)

    model.named_modules = lambda: attention.items()
    tokens = np.arange(24.0).reshape(2, 3, 4)
    found = simstudy.collect_states(model, Tokens(tokens))
    np.testing.assert_array_equal(found, [(tokens if batch_first else tokens.swapaxes(0, 1)) + k for k in range(L)])
    assert not any(each.hooks for each in attention.values())
    with pytest.raises(UserError, match="attention ran 6 times in 3 layers"):
        simstudy.collect_states(model, Tokens(tokens), times=2)
    attention.clear()
    with pytest.raises(UserError, match=r"no torch.nn.MultiheadAttention in the model"):
        simstudy.collect_states(model, Tokens(tokens))
