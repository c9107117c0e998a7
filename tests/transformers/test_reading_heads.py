"""Heads read by the conventions of families of models: one set of projections, laid out as each lays it out."""

import itertools
import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from layouts import CONFIG, LLAMA, D, H, L, P, by_linear_maps, require_same

import simstudy
from simstudy.errors import UserError
from simstudy.transformers.attention import attention_weights, project
from simstudy.transformers.conventions import sizes_of
from simstudy.transformers.heads import TransformerHeads


def test_bert(parts):
    arrays = by_linear_maps(parts, prefix="bert.")
    heads = simstudy.read_heads(arrays, {"model_type": "bert", **CONFIG})
    require_same(heads, parts)
    assert not heads.causal and heads.rotary_base is None
    assert simstudy.read_heads(arrays, {"model_type": "bert", **CONFIG, "is_decoder": True}).causal


def test_gpt2__has_fused_projections_that_map_rows(parts):
    arrays = {}
    for layer in range(L):
        arrays[f"transformer.h.{layer}.attn.c_attn.weight"] = np.concatenate(list(parts["matrices"][:, layer]), axis=1)
        arrays[f"transformer.h.{layer}.attn.c_attn.bias"] = np.concatenate(list(parts["biases"][:, layer]))
        arrays[f"transformer.h.{layer}.attn.c_proj.weight"] = parts["output"][layer]
    heads = simstudy.read_heads(arrays, {"model_type": "gpt2", "n_layer": L, "n_head": H, "n_embd": D})
    require_same(heads, parts)
    assert heads.causal


def test_grouped_queries__share_keys_and_values(parts):
    arrays = by_linear_maps(parts, LLAMA, "model.")
    for layer in range(L):
        for name in LLAMA[1:3]:
            for kind in ("weight", "bias"):
                arrays[f"model.{name.format(layer)}.{kind}"] = arrays[f"model.{name.format(layer)}.{kind}"][: 2 * P]
    heads = simstudy.read_heads(arrays, {"model_type": "qwen2", **CONFIG, "num_key_value_heads": 2, "rope_theta": 1e6})
    for matrices in (parts["matrices"], parts["biases"][:, :, None]):
        first, second = matrices[1:, ..., :P].copy(), matrices[1:, ..., P : 2 * P].copy()
        matrices[1:] = np.concatenate([first, first, second, second], axis=-1)
    require_same(heads, parts)
    assert heads.causal and heads.rotary_base == 1e6
    newer = {"model_type": "qwen2", **CONFIG, "num_key_value_heads": 2, "rope_parameters": {"rope_theta": 3e5}}
    assert simstudy.read_heads(arrays, newer).rotary_base == 3e5


