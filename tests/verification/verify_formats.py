"""Verdict of ``make verify``: heads that are read give the attention that the libraries' own code computes.

Each family is a small model with random weights, in single precision.  Needs torch and transformers (and, for a part,
transformer-lens and onnxscript); skipped without them.
"""

import json
import warnings

import numpy as np
import pytest

import simstudy
from simstudy.errors import UserError
from simstudy.transformers.attention import attention_weights, project, visible

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

T, SEQUENCES = 24, 4
SIZES = {
    "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 60,
    "pad_token_id": 0,
}  # fmt: skip
GROUPED = {**SIZES, "num_key_value_heads": 2, "head_dim": 8}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}  # fmt: skip
ENCODER = {"d_model": 32, "encoder_layers": 3, "encoder_attention_heads": 4, "encoder_ffn_dim": 48, "vocab_size": 60,
           "decoder_layers": 1, "decoder_attention_heads": 4, "decoder_ffn_dim": 48, "pad_token_id": 0}  # fmt: skip
IMAGES = {**{name: SIZES[name] for name in list(SIZES)[:4]}, "image_size": 16, "patch_size": 4}
PARTIAL = {"rope_parameters": {"rope_type": "default", "rope_theta": 90.0, "partial_rotary_factor": 0.5}}
FAMILIES = {
    **dict.fromkeys(("bert", "roberta", "camembert", "xlm-roberta", "electra"), SIZES),
    "esm": {**SIZES, "position_embedding_type": "rotary", "mask_token_id": 1},
    "albert": {**SIZES, "embedding_size": 16},
    "distilbert": {"dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48, "vocab_size": 60},
    **dict.fromkeys(("vit", "deit", "dinov2"), IMAGES),
    **dict.fromkeys(("bart", "mbart"), ENCODER),
    "whisper": {**ENCODER, "max_source_positions": T, "num_mel_bins": 8, "decoder_start_token_id": 1},
    "gpt2": {"n_embd": 32, "n_layer": 3, "n_head": 4, "vocab_size": 60},
    "gpt_neox": {**SIZES, **PARTIAL},
    "phi": {**SIZES, **PARTIAL},
    "modernbert": {**SIZES, "local_attention": 64},
    "llama": {**GROUPED, "rope_parameters": LLAMA3},
    "mistral": {**GROUPED, "rope_parameters": {"rope_type": "linear", "rope_theta": 90.0, "factor": 3.0}},
    **dict.fromkeys(("qwen2", "qwen3", "gemma", "stablelm"), GROUPED),
    "gemma2": {**GROUPED, "query_pre_attn_scalar": 5, "attn_logit_softcapping": 2.0},
}  # fmt: skip
SLIDES = {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1}
WINDOWS = {"mistral": {"sliding_window": 7}, "gemma2": {"sliding_window": 7}, "modernbert": {"local_attention": 12},
           "qwen2": SLIDES, "qwen3": SLIDES}  # fmt: skip
EXPECTED = {"mistral": (7, 7, 7), "gemma2": (7, None, 7)} | dict.fromkeys(
    ("modernbert", "qwen2", "qwen3"), (None, 7, 7)
)


def randomised(model):
    """Weights that make attention far from even."""
    generator = torch.Generator().manual_seed(1)
    for name, each in model.named_parameters():
        drawn = torch.randn(each.shape, generator=generator)
        with torch.no_grad():
            each.copy_(drawn / each[0].numel() ** 0.5 if each.ndim > 1 else 0.3 * drawn + ("bias" not in name))
    return model.eval()


def built(family, **changes):
    config = transformers.AutoConfig.for_model(family, **{**FAMILIES[family], **changes})
    return randomised(transformers.AutoModel.from_config(config, attn_implementation="eager"))


def inputs_of(family, model):
    generator = torch.Generator().manual_seed(2)
    if family in ("vit", "deit", "dinov2"):
        return {"pixel_values": torch.randn(SEQUENCES, 3, 16, 16, generator=generator)}
    if family == "whisper":
        features = torch.randn(SEQUENCES, 8, 2 * T, generator=generator)
        return {"input_features": features, "decoder_input_ids": torch.ones(SEQUENCES, 1, dtype=int)}
    return {"input_ids": torch.randint(2, 60, (SEQUENCES, T), generator=generator)}


def own_attention(family, model, inputs):
    """Weights (layer, sequence, head, token, token) by the library."""
    with torch.no_grad():
        found = model(**inputs, output_attentions=True)
    weights = found.encoder_attentions if family in ("bart", "mbart", "whisper") else found.attentions
    return torch.stack(weights).numpy()


def grams(weights):
    by_query = weights.swapaxes(-3, -2).astype(np.float64)
    return by_query @ by_query.mT


def gap(heads, states, attention):
    """Largest difference of a Gram matrix at a query from that of the library's own attention."""
    seen = [visible(heads, layer, np.arange(states.shape[2])) for layer in range(len(states))]
    found = [
        [attention_weights(*project(heads, layer, each), heads.scale, seen[layer], heads.cap) for each in of]
        for layer, of in enumerate(states)
    ]
    assert attention.std() > 0.02  # not even
    return np.abs(grams(np.array(found)) - grams(attention)).max()


@pytest.mark.parametrize("family", FAMILIES)
def test_heads__give_the_attention_of_the_library(family, tmp_path):
    model = built(family)
    inputs = inputs_of(family, model)
    states, attention = simstudy.collect_states(model, **inputs), own_attention(family, model, inputs)
    largest = gap(simstudy.read_heads(model), states, attention)
    print(f"\n{family}: {largest:.1e}")
    assert largest < 1e-6
    model.save_pretrained(tmp_path, max_shard_size="20kB")
    index = next(tmp_path.glob("*.index.json"), tmp_path / "model.safetensors")
    assert gap(simstudy.read_heads(index, tmp_path / "config.json"), states, attention) < 1e-6


@pytest.mark.parametrize("newer", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_exported_heads__are_those_of_the_model(family, newer, tmp_path):
    """To the bit, by both exporters of torch; the newer one writes the numbers to a second file."""
    if newer:
        pytest.importorskip("onnxscript")
    model = built(family, use_cache=False)
    expected, inputs = simstudy.read_heads(model), inputs_of(family, model)
    if "input_ids" in inputs:
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    forward = model.forward
    model.forward = lambda *given: forward(**dict(zip(inputs, given, strict=True)), return_dict=False)[-1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, tuple(inputs.values()), tmp_path / "model.onnx", dynamo=newer)
    found = simstudy.read_heads(tmp_path / "model.onnx", model.config.to_dict())
    for name, each in vars(expected).items():
        np.testing.assert_array_equal(getattr(found, name), each)


@pytest.mark.parametrize("family", WINDOWS)
def test_windows__are_those_of_the_library(family):
    model = built(family, **WINDOWS[family])
    inputs = inputs_of(family, model)
    states, attention = simstudy.collect_states(model, **inputs), own_attention(family, model, inputs)
    heads = simstudy.read_heads(model)
    assert heads.window == EXPECTED[family]
    largest = gap(heads, states, attention)
    print(f"\n{family}, window 7: {largest:.1e}")
    assert largest < 1e-6
    observed = simstudy.inspect_heads(heads, states, attention=attention).weight_correlation.sel(source="observed")
    by_query = grams(attention[:, 1::2])
    deviations = np.sqrt(np.diagonal(by_query, axis1=-2, axis2=-1))
    own = by_query / (deviations[..., :, None] * deviations[..., None, :])
    np.testing.assert_allclose(observed, own.mean(axis=(1, 2)), atol=1e-6)


def test_modernbert__has_two_bases_and_windows_in_older_configurations_too():
    model = built("modernbert")
    older = {**FAMILIES["modernbert"], "model_type": "modernbert", "global_rope_theta": 160_000.0,
             "local_rope_theta": 10_000.0, "global_attn_every_n_layers": 3}  # fmt: skip
    found, expected = simstudy.read_heads(model, older), simstudy.read_heads(model)
    np.testing.assert_allclose(found.rotary_factors, expected.rotary_factors)
    assert found.window == expected.window


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
def test_encoder_of_torch__is_read_and_its_states_are_found(norm_first, batch_first, tmp_path):
    layer = torch.nn.TransformerEncoderLayer(32, 4, 48, norm_first=norm_first, batch_first=batch_first)
    model = randomised(torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False))
    given = torch.randn((SEQUENCES, T, 32) if batch_first else (T, SEQUENCES, 32))
    weights = []

    def take(module, arguments, named, _):
        named |= {"need_weights": True, "average_attn_weights": False}
        weights.append(torch.nn.MultiheadAttention.forward(module, *arguments, **named)[1])

    with torch.no_grad():
        states = simstudy.collect_states(model, given)
        hooks = [each.self_attn.register_forward_hook(take, with_kwargs=True) for each in model.layers]
        model(given)
    [hook.remove() for hook in hooks]
    attention = torch.stack(weights).numpy()
    assert gap(simstudy.read_heads(model), states, attention) < 1e-6
    torch.save(model.state_dict(), tmp_path / "model.pt")
    config = {"model_type": "torch", "num_hidden_layers": 3, "num_attention_heads": 4, "hidden_size": 32}
    assert gap(simstudy.read_heads(tmp_path / "model.pt", config), states, attention) < 1e-6


@pytest.mark.parametrize("family", ["t5", "gptj", "gpt_oss"])
def test_other_families__are_refused(family):
    config = json.loads(transformers.AutoConfig.for_model(family).to_json_string())
    with pytest.raises(UserError, match=f"model_type = '{family}'.*; known are bert"):
        simstudy.read_heads({}, config)


def test_bridge_of_transformer_lens__gives_its_own_patterns(tmp_path):
    lens = pytest.importorskip("transformer_lens")
    tokenizers = pytest.importorskip("tokenizers")
    words = {"<e>": 0} | {f"w{k}": k for k in range(1, 60)}
    known = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<e>"))
    names = dict.fromkeys(("eos_token", "bos_token", "unk_token", "pad_token"), "<e>")
    transformers.PreTrainedTokenizerFast(tokenizer_object=known, **names).save_pretrained(tmp_path)
    config = transformers.AutoConfig.for_model("gpt2", **FAMILIES["gpt2"], bos_token_id=0, eos_token_id=0)
    randomised(transformers.AutoModelForCausalLM.from_config(config)).save_pretrained(tmp_path)
    bridge = lens.TransformerBridge.boot_transformers(str(tmp_path))
    ids = inputs_of("gpt2", bridge)["input_ids"]
    with torch.no_grad():
        states, cache = simstudy.collect_states(bridge, ids), bridge.run_with_cache(ids)[1]
    patterns = np.array([cache[f"blocks.{layer}.attn.hook_pattern"].numpy() for layer in range(3)])
    arrays = {name: getattr(bridge, name) for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V")}
    for heads in (simstudy.read_heads(bridge), simstudy.read_heads({**arrays, "causal": True})):
        assert gap(heads, states, patterns) < 1e-6
