"""GGUF files, made small by the library, and decoders: against the same weights under other names, and naive loops."""

import numpy as np
import pytest

from simstudy.errors import UserError
from simstudy.transformers.checkpoints import read_weights
from simstudy.transformers.heads import read_heads
from simstudy.transformers.trained import Decoder

gguf = pytest.importorskip("gguf")  # an extra

LAYERS, HEADS, KEY_HEADS, P, D, WIDE, WORDS = 2, 4, 2, 8, 32, 64, 11
CONFIG = {
    "num_hidden_layers": LAYERS, "hidden_size": D, "num_attention_heads": HEADS, "num_key_value_heads": KEY_HEADS,
    "head_dim": P, "rope_theta": 500.0,
}  # fmt: skip
OURS = {
    "attn_q": ("self_attn.q_proj", HEADS * P, D), "attn_k": ("self_attn.k_proj", KEY_HEADS * P, D),
    "attn_v": ("self_attn.v_proj", KEY_HEADS * P, D), "attn_output": ("self_attn.o_proj", D, HEADS * P),
    "ffn_gate": ("", WIDE, D), "ffn_up": ("", WIDE, D), "ffn_down": ("", D, WIDE), "attn_norm": ("", D),
    "ffn_norm": ("", D),
}  # fmt: skip


