#!/usr/bin/env bash
# Guess: torch.multinomial draws rare categories as often as their weights say, to the precision of a weight in float32.
# Found (torch 2.13.0, numpy 2.4.6): on the processor weights are added one by one in float32, and a small one that is added to a large
# sum is lost.  A million weights of 1 after one of 1e8 are never drawn, instead of in 1 % of draws; before it, they are.  Of
# ten million equal weights, 14.9 % are missing in twice as many draws, not 13.5 %.  Weights of float64 are as guessed.
# Known: reports of it are open since 2019; not in the documentation, which has a limit of 2^24 categories.
# Why it matters: resampling of weighted particles or draws drops the tail, by the order of the weights.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.4.6
CUDA_VISIBLE_DEVICES= "$work/venv/bin/python" -W ignore - <<'PY'
import math

import torch

torch.manual_seed(0)
weights = torch.ones(1_000_001)
weights[0] = 1e8
right = 1e6 / (1e8 + 1e6)
cases = {"float32": weights, "float32, large one last": weights.flip(0), "float64": weights.double()}
found = {}
for name, each in cases.items():
    drawn = torch.multinomial(each, 1_000_000, replacement=True)
    found[name] = (each[drawn] == 1).double().mean().item()
    print(f"{name}: rare categories are {found[name]:.4f} of draws; weights say {right:.4f}")
assert found["float32"] == 0 and all(abs(each / right - 1) < 0.05 for each in [*found.values()][1:])
equal = torch.ones(10_000_000)
for name, each in (("float32", equal), ("float64", equal.double())):
    counts = torch.bincount(torch.multinomial(each, 20_000_000, replacement=True), minlength=10_000_000)
    found[name] = (counts == 0).double().mean().item()
    print(f"{name}: of equal categories {found[name]:.4f} are never drawn; weights say {math.exp(-2):.4f}")
assert found["float32"] > 0.145 and abs(found["float64"] - math.exp(-2)) < 0.001
PY
