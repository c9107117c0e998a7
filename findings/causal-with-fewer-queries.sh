#!/usr/bin/env bash
# Guess: causal attention of the last queries alone, with all keys, gives what it gives among all queries: the last query sees all keys.
# Found (jax 0.10.2, keras 3.15.1, onnxruntime 1.32.0, mlx 0.32.4 on its CPU back end): only in MLX, whose last query meets the last key.
# In jax, keras and onnxruntime the first query meets the first key: the last 16 of 64 queries see keys 1 to 16 at most, and one query
# with 64 keys sees the first alone.  Outputs are off by 2.3 of their standard deviations, and by 3.0.  With the first 48 keys given as
# past ones onnxruntime is as guessed.  Of more queries than keys, the other way round, MLX's first ones see no key and get the mean of
# all values.  There is no warning, and with as many queries as keys all agree.
# Documented: in MLX and ONNX; not in jax and keras.  Known: as open reports of 2023 to torch, which is like jax, and of 2025 to MLX.
# Why it matters: long attention is computed by blocks of queries, and one flag of this name is another estimator there.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check \
    jax==0.10.2 keras==3.15.1 'mlx[cpu]==0.32.4' onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
JAX_PLATFORMS=cpu KERAS_BACKEND=jax "$work/venv/bin/python" -W ignore - <<'PY'
import jax
import keras
import mlx.core as mx
import numpy as np
import onnxruntime
from onnx import TensorProto, helper

KEYS, WIDTH = 64, 8
mx.set_default_device(mx.cpu)


def session(*past):
    """Causal attention of onnxruntime, with keys and values of the past or without."""
    names, outputs = ("q", "k", "v", *past), ("out", "keys", "values")[: 3 if past else 1]
    node = helper.make_node("Attention", ["q", "k", "v", *(("", *past) if past else ())], outputs, is_causal=1)
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in group] for group in (names, outputs)]
    model = helper.make_model(helper.make_graph([node], "graph", *ends), opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    found = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return lambda *arrays: found.run(None, dict(zip(names, arrays, strict=True)))[0]


def turned(function):
    """Of arrays with heads before tokens, from a function of arrays with tokens before heads."""
    return lambda *each: np.asarray(function(*(x.transpose(0, 2, 1, 3) for x in each), is_causal=True)).transpose(0, 2, 1, 3)


ways = {
    "jax": turned(jax.nn.dot_product_attention), "keras": turned(keras.ops.dot_product_attention), "onnxruntime": session(),
    "MLX": lambda *each: np.array(mx.fast.scaled_dot_product_attention(*map(mx.array, each), scale=WIDTH**-0.5, mask="causal"))}
rng = np.random.default_rng(1)
q, k, v = rng.normal(size=(3, 1, 1, KEYS, WIDTH)).astype(np.float32)
full = ways["jax"](q, k, v)
for name, attention in ways.items():
    assert np.allclose(attention(q, k, v), full, atol=1e-5), name
    for count in (16, 1):
        alone, right = attention(q[:, :, -count:], k, v), full[:, :, -count:]
        error = np.sqrt(np.mean((alone - right) ** 2)) / full[:, :, -16:].std()
        first = np.allclose(alone, attention(q[:, :, -count:], k[:, :, :count], v[:, :, :count]), atol=1e-5)
        print(f"{name}: last {count} of {KEYS} queries alone, off by {error:.2f} standard deviations, only first keys seen {first}")
        assert first == (name != "MLX") and (error < 1e-4 if name == "MLX" else error > 1)
    same = attention(0 * q, 0 * k[:, :, :16], v[:, :, :16])[0, 0]
    means = np.cumsum(v[0, 0, :16], axis=0) / np.arange(1, 17)[:, None]
    shown = np.concatenate([means, np.repeat(means[-1:], KEYS - 16, axis=0)])
    seen = {"the first": v[0, 0, 0], "all": means[-1]}
    print(f"{name}: the first of {KEYS} queries sees, of 16 keys, {[each for each, mean in seen.items() if np.allclose(same[0], mean)]}")
    assert np.allclose(same, shown if name != "MLX" else np.roll(shown, -16, axis=0), atol=1e-5)
parts = (each[:, :, place] for place in (slice(-16, None), slice(-16)) for each in (k, v))
assert np.allclose(session("past keys", "past values")(q[:, :, -16:], *parts), full[:, :, -16:], atol=1e-5)
PY
