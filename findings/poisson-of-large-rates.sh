#!/usr/bin/env bash
# Guess: `jax.random.poisson` draws counts whose variance is their mean, as NumPy and torch do, at all rates that fit into int32.
# Found (jax 0.10.2, torch 2.13.0, numpy 2.4.6): so up to a rate of 100,000.  Their variance is 0.96 of the rate at 500,000, 0.91 at two
# million, 0.98 at ten million and 1.46 at 100 million; means are right.  Of standardised counts 3.4 % for 5 % are beyond 1.96 at two
# million, and 1.3 % for 0.006 % beyond 4 at 100 million.  Candidates are accepted by a difference of large terms in float32, and
# `jax_enable_x64`, a rate in float64 or counts in int64 change nothing.  Torch, in float32 too, and NumPy are as guessed.
# Documented: the probability function, and no bound on rates; no report was found.  NumPy's has one of the same kind, from 1e14.
# Why it matters: tests of dispersion, and intervals for counts, have another size than theory says, too small or too large by rate.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 torch==2.13.0 numpy==2.4.6
JAX_PLATFORMS=cpu CUDA_VISIBLE_DEVICES= "$work/venv/bin/python" - <<'PY'
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import torch

DRAWS = 200_000
warnings.simplefilter("error")


def of_jax(rate):
    return jax.random.poisson(jax.random.key(1), rate, (DRAWS,))


def of_torch(rate):
    return torch.poisson(torch.full((DRAWS,), float(rate)), generator=torch.Generator().manual_seed(1))


def of_numpy(rate):
    return np.random.default_rng(1).poisson(rate, DRAWS)


found = {}
for rate in (100, 100_000, 500_000, 2_000_000, 10_000_000, 100_000_000):
    for name, draw in (("jax", of_jax), ("torch", of_torch), ("NumPy", of_numpy)):
        z = (np.asarray(draw(rate), float) - rate) / np.sqrt(rate)
        found[name, rate] = z.var(), np.mean(abs(z) > 1.96), np.mean(abs(z) > 4)
        print("{}, rate {:,}: variance {:.3f} of the rate; beyond 1.96 {:.2%}, beyond 4 {:.3%}".format(name, rate, *found[name, rate]))
        assert abs(z.mean()) < 0.02
        if name != "jax" or rate <= 100_000:
            assert abs(z.var() - 1) < 0.015 and abs(found[name, rate][1] - 0.05) < 0.01 and found[name, rate][2] < 3e-4
    if rate == 2_000_000:
        before = of_jax(rate)
        with jax.enable_x64(True):
            after = jax.random.poisson(jax.random.key(1), jnp.asarray(rate, "float64"), (DRAWS,), "int64")
        print("    with 64 bits: the same", bool((np.asarray(before) == np.asarray(after)).all()))
        assert (np.asarray(before) == np.asarray(after)).all()
assert found["jax", 500_000][0] < 0.98 and found["jax", 2_000_000][0] < 0.93 and found["jax", 100_000_000][0] > 1.3
assert found["jax", 2_000_000][1] < 0.038 and found["jax", 10_000_000][2] > 1e-3 and found["jax", 100_000_000][2] > 5e-3
PY
