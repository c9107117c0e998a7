#!/usr/bin/env bash
# Guess: counts of `jax.numpy.histogram` add up to the number of values, as those of `numpy.histogram` do.
# Found (jax 0.10.2, numpy 2.4.6): they are of the values' kind of float and stop where it cannot count on: at 256 for bfloat16, 2,048
# for float16, 16,777,216 for float32.  A histogram of 20,480 normal values in bfloat16 is flat, 256 in 16 of 20 bins where NumPy has
# 321 to 2,016; of 20 million values with 90 % ones a share of 0.89 are ones.  With `density=True` areas still add up to 1.  Integers
# of 32 bits are counted in float32 too, also with `jax_enable_x64`, and integer weights do not help.  There is no warning.
# `histogram2d` counts in int32 and, like `bincount`, is as guessed, without weights.
# Documented: that counts are floats; not that they stop.  No report was found; for `torch.histc` of float32 there is one.
# Why it matters: shapes of distributions are read from histograms; this one says uniform, and is drawn without a gap.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 numpy==2.4.6
JAX_PLATFORMS=cpu "$work/venv/bin/python" - <<'PY'
import warnings

import jax
import jax.numpy as jnp
import numpy as np

warnings.simplefilter("error")
edges = np.linspace(-2.5, 2.5, 21)
rng = np.random.default_rng(1)
for kind, most in (("bfloat16", 256), ("float16", 2048)):
    size = 80 * most
    x = jnp.asarray(rng.normal(size=size), kind)
    right, _ = np.histogram(np.asarray(x, float), edges)
    counts, _ = jnp.histogram(x, jnp.asarray(edges, kind))
    areas = jnp.histogram(x, jnp.asarray(edges, kind), density=True)[0] * 0.25
    print(f"{kind}, {size} normal values: NumPy counts {right.tolist()}")
    print(f"    jax counts {counts.astype(int).tolist()}, {counts.dtype}; areas add up to {float(areas.sum()):.2f}")
    stopped = right > most
    assert counts.dtype == kind and (counts[stopped] == most).all() and stopped.sum() >= 12
    assert abs(areas.sum() - 1) < 0.05
    two, *_ = jnp.histogram2d(x, x, jnp.asarray(edges, kind))
    assert two.dtype == "int32" and (jnp.diag(two) == right).all()
size, most = 20_000_000, 2**24
ones = jax.random.uniform(jax.random.key(0), (size,)) < 0.9
total = int(ones.sum())
found = {
    "histogram of float32": jnp.histogram(ones.astype("float32"), 2, (0, 1))[0],
    "histogram of integers": jnp.histogram(ones.astype("int32"), 2, (0, 1))[0],
    "histogram with integer weights": jnp.histogram(ones.astype("int32"), 2, (0, 1), jnp.ones(size, "int32"))[0],
    "bincount": jnp.bincount(ones.astype("int32"), length=2)}
for name, counts in found.items():
    zeros, counted = (int(each) for each in counts)
    print(f"{name}: {counted} ones of {total}, a share of {counted / (zeros + counted):.4f}")
    assert zeros == size - total and counted == (total if name == "bincount" else most)
with jax.enable_x64(True):
    counts = [int(jnp.histogram(jnp.asarray(ones, kind), 2, (0, 1))[0][1]) for kind in ("int32", "int64")]
print("with 64 bits, ones of int32 and int64:", counts)
assert counts == [most, total]
PY
