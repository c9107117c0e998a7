#!/usr/bin/env bash
# Guess: a TorchFunctionMode sees each call of a public function of torch.nn.functional, as it sees one made by a user.
# Found (torch 2.13.0): scaled_dot_product_attention is seen where a user calls it, and not where nn.MultiheadAttention does;
# the mode sees multi_head_attention_forward and nothing inside.
# Why it matters: a tool that counts or replaces attention by a mode misses every nn.TransformerEncoder, without a word.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy
"$work/venv/bin/python" - <<'PY'
import torch
from torch.overrides import TorchFunctionMode


class Names(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.seen.append(getattr(function, "__name__", ""))
        return function(*args, **(kwargs or {}))


x, layer = torch.randn(2, 5, 16), torch.nn.MultiheadAttention(16, 2, batch_first=True)
with Names() as by_user:
    torch.nn.functional.scaled_dot_product_attention(x, x, x)
with Names() as by_layer:
    layer(x, x, x, need_weights=False)
print(f"torch {torch.__version__}: by a user {by_user.seen}; by a layer {by_layer.seen}")
assert "scaled_dot_product_attention" in by_user.seen
assert "multi_head_attention_forward" in by_layer.seen and "scaled_dot_product_attention" not in by_layer.seen
PY