def test_gpt_neox__fuses_by_head_and_turns_a_part(parts):
    arrays = {}
    for layer in range(L):
        place = f"gpt_neox.layers.{layer}.attention"
        by_head = (part[:, layer].reshape(3, -1, H, P) for part in (parts["matrices"], parts["biases"][:, :, None]))
        matrix, bias = (each.transpose(2, 0, 3, 1).reshape(3 * H * P, -1) for each in by_head)
        arrays |= {f"{place}.query_key_value.weight": matrix, f"{place}.query_key_value.bias": bias.ravel()}
        arrays[f"{place}.dense.weight"] = parts["output"][layer].T
    heads = simstudy.read_heads(arrays, {"model_type": "gpt_neox", **CONFIG, "rotary_pct": 0.5, "rotary_emb_base": 50})
    require_same(heads, parts)
    assert (heads.rotary_base, heads.rotary_factors.shape, heads.causal) == (50, (L, P // 4), True)
    turned = TransformerHeads(heads.query, heads.key, rotary_base=10.0, rotary_factors=np.array([]))
    plain = TransformerHeads(heads.query, heads.key)
    np.testing.assert_array_equal(project(turned, 0, np.eye(D)).key, project(plain, 0, np.eye(D)).key)


def test_scaled_rotary_positions__have_the_published_frequencies():
    llama3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
              "original_max_position_embeddings": 8192}  # fmt: skip
    config = {"model_type": "llama", **CONFIG, "head_dim": 128, "rope_theta": 5e5}
    found = sizes_of({**config, "rope_scaling": llama3}).settings["rotary_factors"][1]
    for j, factor in enumerate(found):
        wavelength = 2 * np.pi * 5e5 ** (2 * j / 128)
        smooth = (8192 / wavelength - 1) / 3
        expected = 1 if wavelength < 2048 else 1 / 8 if wavelength > 8192 else (1 - smooth) / 8 + smooth
        assert factor == pytest.approx(expected)
    assert len(set(found)) > 3
    np.testing.assert_array_equal(
        sizes_of({**config, "rope_scaling": {"type": "linear", "factor": 4}}).settings["rotary_factors"], 0.25
    )


def test_norms_of_queries_and_keys__are_applied(parts):
    arrays = by_linear_maps(parts, LLAMA, "model.")
    rng = np.random.default_rng(5)
    norms = rng.standard_normal((2, L, P))
    for layer, (name, norm) in itertools.product(range(L), zip("qk", norms, strict=True)):
        arrays[f"model.layers.{layer}.self_attn.{name}_norm.weight"] = norm[layer]
    heads = simstudy.read_heads(arrays, {"model_type": "qwen3", **CONFIG})
    seen, state = project(heads, 1, np.ones((1, D))), np.ones(D)
    for own, matrix, bias, norm in zip(
        seen, (heads.query, heads.key), (heads.query_bias, heads.key_bias), norms, strict=True
    ):
        raw = state @ matrix[1, 2] + bias[1, 2]
        np.testing.assert_allclose(own[2, 0], raw / np.sqrt(np.mean(raw**2) + 1e-6) * norm[1], rtol=1e-6)


def test_modernbert__turns_by_the_base_of_each_kind_of_layer(parts):
    config = {"model_type": "modernbert", **CONFIG, "hidden_size": 4 * H, "local_attention": 128}
    older = {"global_rope_theta": 160_000.0, "local_rope_theta": 10_000.0, "global_attn_every_n_layers": 2}
    bases = {"full_attention": {"rope_theta": 160_000.0}, "sliding_attention": {"rope_theta": 10_000.0}}
    newer = {"layer_types": [list(bases)[layer % 2] for layer in range(3)], "rope_parameters": bases}
    for said in (sizes_of(config | older).settings, sizes_of(config | newer).settings):
        frequencies = said["rotary_factors"] * said["rotary_base"] ** -np.array([0, 0.5])
        np.testing.assert_allclose(frequencies, [[1, 1 / 400], [1, 1 / 100], [1, 1 / 400]])
        assert said["window"] == (None, 65, None)


def test_gemma2__scales_and_caps_logits(parts):
    arrays = by_linear_maps(parts, LLAMA, "model.")
    config = {"model_type": "gemma2", **CONFIG, "query_pre_attn_scalar": 16, "attn_logit_softcapping": 0.5}
    heads = simstudy.read_heads(arrays, config)
    assert (heads.scale, heads.cap) == (0.25, 0.5)
    rng = np.random.default_rng(4)
    found = simstudy.inspect_heads(heads, rng.standard_normal((L, 4, 6, D)))
    weights = []
    for tokens in np.random.default_rng(4).standard_normal((L, 4, 6, D))[0, [1, 3]]:
        seen = project(heads, 0, tokens)
        powers = np.tri(6) * np.exp(0.5 * np.tanh(0.25 * (seen.query @ seen.key.mT)[:2] / 0.5))
        weights.append(powers / powers.sum(axis=2, keepdims=True))
    products = [[a @ b / np.sqrt((a @ a) * (b @ b)) for a, b in zip(*each, strict=True)] for each in weights]
    values = found.weight_correlation.sel(layer=0, head_i=0, head_j=1)
    assert values.sel(source="observed") == pytest.approx(np.mean(products))
    assert values.sel(source=["leading", "exact", "redrawn"]).isnull().all()
    assert (found.inapplicable.sel(source="exact") == "theory knows no caps on logits").all()


@pytest.mark.parametrize(
    "model_type, change, expected",
    [
        ("mistral", {"sliding_window": None}, (None, None, None)),
        ("mistral", {}, (64, 64, 64)),
        ("gemma2", {}, (64, None, 64)),
        ("qwen2", {"use_sliding_window": False, "max_window_layers": 28}, (None, None, None)),
        ("qwen2", {"use_sliding_window": True, "max_window_layers": 1}, (None, 64, 64)),
        ("qwen3", {"use_sliding_window": True, "layer_types": ["sliding_attention", *["full_attention"] * 2]},
         (64, None, None)),
    ],
)  # fmt: skip
def test_windows__are_those_that_are_used(model_type, change, expected):
    said = sizes_of({"model_type": model_type, **CONFIG, "sliding_window": 64, **change})
    assert said.settings["window"] == expected


def test_albert__shares_one_layer_in_memory(parts):
    place = "encoder.albert_layer_groups.0.albert_layers.0.attention"
    for array in (parts["matrices"], parts["biases"]):
        array[:] = array[:, :1]
    parts["output"][:] = parts["output"][:1]
    arrays = by_linear_maps(parts, [f"{place}.{name}" for name in ("query", "key", "value", "dense")], "a.")
    heads = simstudy.read_heads(arrays, {"model_type": "albert", **CONFIG, "num_hidden_groups": 1})
    require_same(heads, parts)
    assert heads.key.strides[0] == 0


def test_rotary_positions__turn_by_their_distance_alone(parts):
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal((1, 1, D, 4)) for _ in range(4)]
    heads = TransformerHeads(*arrays, *np.zeros((3, 1, 1, 4)), scale=0.5, causal=True, rotary_base=100.0)
    states = np.tile(rng.standard_normal(D), (6, 1))
    seen = project(heads, 0, states)
    logits = (seen.query @ seen.key.mT)[0]
    for offset in range(-5, 6):
        assert np.ptp(np.diagonal(logits, offset)) < 1e-12
    assert np.ptp(logits) > 0.1
    moved = project(heads, 0, states, np.arange(6) + 40)
    np.testing.assert_allclose(moved.query @ moved.key.mT, seen.query @ seen.key.mT, atol=1e-12)
    # Plane j turns by base^(-2j/p) a place.
    complex_query = (states @ heads.query[0, 0])[:, :2] + 1j * (states @ heads.query[0, 0])[:, 2:]
    turned = complex_query * np.exp(1j * np.outer(np.arange(6), [1.0, 0.1]))
    np.testing.assert_allclose(seen.query[0], np.concatenate([turned.real, turned.imag], axis=1), atol=1e-12)


