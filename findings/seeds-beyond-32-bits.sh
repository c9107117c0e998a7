#!/usr/bin/env bash
# Guess: seeds that differ give other random numbers, or an error where a library cannot hold them.
# Found (versions below): 5 and 2^32 + 5 are the same seed to torch's generator on a CPU, which reports the seed as it was given,
# and to jax.random.key unless 64-bit numbers are enabled.  NumPy takes all bits; keras refuses.
# Why it matters: seeds made of digests, times or job numbers above 2^32 may be the same seed, and replicates copies.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 jax==0.10.2 numpy==2.4.6
"$work/venv/bin/python" -W ignore - <<'PY'
import jax
import numpy as np
import torch

SEEDS = (5, 2**32 + 5)
generators = [torch.Generator().manual_seed(seed) for seed in SEEDS]
assert [each.initial_seed() for each in generators] == [*SEEDS]
numbers = {"torch": [torch.rand(2, generator=each).tolist() for each in generators]}
numbers["jax"] = [jax.random.uniform(jax.random.key(seed), 2).tolist() for seed in SEEDS]
jax.config.update("jax_enable_x64", True)
numbers["jax, 64 bits enabled"] = [jax.random.uniform(jax.random.key(seed), 2).tolist() for seed in SEEDS]
numbers["numpy"] = [np.random.default_rng(seed).random(2).tolist() for seed in SEEDS]
for name, (one, other) in numbers.items():
    print(f"{name}: {one} {'=' if one == other else '≠'} {other}")
assert [one == other for one, other in numbers.values()] == [True, True, False, False]
PY
