#!/usr/bin/env bash
# Guess: softmax weights of MLX add up to 1, in bfloat16 and float16 to their two or three digits, whatever the number of keys.
# Found (mlx 0.32.4 on its CPU back end, numpy 2.4.6): not over the last axis.  Exponentials are added up in the dtype of the logits, and
# the sum stops growing at 256 in bfloat16 and at 2,048 in float16.  Weights of 1,024 equal logits add up to 4 in bfloat16, of 4,096 to
# 16, and in float16 to 2; of standard normal logits to 1.4, 2.5 and 1.1.  Attention by matrix products is a multiple of the weighted
# mean, so that values of 1 give 2.0 to 3.4.  Over another axis, by `precise=True`, by `fast.scaled_dot_product_attention`, and by
# `log_softmax`, `logsumexp` and `sum` of the same arrays all is right.  There is no warning.
# Documented: by default sums are in the dtype of the input, at a cost in digits for long axes; not how much.  Known: other back ends
# mended the same in 2026.
# Why it matters: attention written out to see its weights, and kernel regressions with many keys, are scaled by their number.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "mlx[cpu]==0.32.4" numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import warnings

import mlx.core as mx
import mlx.nn as nn
import numpy as np

warnings.simplefilter("error")
mx.set_default_device(mx.cpu)


def total(weights, axis=-1):
    """Mean over rows of the sum of weights, in float64."""
    return float(np.array(weights.astype(mx.float32), dtype=float).sum(axis=axis).mean())


rng, found = np.random.default_rng(1), {}
for kind in (mx.bfloat16, mx.float16, mx.float32):
    for keys in (128, 1024, 4096):
        for name, logits in (("equal", np.zeros((4, keys))), ("normal", rng.normal(size=(4, keys)))):
            logits = mx.array(logits, dtype=kind)
            sums = [total(mx.softmax(logits, axis=-1)), total(mx.softmax(logits, axis=-1, precise=True)),
                    total(mx.softmax(mx.contiguous(logits.T), axis=0), axis=0), total(mx.exp(nn.log_softmax(logits, axis=-1)))]
            found[kind, keys, name] = sums[0]
            print(f"{str(kind)[9:]}, {keys} {name} logits: weights add up to {sums[0]:.3f}, with precise=True {sums[1]:.3f}, "
                  f"over the first axis {sums[2]:.3f}, by log_softmax {sums[3]:.3f}")
            assert abs(sums[1] - 1) < 0.01 and abs(sums[3] - 1) < 0.06 and (name == "normal" or abs(sums[2] - 1) < 0.01)
assert found[mx.bfloat16, 1024, "equal"] > 1.9 and found[mx.bfloat16, 4096, "equal"] > 7 and found[mx.float16, 4096, "equal"] > 1.4
assert found[mx.bfloat16, 1024, "normal"] > 1.2 and found[mx.bfloat16, 4096, "normal"] > 2 and found[mx.float16, 4096, "normal"] > 1.05
assert all(abs(value - 1) < 1e-4 for (kind, *_), value in found.items() if kind == mx.float32)
query, key = (mx.array(rng.normal(size=(1, 1, size, 16)), dtype=mx.bfloat16) for size in (8, 4096))
value = mx.ones((1, 1, 4096, 1), dtype=mx.bfloat16)
written = mx.softmax(query @ key.swapaxes(-1, -2) / 4, axis=-1) @ value
fast = mx.fast.scaled_dot_product_attention(query, key, value, scale=0.25)
print("attention to 4096 values of 1, written out:", *np.array(written.astype(mx.float32)).ravel().round(2),
      "; fast:", *np.array(fast.astype(mx.float32)).ravel().round(2))
assert np.array(written.astype(mx.float32)).min() > 1.5 and abs(np.array(fast.astype(mx.float32)) - 1).max() < 0.02
PY
