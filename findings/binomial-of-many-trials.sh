#!/usr/bin/env bash
# Guess: binomial draws of float32 are right as long as the counts are small, whatever the number of trials.
# Found (torch 2.14.1, jax 0.10.2, numpy 2.4.6): beyond some 20 million trials they err, though counts of 10 or 100 are exact in float32.
# Of a billion trials with probability 1e-7 torch draws counts with a variance a third too large and a mean too high by 43 standard errors
# of 100,000 draws; 0.9 % lie five deviations off, for 0.0001 %, in a lump.  In jax they are 0.7 %, beyond a gap of 43 counts.  At 100
# million trials and 1e-6 variances are 17 % too large in torch and 37 % in jax, at 50 million and 0.3 13 and 22 %.  Two groups of a
# billion trials with equal rates differ at the level of 0.1 % in 2.5 % in torch, 1.3 % in jax.  The rejection step compares logarithms of
# factorials, which are some 2e10 there.  In float64 both are right, as NumPy is; jax draws means below 10 by another method, which is
# right.  There is no warning.
# Documented: no bound of `total_count` or `n`.  Known: that counts beyond 2^24 are rounded in float types; no report on small ones.
# Why it matters: rare events of many people, packets or base pairs are compared with simulated counts; tails of these are too heavy.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.14.1 jax==0.10.2 scipy==1.17.1 numpy==2.4.6
export JAX_PLATFORMS=cpu CUDA_VISIBLE_DEVICES=
"$work/venv/bin/python" - <<'PY'
import warnings

import jax
import numpy as np
import torch

DRAWS = 100_000
warnings.simplefilter("error")


def by_torch(trials, probability, precision):
    torch.manual_seed(1)
    n, p = (torch.tensor(each, dtype=getattr(torch, precision)) for each in (trials, probability))
    return torch.distributions.Binomial(n, p).sample((DRAWS,)).double().numpy()


def by_jax(trials, probability, precision):
    with jax.enable_x64(precision == "float64"):
        return np.asarray(jax.random.binomial(jax.random.key(1), trials, probability, shape=(DRAWS,), dtype=precision), dtype=float)


def by_numpy(trials, probability, precision):
    return np.random.default_rng(1).binomial(int(trials), probability, DRAWS).astype(float)


def study(draw, trials, probability, precision):
    counts = draw(trials, probability, precision)
    mean, deviation = trials * probability, np.sqrt(trials * probability * (1 - probability))
    bias, ratio = (counts.mean() - mean) / deviation * np.sqrt(DRAWS), counts.var() / deviation**2
    beyond = np.mean(abs(counts - mean) > 5 * deviation)
    first, second = counts[::2], counts[1::2]
    differ = np.mean(abs(first - second) > 3.29 * np.sqrt(first + second))
    gap = np.diff(np.unique(counts)).max()
    print(f"{draw.__name__[3:]} {precision}, {trials:,.0f} trials of {probability}: mean {counts.mean():.3f}, {bias:.1f} standard errors off; "
          f"variance {ratio:.3f} of the right one; {beyond:.4%} five deviations off; largest gap {gap:.0f}; "
          f"{differ:.2%} of pairs differ at the level of 0.1 %")
    return bias, ratio, beyond, differ


rare, common = ((1e9, 1e-7), (1e8, 1e-6)), (5e7, 0.3)
for draw in (by_torch, by_jax):
    for trials, probability in (*rare, common):
        bias, ratio, beyond, _ = study(draw, trials, probability, "float64")
        assert abs(bias) < 4 and abs(ratio - 1) < 0.02 and beyond < 5e-5
    for trials, probability in ((1e4, 1e-2), (1e6, 1e-4), (1e7, 1e-5), (1e7, 0.3)):
        bias, ratio, beyond, _ = study(draw, trials, probability, "float32")
        assert abs(bias) < 5 and abs(ratio - 1) < 0.03 and beyond < 5e-5
for trials, probability in (*rare, common):
    bias, ratio, beyond, differ = study(by_numpy, trials, probability, "float64")
    assert abs(bias) < 4 and abs(ratio - 1) < 0.02 and differ < 0.002
for draw in (by_torch, by_jax):
    found = {trials: study(draw, trials, probability, "float32") for trials, probability in (*rare, common)}
    assert abs(found[1e9][0]) > 10 and found[1e9][2] > 0.003, "billion"
    assert found[1e8][1] > 1.1 and found[1e8][3] > 0.002, "100 million"
    assert found[5e7][1] > 1.05, "common events"
bias, ratio, _, _ = study(by_torch, 1e8, 1e-7, "float32")
assert bias > 10 and ratio > 1.05
bias, ratio, _, _ = study(by_jax, 1e8, 0.9e-7, "float32")
assert abs(bias) < 4 and abs(ratio - 1) < 0.02
PY
