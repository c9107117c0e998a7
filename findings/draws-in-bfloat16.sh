#!/usr/bin/env bash
# Guess: a random number drawn in bfloat16 is one of float32, rounded, so that means and tails are right to 3 digits, as in torch.
# Found (jax 0.10.2): it is a function of 7 random bits.  Normal numbers take 128 values, none above 2.52, with a mean of -0.011;
# the mean of exponential ones is 0.974, and none is above 4.9, where one in 130 should be.
# In float16, of 10 bits, normal numbers end at 3.2.  Draws of float32 that are then rounded are as guessed.
# Why it matters: noise and weights in the precision of the model have no tail, and a shift of many standard errors.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 torch==2.13.0 numpy==2.4.6
"$work/venv/bin/python" -W ignore - <<'PY'
import jax
import jax.numpy as jnp
import numpy as np
import torch

NUMBER = 2**20
torch.manual_seed(0)
key = jax.random.key(0)
drawn = {
    "jax bfloat16": jax.random.normal(key, NUMBER, jnp.bfloat16),
    "jax float16": jax.random.normal(key, NUMBER, jnp.float16),
    "jax float32, then bfloat16": jax.random.normal(key, NUMBER).astype(jnp.bfloat16),
    "torch bfloat16": torch.randn(NUMBER, dtype=torch.bfloat16).double(),
}
found = {}
for name, each in drawn.items():
    numbers = np.asarray(each).astype(float)
    found[name] = numbers.max(), numbers.mean() * NUMBER**0.5
    print(f"{name}: largest {found[name][0]:.2f}, mean {numbers.mean():.4f}, {found[name][1]:.1f} standard errors from 0")
assert 2.5 < found["jax bfloat16"][0] < 2.53 and 3.1 < found["jax float16"][0] < 3.2
assert found["jax bfloat16"][1] < -10 and all(each[0] > 4.4 and abs(each[1]) < 4 for each in [*found.values()][2:])
exponential = np.asarray(jax.random.exponential(key, NUMBER, jnp.bfloat16)).astype(float)
print(f"jax bfloat16: exponential numbers: mean {exponential.mean():.4f}, largest {exponential.max():.2f}")
assert abs(exponential.mean() - 0.974) < 0.004 and exponential.max() < 4.9
PY
