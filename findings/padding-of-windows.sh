#!/usr/bin/env bash
# Guess: local-attention's `autopad` changes no output: what it adds to fill the last window is not attended to.
# Found (local-attention 1.11.2, torch 2.13.0, numpy 2.4.6): that is so if it is causal, or if a mask is given, even one that hides nothing.
# Else the zeros that are added are keys, with the score 0 and the value 0.  Of 65 normal queries with windows of 32, the last 33 differ from
# attention by hand, by up to 1.6 times the outputs' deviation, and the last output has 0.64 times the norm.  With 64 queries, which
# fill their windows, none differs.  By hand with 31 zeros more the outputs are the same.  There is no warning.
# Documented: "auto pads both inputs and mask, then truncates output appropriately".  No report on this was found.
# Why it matters: texts whose lengths do not fill windows get smaller outputs at their ends, and a mask of ones changes them.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check local-attention==1.11.2 torch==2.13.0 numpy==2.4.6
CUDA_VISIBLE_DEVICES= "$work/venv/bin/python" - <<'PY'
import warnings

import torch
from local_attention import LocalAttention

warnings.simplefilter("error")
WIDTH, WINDOW, TEXTS = 16, 32, 50


def by_hand(q, k, v, causal, padded):
    """Attention to the keys of the window itself, the one before it and, unless causal, the one after it."""
    length = q.shape[1]
    size = -(-length // WINDOW) * WINDOW if padded else length
    k, v = (torch.cat([x, x.new_zeros(len(x), size - length, WIDTH)], dim=1) for x in (k, v))
    places = torch.arange(size)
    apart = places[:length, None] // WINDOW - places // WINDOW
    seen = (apart >= 0) & (apart <= 1) & (places <= places[:length, None]) if causal else apart.abs() <= 1
    weights = (q @ k.mT / WIDTH**0.5).masked_fill(~seen, -torch.inf).softmax(dim=-1)
    return weights @ v


torch.manual_seed(1)
for length in (64, 65, 90):
    q, k, v = torch.randn(3, TEXTS, length, WIDTH)
    for causal in (False, True):
        for masked in (False, True):
            layer = LocalAttention(WINDOW, causal=causal, autopad=True)
            found = layer(q, k, v, mask=torch.ones(TEXTS, length, dtype=torch.bool) if masked else None)
            right, zeros = by_hand(q, k, v, causal, False), by_hand(q, k, v, causal, True)
            wrong = ((found - right).abs() > 1e-4).any(dim=2).any(dim=0)
            norm = found[:, -1].norm(dim=1).mean() / right[:, -1].norm(dim=1).mean()
            print(f"{length} queries{', causal' * causal}{', mask of ones' * masked}: {int(wrong.sum())} differ, by up to "
                  f"{float((found - right).abs().max() / right.std()):.2g} deviations; last output {float(norm):.2f} times as long; "
                  f"differences from zeros as keys {float((found - zeros).abs().max()):.1g}")
            if length == 64 or causal or masked:
                assert not wrong.any()
            else:
                assert wrong[-(length - WINDOW):].all() and not wrong[:length - WINDOW - 32].any() and torch.allclose(found, zeros, atol=1e-5)
                assert norm < 0.97
PY
