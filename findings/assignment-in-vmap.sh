#!/usr/bin/env bash
# Guess: a function that `mx.vmap` of MLX maps over replicates does to each replicate what it does to one, or raises an error.
# Found (mlx 0.32.4 on its CPU back end, jax 0.10.2, numpy 2.4.6): not where it assigns to a fixed place.  `x[0] = 9`, `x[1:3] = 9`,
# `x.at[0].add(1)`, `x.at[1:3].add(...)` and `x.at[0].multiply(2)` change the first replicate alone; the others stay as they were.  Where
# the first value of 1,000 samples, an outlier of 100, is set to 0, 999 keep it, and means are 5.0 for 0.0.  With an array of indices as
# place, by `mx.where`, and in jax all replicates are changed.  There is no warning.
# Documented: vmap as a vectorised function, without a limit.  No report was found.
# Why it matters: a simulation is tried for one replicate and then mapped; the first replicate, which one looks at, is right.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "mlx[cpu]==0.32.4" jax==0.10.2 numpy==2.4.6
JAX_PLATFORMS=cpu "$work/venv/bin/python" - <<'PY'
import warnings

import jax
import mlx.core as mx
import numpy as np

REPLICATES = 1000
warnings.simplefilter("error")
mx.set_default_device(mx.cpu)
draws = np.random.default_rng(1).normal(size=(REPLICATES, 20)).astype(np.float32)
draws[:, 0] = 100


def assigned(place):
    def function(x):
        x = x * 1
        x[place] = 0
        return x
    return function


def share(function):
    """Share of replicates that are changed as alone, and whether the first one is."""
    mapped = np.array(mx.vmap(function)(mx.array(draws)))
    alone = np.stack([np.array(function(mx.array(each))) for each in draws[:50]])
    right = (mapped[:50] == alone).all(axis=1)
    assert not (alone == draws[:50]).all(axis=1).any()
    return right.mean(), right[0]


fixed = {"x[0] = 0": assigned(0), "x[1:3] = 0": assigned(slice(1, 3)), "x.at[0].add(1)": lambda x: x.at[0].add(1),
         "x.at[1:3].add([1, 2])": lambda x: x.at[1:3].add(mx.array([1.0, 2.0])), "x.at[0].multiply(2)": lambda x: x.at[0].multiply(2)}
others = {"x[array([0])] = 0": assigned(mx.array([0])), "x.at[array([0, 1])].add(1)": lambda x: x.at[mx.array([0, 1])].add(1),
          "where": lambda x: mx.where(mx.arange(20) == 0, 0, x)}
for name, function in {**fixed, **others}.items():
    found, first = share(function)
    print(f"{name}: {found:.0%} of 50 replicates as alone; the first {'is' if first else 'is not'}")
    assert first and found == (0.02 if name in fixed else 1)
means = np.array(mx.vmap(lambda x: mx.mean(assigned(0)(x)))(mx.array(draws)))
by_jax = np.asarray(jax.vmap(lambda x: x.at[0].set(0).mean())(draws))
print(f"means of {REPLICATES} samples without their outlier: {means.mean():.2f}, of the first {means[0]:.2f}; by jax {by_jax.mean():.2f}")
assert abs(means.mean() - 5) < 0.1 and abs(means[0] - by_jax[0]) < 1e-5 and abs(by_jax.mean()) < 0.05
PY
