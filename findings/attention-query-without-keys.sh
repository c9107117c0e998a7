#!/usr/bin/env bash
# Guess: a query that sees no key gets NaN (0/0) or 0, and one library always the same.
# Found (versions below): the mean of all values, those of tokens that the mask hides included, in jax, flax and equinox;
# 0 in torch's scaled_dot_product_attention and onnxruntime.  nn.MultiheadAttention has NaN or 0 by whether weights are
# asked for and gradients are wanted.  keras has 0 if weights are asked for, and the mean of all values if not.
# Why it matters: averages over padded queries hold 1/T weights, NaN or nothing, by library; leave such queries out.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 jax==0.10.2 flax==0.12.8 equinox==0.13.8 \
    keras==3.15.1 onnx==1.23.2 onnxruntime==1.32.0
KERAS_BACKEND=jax "$work/venv/bin/python" -W ignore - <<'PY'
import equinox.nn._attention
import flax.linen
import jax
import keras
import numpy as np
import onnxruntime
import torch
from onnx import TensorProto, helper

rng = np.random.default_rng(0)
query, key, value = rng.standard_normal((3, 1, 2, 6, 8)).astype(np.float32)
seen = np.tril(np.ones((6, 6), bool), -1)  # the first query sees no key
swapped = [each.swapaxes(1, 2) for each in (query, key, value)]


def kind(output):
    output = np.asarray(output)
    if np.isnan(output).any():
        return "NaN"
    if not output.any():
        return "0"
    alike = output.shape == (2, 8) and np.allclose(output, value[0].mean(1), atol=1e-5)
    return "mean of all" if alike else "else"


found = {"jax": kind(jax.nn.dot_product_attention(*swapped, mask=seen[None, None])[0, 0])}
found["flax"] = kind(flax.linen.dot_product_attention(*swapped, mask=seen[None, None])[0, 0])
by_head = [equinox.nn._attention.dot_product_attention(*each, mask=seen)[0] for each in zip(query[0], key[0], value[0])]
found["equinox"] = kind(np.stack(by_head))
product = torch.nn.functional.scaled_dot_product_attention
tensors = [torch.tensor(each) for each in (query, key, value)]
found["torch"] = kind(product(*tensors, attn_mask=torch.tensor(seen))[0, :, 0])
lowest = torch.zeros(6, 6).masked_fill(~torch.tensor(seen), torch.finfo(torch.float32).min)
found["torch, lowest number added"] = kind(product(*tensors, attn_mask=lowest)[0, :, 0])

floats = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2, 6, 8]) for name in "qkv"]
inputs = [*floats, helper.make_tensor_value_info("m", TensorProto.BOOL, [6, 6])]
node = helper.make_node("Attention", ["q", "k", "v", "m"], ["y"])
graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
found["onnxruntime"] = kind(session.run(None, {"q": query, "k": key, "v": value, "m": seen})[0][0, :, 0])

torch.manual_seed(0)
layer, x = torch.nn.MultiheadAttention(16, 2, batch_first=True).eval(), torch.randn(1, 6, 16)
for weights in (True, False):
    for gradients in (True, False):
        with torch.set_grad_enabled(gradients):
            output = layer(x, x, x, attn_mask=~torch.tensor(seen), need_weights=weights)[0][0, 0].detach()
        found[f"MultiheadAttention, weights {weights}, gradients {gradients}"] = kind(output)
layer, x = keras.layers.MultiHeadAttention(2, 8), rng.standard_normal((1, 6, 16)).astype(np.float32)
output = layer(x, x, attention_mask=seen[None], return_attention_scores=True)[0]
found["keras, weights True"] = kind(np.asarray(output)[0, 0])
output = np.asarray(layer(x, x, attention_mask=seen[None]))[0, 0]
layer.set_weights([each * (number > 1) for number, each in enumerate(layer.get_weights())])  # queries of 0: weights 1/T
found["keras, weights False"] = "mean of all" if np.allclose(output, layer(x, x)[0, 0], atol=1e-6) else kind(output)
for name, each in found.items():
    print(f"{name}: {each}")
assert [*found.values()] == [
    "mean of all", "mean of all", "mean of all", "0", "mean of all", "0", "NaN", "NaN", "0", "NaN", "0", "mean of all"]
PY
