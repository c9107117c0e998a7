#!/usr/bin/env bash
# Guess: nn.MultiheadAttention returns one output, whether weights are asked for or not.
# Found (torch 2.13.0): with add_bias_kv or add_zero_attn and is_causal=True the output depends on need_weights, by half of
# its size here.  Without the hint is_causal, and for layers without extra keys, both agree to rounding.
# Why it matters: whoever asks for weights to look at a model looks at another model.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy
"$work/venv/bin/python" -W ignore - <<'PY'
import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(2, 6, 8)
mask = nn.Transformer.generate_square_subsequent_mask(6)
apart = {}
for name, options in {"plain": {}, "add_bias_kv": {"add_bias_kv": True}, "add_zero_attn": {"add_zero_attn": True}}.items():
    layer = nn.MultiheadAttention(8, 2, batch_first=True, **options).eval()
    for hint in (False, True):
        with torch.no_grad():
            one, two = (layer(x, x, x, attn_mask=mask, is_causal=hint, need_weights=need)[0] for need in (True, False))
        apart[name, hint] = float((one - two).abs().max())
        print(f"torch {torch.__version__}, {name}, is_causal={hint}: largest difference {apart[name, hint]:.2g}")
assert all((gap > 0.1) == (hint and name != "plain") for (name, hint), gap in apart.items())
PY
