#!/usr/bin/env bash
# Guess: random numbers that a function draws differ between the replicates over which `mx.vmap` of MLX maps it, or are an error, as in
# torch.
# Found (mlx 0.32.4 on its CPU back end, numpy 2.4.6): all replicates have one draw, as what does not depend on the mapped input is
# computed once.  1,000 means of 20 normal numbers are one number, with a standard error of 0 for 0.007; of 200 such studies no interval
# of 95 % covers.  Dropout masks, indices by `randint`, permutations and categories of 1,000 mapped data sets are one, too.  Keys that are
# split and mapped, and a loop, are as guessed.  Functions by `mx.compile` repeat their draws at each call.  There is no warning.
# Documented: for `compile` that the random state is to be handed over; nothing for vmap.  No report was found.
# Why it matters: a simulation is mapped over replicates to be fast; its Monte Carlo error is 0, and its result one draw.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "mlx[cpu]==0.32.4" numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import warnings

import mlx.core as mx
import mlx.nn as nn
import numpy as np

REPLICATES, SIZE, STUDIES = 1000, 20, 200
warnings.simplefilter("error")
mx.set_default_device(mx.cpu)
mx.random.seed(1)
truth = mx.zeros(REPLICATES)


def by_map():
    return np.array(mx.vmap(lambda mean: mx.mean(mean + mx.random.normal((SIZE,))))(truth))


def by_keys():
    keys = mx.random.split(mx.random.key(np.random.randint(2**31)), REPLICATES)
    return np.array(mx.vmap(lambda mean, key: mx.mean(mean + mx.random.normal((SIZE,), key=key)))(truth, keys))


def by_loop():
    return np.array([mx.mean(mean + mx.random.normal((SIZE,))).item() for mean in truth])


np.random.seed(1)
for function, studies in ((by_map, STUDIES), (by_keys, STUDIES), (by_loop, 2)):
    found = [function() for _ in range(studies)]
    errors = np.array([each.std() / REPLICATES**0.5 for each in found])
    covered = np.mean([abs(each.mean()) <= 1.96 * error for each, error in zip(found, errors)])
    distinct = len(np.unique(found[0]))
    print(f"{function.__name__}: {distinct} of {REPLICATES} replicates differ; standard error {errors.mean():.4f} for "
          f"{(SIZE * REPLICATES)**-0.5:.4f}; of {studies} intervals {covered:.0%} cover")
    if function is by_map:
        assert distinct == 1 and errors.max() < 1e-6 and covered == 0
    else:
        assert distinct > 0.99 * REPLICATES and abs(errors.mean() * (SIZE * REPLICATES) ** 0.5 - 1) < 0.05 and covered > 0.85
layer, data = nn.Dropout(0.5), mx.array(np.random.default_rng(1).normal(size=(REPLICATES, SIZE)).astype(np.float32))
draws = {
    "dropout": lambda x: layer(mx.ones(SIZE) + 0 * x),
    "randint": lambda x: mx.random.randint(0, SIZE, (SIZE,)) + 0 * x,
    "permutation": lambda x: mx.random.permutation(SIZE) + 0 * x,
    "categorical": lambda x: mx.random.categorical(mx.zeros(SIZE), num_samples=SIZE) + 0 * x,
}
for name, function in draws.items():
    rows = len(np.unique(np.array(mx.vmap(function)(data)), axis=0))
    print(f"{name}: {rows} different draws in {REPLICATES} mapped data sets")
    assert rows == 1
compiled = mx.compile(lambda x: x + mx.random.normal((SIZE,)))
print("compile: calls differ by", mx.abs(compiled(data[0]) - compiled(data[0])).max().item())
assert mx.array_equal(compiled(data[0]), compiled(data[0]))
PY
