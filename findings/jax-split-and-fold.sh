#!/usr/bin/env bash
# Guess: split and fold_in derive other keys from one key, as each promises new ones that are safe.
# Found (jax 0.10.2): split(key, n)[i] is fold_in(key, i), and the keys of a longer split begin with those of a shorter one.
# So do the keys of flax's nnx.Rngs: the draws of its calls are those of a split of the same key.
# Why it matters: "split for replicates, fold in the step" gives noise, weights and data of one replicate the same numbers.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 flax==0.12.8
"$work/venv/bin/python" -W ignore - <<'PY'
import flax
import jax
import numpy as np
from flax import nnx

key = jax.random.key(20)
replicates = jax.random.split(key, 100)
steps = [jax.random.fold_in(key, step) for step in range(100)]
rngs = nnx.Rngs(key)
calls = [rngs.params() for _ in range(100)]
draws = [np.array([jax.random.normal(each, (5,)) for each in keys]) for keys in (replicates, steps, calls)]
print(f"jax {jax.__version__}: noise of replicate 7 {draws[0][7].round(3)}, of step 7 {draws[1][7].round(3)}")
print(f"flax {flax.__version__}: of the call 7 of Rngs {draws[2][7].round(3)}")
assert (draws[0] == draws[1]).all()
assert (draws[0] == draws[2]).all()
apart = jax.random.split(jax.random.fold_in(key, 1), 100)
assert not (jax.random.key_data(apart) == jax.random.key_data(replicates)).all(axis=1).any()
PY