def test_causal_weights__see_the_past_alone():
    rng = np.random.default_rng(2)
    query, key = rng.standard_normal((2, 3, 5, 4))
    whole = attention_weights(query, key, 0.5, np.tri(5, dtype=bool))
    for t in range(5):
        np.testing.assert_allclose(whole[:, t, : t + 1], attention_weights(query[:, [t]], key[:, : t + 1], 0.5)[:, 0])
        assert not whole[:, t, t + 1 :].any()
    np.testing.assert_array_equal(attention_weights(query[:, 2:], key, 0.5, np.tri(5, dtype=bool)[2:]), whole[:, 2:])


@pytest.mark.parametrize(
    "change, said",
    [
        ({"model_type": "mamba"}, "model_type = 'mamba'.*known are bert"),
        ({"num_attention_heads": 3}, "the configuration says"),
        ({"num_attention_heads": None}, "num_attention_heads = None"),
        ({"num_hidden_layers": L + 1}, "lack encoder.layer.3"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type = 'relative_key'.*'absolute'"),
        ({"scale_attn_weights": False}, "scale_attn_weights = False.*True"),
        (
            {"model_type": "llama", "rope_scaling": {"rope_type": "yarn", "factor": 8.0}},
            "'yarn'.*default, linear, llama3",
        ),
        ({"model_type": "llama", "rope_scaling": {"type": "linear"}}, "factor = None .* positive number"),
        ({"model_type": "phi", "qk_layernorm": True}, "qk_layernorm = True.*False"),
    ],
)
def test_configuration_that_does_not_fit__is_refused(change, said, parts):
    arrays = by_linear_maps(parts)
    with pytest.raises(UserError, match=said):
        simstudy.read_heads(arrays, {"model_type": "bert", **CONFIG, **change})


@pytest.mark.parametrize(
    "change, entry, said",
    [
        ({"num_attention_heads": 3}, 0.0, r"model\.npz: .*the configuration says"),
        ({}, np.nan, r"model\.npz: key holds NaN"),
        ({"model_type": "mamba"}, 0.0, r"config\.json: model_type = 'mamba'"),
    ],
)
def test_mistakes_in_files__are_told_with_their_path(change, entry, said, parts, tmp_path):
    parts["matrices"][1, 2, 0, 0] = entry
    np.savez(tmp_path / "model.npz", **by_linear_maps(parts))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", **CONFIG, **change}))
    with pytest.raises(UserError, match=said):
        simstudy.read_heads(tmp_path / "model.npz", tmp_path / "config.json")


def test_two_models_in_one_file__are_refused(parts):
    arrays = {}
    for prefix in ("encoder_q.", "encoder_k."):
        arrays |= by_linear_maps(parts, prefix=prefix)
    with pytest.raises(UserError, match="2 times"):
        simstudy.read_heads(arrays, {"model_type": "bert", **CONFIG})


@pytest.mark.parametrize("weights, config, said", [(3, {"model_type": "bert", **CONFIG}, "type int"),
                                                   ({}, None, "config is missing"),
                                                   (SimpleNamespace(config=1, state_dict=dict), None, "is missing"),
                                                   ({}, "nowhere.json", "nowhere.json: no configuration")])  # fmt: skip
def test_other_arguments__are_refused(weights, config, said):
    with pytest.raises(UserError, match=said):
        simstudy.read_heads(weights, config)


def test_heads_made_of_arrays__are_checked():
    arrays = np.ones((4, 2, 3, 5, 2))
    with pytest.raises(ValueError, match="key_bias has shape"):
        TransformerHeads(*arrays, np.ones((2, 3, 2)), np.ones((2, 3, 1)), np.ones((2, 3, 2)), scale=1.0)
    arrays[1, 0, 0, 0, 0] = np.nan
    with pytest.raises(ValueError, match="key holds NaN"):
        TransformerHeads(*arrays, *np.ones((3, 2, 3, 2)), scale=1.0)
    with pytest.raises(ValueError, match=r"key has shape \(\); give \(2, 3, 5, 2\)"):
        TransformerHeads(arrays[0], None, *arrays[2:], scale=1.0)
    with pytest.raises(ValueError, match=r"query has shape \(2, 3, 5\); give \(layer, head, feature, dimension\)"):
        TransformerHeads(arrays[0, ..., 0], *arrays[1:], scale=1.0)


OWN = {
    "W_Q": "query", "W_K": "key", "W_V": "value", "W_O": "output", "b_Q": "query_bias", "b_K": "key_bias",
    "b_V": "value_bias",
}  # fmt: skip


def own_arrays(shape):
    *outer, d, p = shape
    rng = np.random.default_rng(3)
    by_shape = {shape: ("W_Q", "W_K", "W_V"), (*outer, p, d): ("W_O",), (*outer, p): ("b_Q", "b_K", "b_V")}
    return {name: rng.standard_normal(each) for each, names in by_shape.items() for name in names}


@pytest.mark.parametrize("shape", [(H, D, P), (L, H, D, P)])
def test_arrays_by_name__need_no_configuration(shape, tmp_path):
    arrays = own_arrays(shape)
    np.savez(tmp_path / "own.npz", **arrays, causal=True, scale=0.3, rotary_base=100.0)
    heads = simstudy.read_heads(tmp_path / "own.npz")
    for name, field in OWN.items():
        wanted = arrays[name].mT if name == "W_O" else arrays[name]
        np.testing.assert_array_equal(getattr(heads, field), wanted if len(shape) == 4 else wanted[None])
    assert (heads.scale, heads.causal, heads.rotary_base) == (0.3, True, 100.0)


def test_fewer_key_than_query_heads__are_shared_in_order():
    arrays = own_arrays((H, D, P))
    arrays |= {name: arrays[name][:2] for name in ("W_K", "W_V", "b_K", "b_V")}
    heads = simstudy.read_heads(arrays)
    for name, field in (("W_K", "key"), ("W_V", "value"), ("b_K", "key_bias")):
        np.testing.assert_array_equal(getattr(heads, field)[0], arrays[name][[0, 0, 1, 1]])


def test_queries_and_keys_alone__are_heads_without_biases():
    arrays = {name: own_arrays((H, D, P))[name].astype(np.float32) for name in ("W_Q", "W_K")}
    heads = simstudy.read_heads(arrays)
    assert heads.value is None and heads.output is None and not heads.causal and heads.rotary_base is None
    assert heads.scale == P**-0.5 and heads.key_bias.shape == (1, H, P) and not heads.key_bias.any()
    assert project(heads, 0, np.ones((3, D), np.float32)).key.dtype == np.float32


@pytest.mark.parametrize(
    "change, said",
    [
        ({"W_K": None}, r"config is missing, and weights hold W_Q, .*W_Q and W_K of shape"),
        (
            {"W_U": np.ones(3)},
            r"config is missing, and weights hold W_U; give .*W_V, W_O, b_Q, .*, rotary_dim, window, alone",
        ),
        ({"W_Q": np.ones((D, P))}, r"W_Q has shape \(8, 2\); give W_Q and W_K of shape \(head, feature, dimension\)"),
        ({"W_K": np.ones((H, D, P + 1))}, r"W_K has shape .*; give \(4, 8, 2\), as W_Q has"),
        ({"W_K": np.ones((0, D, P))}, r"W_K has shape \(0, 8, 2\); give \(4, 8, 2\), as W_Q has"),
        ({"W_Q": np.ones((0, D, P))}, r"W_Q has shape \(0, 8, 2\); give W_Q and W_K of shape"),
        ({"W_O": np.ones((H, D, P))}, r"W_O has shape \(4, 8, 2\); give \(4, 2, 8\)"),
        ({"b_Q": np.ones(P)}, r"b_Q has shape \(2,\); give \(4, 2\)"),
        ({"W_K": np.full((H, D, P), np.nan)}, "key holds NaN"),
        ({"W_K": np.full((H, D, P), "a")}, r"W_K has dtype <U1; give real numbers, of shape \(4, 8, 2\)"),
        ({"causal": 1}, "causal = .*; give real numbers"),
        ({"scale": -1.0}, "scale = -1.0; give a positive number"),
        ({"rotary_base": np.inf}, "rotary_base = inf; give a positive number"),
        ({"window": 1}, "window = 1; give a whole number from 2 on"),
        ({"rotary_base": 9.0, "rotary_dim": 4}, "rotary_dim = 4; give an even number from 2 to .* heads, 2"),
    ],
)
def test_arrays_by_name_that_do_not_fit__are_refused_in_one_line(change, said, tmp_path):
    arrays = own_arrays((H, D, P)) | change
    np.savez(tmp_path / "own.npz", **{name: each for name, each in arrays.items() if each is not None})
    with pytest.raises(UserError, match=rf"own\.npz: {said}") as refusal:
        simstudy.read_heads(tmp_path / "own.npz")
    assert "\n" not in str(refusal.value)


def test_weights_of_no_known_model__are_told_what_else_is_read():
    with pytest.raises(UserError, match=r"hold W_Q, W_K, W_V, .*or no configuration and W_Q and W_K of shape"):
        simstudy.read_heads(own_arrays((H, D, P)), {"model_type": "bert", **CONFIG})


def test_reading_heads__loads_no_torch():
    code = "import sys, simstudy as s; s.read_heads; s.inspect_heads; print({'torch', 'onnx'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"
