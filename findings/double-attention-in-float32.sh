#!/usr/bin/env bash
# Guess: with 64-bit numbers enabled, attention of float64 arrays is as exact as float64, as in flax.linen, equinox and torch.
# Found (versions below): jax.nn.dot_product_attention and flax.nnx compute its softmax in float32 (errors of 1e-7) and return
# float64; keras.ops.dot_product_attention returns float32 whatever it is given.
# Why it matters: the dtype of the result promises 16 digits where there are 7; gradients checked by differences fail.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 flax==0.12.8 equinox==0.13.8 keras==3.15.1 \
    torch==2.13.0 numpy==2.4.6
KERAS_BACKEND=jax "$work/venv/bin/python" -W ignore - <<'PY'
import equinox.nn._attention
import flax.linen
import flax.nnx
import jax
import keras
import numpy as np
import torch

jax.config.update("jax_enable_x64", True)
query, key, value = np.random.default_rng(0).standard_normal((3, 1, 16, 2, 8))
logits = np.einsum("bthd,bshd->bhts", query, key) / np.sqrt(8)
weights = np.exp(logits - logits.max(-1, keepdims=True))
exact = np.einsum("bhts,bshd->bthd", weights / weights.sum(-1, keepdims=True), value)
by_head = [equinox.nn._attention.dot_product_attention(*(each[0, :, h] for each in (query, key, value))) for h in (0, 1)]
by_torch = [torch.tensor(each).transpose(1, 2) for each in (query, key, value)]
outputs = {
    "torch": torch.nn.functional.scaled_dot_product_attention(*by_torch).transpose(1, 2),
    "flax.linen": flax.linen.dot_product_attention(query, key, value),
    "equinox": np.stack(by_head, axis=1)[None],
    "jax": jax.nn.dot_product_attention(query, key, value),
    "flax.nnx": flax.nnx.dot_product_attention(query, key, value),
    "keras": keras.ops.dot_product_attention(*(keras.ops.convert_to_tensor(each) for each in (query, key, value))),
}
found = []
for name, output in outputs.items():
    output = np.asarray(output)
    error = np.abs(output - exact).max()
    found.append((output.dtype == np.float64, bool(error < 1e-14)))
    print(f"{name}: {output.dtype}, error {error:.1e}")
assert found == [(True, True)] * 3 + [(True, False)] * 2 + [(False, False)]
PY
