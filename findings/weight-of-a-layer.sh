#!/usr/bin/env bash
# Guess: the attribute weight of a linear layer is what multiplies its input, or using it is an error.
# Found (peft 0.21.2): of a layer with an unmerged adapter it is the weight without the adapter, without a word; after
# merge_adapter the same attribute has the adapter in it.
# Why it matters: subspaces, norms and attention rebuilt from weights by name are those of another model.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 transformers==5.24.0 peft==0.21.2
"$work/venv/bin/python" -W ignore - <<'PY'
import peft
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = torch.nn.Linear(64, 64, bias=False)

    def forward(self, x):
        return self.q_proj(x)


torch.manual_seed(0)
model, x = Model().eval(), torch.randn(3, 64)
plain = model(x)
adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"], init_lora_weights=False)).eval()
output, layer = adapted(x), adapted.base_model.model.q_proj


def apart(other):
    return float((x @ layer.weight.T - other).abs().max())


unmerged = apart(output), apart(plain)
adapted.merge_adapter()
merged = apart(output), apart(plain)
print(f"peft {peft.__version__}: x @ weight.T differs from the layer by {unmerged[0]:.2g} and from the layer without adapter by "
      f"{unmerged[1]:.2g}; merged, by {merged[0]:.2g} and {merged[1]:.2g}")
assert unmerged[0] > 0.1 > 1e-5 > unmerged[1] and merged[1] > 0.1 > 1e-5 > merged[0]
PY