def side_by_side(weight, n_heads):
    """As llama.cpp turns the rows of queries and keys of Llama."""
    return weight.reshape(n_heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def write(path, family="llama", kind=None, **entries):
    """Write a model and return its arrays by the names in the file."""
    rng = np.random.default_rng(0)
    arrays = {"token_embd": rng.standard_normal((WORDS, D)), "output_norm": rng.uniform(1, 2, D)}
    for layer in range(LAYERS):
        for name, (_, *shape) in OURS.items():
            arrays[f"blk.{layer}.{name}"] = rng.uniform(1, 2, D) if len(shape) == 1 else rng.standard_normal(shape) / 4
    if family == "qwen3":
        arrays |= {f"blk.{layer}.attn_{of}_norm": rng.uniform(1, 2, P) for layer in range(LAYERS) for of in "qk"}
    arrays = {name: array.astype(np.float32) for name, array in arrays.items()}
    writer = gguf.GGUFWriter(path, family)
    for name, value in {
        "block_count": LAYERS, "embedding_length": D, "attention.head_count": HEADS, "attention.key_length": P,
        "attention.head_count_kv": KEY_HEADS,
    }.items():  # fmt: skip
        writer.add_uint32(f"{family}.{name}", value)
    writer.add_float32(f"{family}.rope.freq_base", 500.0)
    writer.add_float32(f"{family}.attention.layer_norm_rms_epsilon", 1e-3)
    for name, value in entries.items():
        writer.add_string(f"{family}.{name.replace('_', '.')}", value)
    writer.add_token_list([f"w{k}" for k in range(WORDS)])
    writer.add_tensor("rope_freqs.weight", np.array([1, 2, 4, 8], np.float32))
    writer.add_tensor("unused", np.ones(P, np.float32))
    for name, array in arrays.items():
        turned = {"attn_q": HEADS, "attn_k": KEY_HEADS}.get(name.rsplit(".")[-1]) if family == "llama" else None
        stored = array if turned is None else side_by_side(array, turned)
        if kind is not None and stored.ndim == 2:
            writer.add_tensor(f"{name}.weight", gguf.quantize(stored, kind), raw_dtype=kind)
        else:
            writer.add_tensor(f"{name}.weight", stored)
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    return arrays


@pytest.mark.parametrize(("family", "kind", "gap"), [("llama", None, 0), ("qwen3", None, 0), ("llama", "Q8_0", 0.01)])
def test_heads__are_those_of_the_same_weights_under_other_names(family, kind, gap, tmp_path):
    arrays = write(tmp_path / "a", family, kind and gguf.GGMLQuantizationType[kind])
    named = {
        f"model.layers.{layer}.{ours}.weight": arrays[f"blk.{layer}.{theirs}"]
        for layer in range(LAYERS) for theirs, (ours, *_) in OURS.items() if ours
    }  # fmt: skip
    for place in (name for name in arrays if name.endswith("k_norm") or name.endswith("q_norm")):
        _, layer, name = place.split(".")
        named[f"model.layers.{layer}.self_{name.replace('_', '.', 1)}.weight"] = arrays[place]
    wanted, found = read_heads(named, CONFIG | {"model_type": family}), read_heads(tmp_path / "a")
    for part in ("query", "key", "value", "output", *(("query_norm", "key_norm") if family == "qwen3" else ())):
        np.testing.assert_allclose(getattr(found, part), getattr(wanted, part), rtol=0, atol=gap)
    assert (found.causal, found.rotary_base) == (True, 500.0)
    np.testing.assert_array_equal(found.rotary_factors[0], [1, 1 / 2, 1 / 4, 1 / 8])


def naive_states(arrays, tokens, factors=(1,) * LAYERS):
    """What enters attention in each layer, and what leaves the last: one token, head and pair after another.

    Weights of each layer are multiplied by a factor.
    """

    def normed(x, weight):
        return x / np.sqrt(np.mean(x**2) + 1e-3) * weight

    def turned(x, t):
        angle = [t * 500.0 ** (-2 * j / P) / 2**j for j in range(P // 2)]
        first, second = x[: P // 2], x[P // 2 :]
        return np.r_[first * np.cos(angle) - second * np.sin(angle), second * np.cos(angle) + first * np.sin(angle)]

    stream, seen = [arrays["token_embd"][token].astype(float) for token in tokens], []
    for layer in range(LAYERS):
        w = {name: arrays[f"blk.{layer}.{name}"].astype(float) for name in OURS}
        states = [normed(x, w["attn_norm"]) for x in stream]
        seen.append(states)
        for t in range(len(tokens)):
            mixed = []
            for h in range(HEADS):
                of, own = slice(h // 2 * P, h // 2 * P + P), slice(h * P, h * P + P)
                query = turned(w["attn_q"][own] @ states[t], t)
                logits = [query @ turned(w["attn_k"][of] @ states[s], s) / P**0.5 for s in range(t + 1)]
                powers = factors[layer] * np.exp(logits) / np.exp(logits).sum()
                mixed.append(sum(power * (w["attn_v"][of] @ x) for power, x in zip(powers, states, strict=False)))
            stream[t] = stream[t] + w["attn_output"] @ np.concatenate(mixed)
            state = normed(stream[t], w["ffn_norm"])
            gate = w["ffn_gate"] @ state
            stream[t] = stream[t] + w["ffn_down"] @ (gate / (1 + np.exp(-gate)) * (w["ffn_up"] @ state))
    return np.array(seen), np.array([normed(x, arrays["output_norm"]) for x in stream])


def test_decoder__is_a_naive_loop(tmp_path):
    arrays, tokens = write(tmp_path / "a"), [3, 1, 4, 1, 5, 9, 2]
    decoder = Decoder(tmp_path / "a")
    encoding, (states, output) = decoder(tokens), naive_states(arrays, tokens)
    np.testing.assert_allclose(encoding.states, states, rtol=2e-4, atol=2e-4)
    np.testing.assert_allclose(encoding.output, output, rtol=2e-4, atol=2e-4)
    scores = output[:-1] @ arrays["token_embd"].T
    losses = np.log(np.exp(scores).sum(axis=1)) - scores[range(6), tokens[1:]]
    short = np.mean(losses[:3])
    found = decoder.losses([tokens, tokens[:4]])
    np.testing.assert_allclose(found, [losses.mean(), short], rtol=1e-3, atol=1e-4)
    assert decoder.vocabulary["w10"] == 10
    # And of several texts each sees itself alone, from place 0 on, whatever is edited.
    factors, texts = np.arange(2.0, 2.0 + LAYERS), ([7, 7], tokens, [0])
    for edit, edited in ((None, ()), (lambda layer, weights: weights * factors[layer], (factors,))):
        for own, each in zip(decoder.together(texts, edit), texts, strict=True):
            for found, wanted in zip(own[:2], naive_states(arrays, each, *edited), strict=True):
                np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"family": "gemma3"}, r"general.architecture = 'gemma3'; heads are read of llama"),
        ({"rope_scaling_type": "yarn"}, "rope_type = 'yarn'"),
    ],
)
def test_what_theory_does_not_know__is_refused(how, said, tmp_path):
    write(tmp_path / "a", **how)
    with pytest.raises(UserError, match=said):
        read_weights(tmp_path / "a")
