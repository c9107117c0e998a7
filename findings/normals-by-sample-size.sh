#!/usr/bin/env bash
# Guess: with one seed a sample of 20 normal values begins with the sample of 10, and 50 values drawn twice are 100 drawn at once.
# Found (torch 2.13.0, jax 0.10.2, numpy 2.4.6): not for `torch.randn` on a CPU.  Up to 15 values are drawn one by one, more in blocks
# of 16, of which the last 16 are drawn anew: samples of 15 and 16 share no value, those of 50 and 100 share 34, and 34 of 100 values
# drawn by halves are the same.  Kinds of float agree up to 15 values only.  `torch.rand`, jax and NumPy are as guessed for sizes, and
# `torch.rand` and NumPy for halves.  Known: open reports since 2022; documented is only that releases and devices may differ.
# Why it matters: sample sizes that should share their errors do not, so that differences between them have far larger Monte Carlo
# errors; a simulation in batches of another size is another simulation.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 jax==0.10.2 numpy==2.4.6
JAX_PLATFORMS=cpu CUDA_VISIBLE_DEVICES= "$work/venv/bin/python" - <<'PY'
import warnings

import jax
import numpy as np
import torch

warnings.simplefilter("error")


def of_torch(draw, **options):
    def sample(*sizes):
        generator = torch.Generator().manual_seed(7)
        return np.concatenate([draw(size, generator=generator, **options).double().numpy() for size in sizes])
    return sample


def of_numpy(*sizes):
    rng = np.random.default_rng(7)
    return np.concatenate([rng.normal(size=size) for size in sizes])


samples = {
    "torch.randn": of_torch(torch.randn), "torch.randn, float64": of_torch(torch.randn, dtype=torch.float64),
    "torch.rand": of_torch(torch.rand), "NumPy": of_numpy, "jax": lambda size: np.asarray(jax.random.normal(jax.random.key(7), (size,)))}
found = {}
for name, sample in samples.items():
    shared = [int((sample(small) == sample(large)[:small]).sum()) for small, large in ((10, 15), (15, 16), (50, 100), (64, 100))]
    halves = None if name == "jax" else int((sample(50, 50) == sample(100)).sum())
    found[name] = shared, halves
    print(f"{name}: samples of 10 and 15, 15 and 16, 50 and 100, 64 and 100 share {shared}; halves and whole {halves}")
for name in ("torch.randn", "torch.randn, float64"):
    assert found[name] == ([10, 0, 34, 64], 34)
for name in ("torch.rand", "NumPy"):
    assert found[name] == ([10, 15, 50, 64], 100)
assert found["jax"] == ([10, 15, 50, 64], None)
kinds = [bool(np.allclose(samples["torch.randn"](size), samples["torch.randn, float64"](size), atol=1e-6)) for size in (15, 16)]
print("float32 and float64 agree at 15 and 16 values:", kinds)
assert kinds == [True, False]
changes = {}
for name in ("torch", "NumPy"):
    means = []
    for seed in range(2000):
        pair = ([torch.randn(size, generator=torch.Generator().manual_seed(seed)).mean().item() for size in (15, 16)]
                if name == "torch" else [np.random.default_rng(seed).normal(size=size).mean() for size in (15, 16)])
        means.append(pair[1] - pair[0])
    changes[name] = np.std(means)
    print(f"{name}: standard deviation of the change of a mean from 15 to 16 observations {changes[name]:.4f}")
assert changes["torch"] > 4 * changes["NumPy"]
PY
