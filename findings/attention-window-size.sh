#!/usr/bin/env bash
# Guess: a window of 4 is the query and the three keys before it where attention is causal, and 4 keys on either side else.
# Found (versions below): 4 means 2, 4 or 5 keys of causal attention, and 2 or 4 on either side.  In jax the query's own key
# comes on top of 4.  In transformers, is_causal=False turns Mistral's 4 into 4 back and 4 ahead; Gemma 3 and ModernBERT
# halve it; ModernBERT's decoder halves it too, and sees its own key and one before.
# Why it matters: a window carried from one library or family to another is another attention, without an error.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 transformers==5.24.0 jax==0.10.2 onnx==1.23.2 \
    onnxruntime==1.32.0
"$work/venv/bin/python" -W ignore - <<'PY'
import jax
import numpy as np
import onnxruntime
import torch
import transformers
from onnx import TensorProto, helper

WINDOW, TOKENS = 4, 16
rng = np.random.default_rng(0)
x = rng.standard_normal((1, TOKENS, 1, TOKENS)).astype(np.float32)
one = np.eye(TOKENS, dtype=np.float32)[None, :, None, :]  # values that make an output of the weights


def span(weights):
    places = np.flatnonzero(np.abs(np.asarray(weights)[8]) > 1e-7) - 8
    assert len(places) == places[-1] - places[0] + 1
    return int(places[0]), int(places[-1])


found = {}
for causal in (True, False):
    weights = jax.nn.dot_product_attention(x, x, one, local_window_size=WINDOW, is_causal=causal)[0, :, 0]
    found[f"jax local_window_size, is_causal={causal}"] = span(weights)

floats = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, TOKENS, TOKENS]) for name in "qkv"]
sizes = [helper.make_tensor_value_info(name, TensorProto.INT32, [1]) for name in "st"]
node = helper.make_node("GroupQueryAttention", ["q", "k", "v", "", "", "s", "t"], ["y", "pk", "pv"],
                        domain="com.microsoft", num_heads=1, kv_num_heads=1, local_window_size=WINDOW)
output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
operators = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
graph = helper.make_graph([node], "g", floats + sizes, [output])
model = helper.make_model(graph, opset_imports=operators, ir_version=8)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
ends = {"s": np.array([TOKENS - 1], np.int32), "t": np.array([TOKENS], np.int32)}
found["onnxruntime local_window_size"] = span(session.run(["y"], {"q": x[:, :, 0], "k": x[:, :, 0], "v": one[:, :, 0], **ends})[0][0])

special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
kinds = {"layer_types": ["sliding_attention", "full_attention"]}
shared = {"num_key_value_heads": 2}
for family, options in (
    ("mistral", {"sliding_window": WINDOW, **shared}),
    ("mistral", {"sliding_window": WINDOW, **shared, "is_causal": False}),
    ("gemma3_text", {"sliding_window": WINDOW, **shared, **kinds, "head_dim": 8}),
    ("gemma3_text", {"sliding_window": WINDOW, **shared, **kinds, "head_dim": 8, "use_bidirectional_attention": True}),
    ("modernbert", {"local_attention": WINDOW, **kinds, **special}),
    ("modernbert-decoder", {"local_attention": WINDOW, **kinds, **special}),
):
    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 32}
    config = transformers.CONFIG_MAPPING[family](**sizes, **options)
    model = transformers.AutoModel.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        weights = model(input_ids=torch.arange(3, 3 + TOKENS)[None], output_attentions=True).attentions[0][0, 0]
    either = any(options.get(name) == other for name, other in (("is_causal", False), ("use_bidirectional_attention", True)))
    found[family + (", both directions" if either else "")] = span(weights)
for name, (first, last) in found.items():
    print(f"{name} = {WINDOW}: keys {first} to {last}")
assert [*found.values()] == [(-4, 0), (-4, 4), (-3, 0), (-3, 0), (-4, 4), (-3, 0), (-2, 2), (-2, 2), (-1, 0)]
PY
