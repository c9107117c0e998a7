#!/usr/bin/env bash
# Guess: a cache continues a text, whether the next tokens come one by one or several at once.
# Found (transformers 5.24.0, torch 2.13.0, numpy 2.4.6): not in Mamba, FalconMamba and Jamba.  If several tokens come at once, the
# convolution goes on, but the recurrent state starts at 0 and what was there is overwritten.  With random weights of two layers and 20
# tokens in the cache the next 20 tokens' predictions are off by 0.63, 0.37 and 0.15 standard deviations if they come at once, and by 0.74,
# 0.42 and 0.41 in two parts; without the first 20 tokens they would be off by 0.77, 0.51 and 0.46.  One by one they are right, and so are
# all ways in Mamba2 and Llama.  There is no warning.
# Documented: the cache as what continues a text.  Known: reported and mended in 2026 for Mamba2 and for hybrids with it; these remain.
# Why it matters: a second question to a model, a text in parts, and drafts that it checks, are read as if little came before.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check transformers==5.24.0 numpy==2.4.6 torch==2.13.0
CUDA_VISIBLE_DEVICES= TRANSFORMERS_VERBOSITY=error HF_HUB_OFFLINE=1 "$work/venv/bin/python" - <<'PY'
import warnings

import torch
import transformers

warnings.simplefilter("error")
TOKENS, FIRST = 40, 20
ways = {"one by one": [1] * (TOKENS - FIRST), "ten and ten": [10, 10], "one, then 19": [1, 19], "all": [TOKENS - FIRST]}
small = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2}
models = {
    "Mamba": small | {"state_size": 8}, "FalconMamba": small | {"state_size": 8},
    "Jamba": small | {
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48, "num_experts": 2, "attn_layer_period": 2,
        "attn_layer_offset": 1},
    "Mamba2": small | {"num_heads": 8, "head_dim": 8, "n_groups": 1, "state_size": 8, "chunk_size": 16},
    "Llama": small | {"num_attention_heads": 4, "intermediate_size": 48}}
forgetful = ("Mamba", "FalconMamba", "Jamba")


def error(one, two):
    return float(((one - two) ** 2).mean().sqrt() / two.std())


text = torch.randint(3, 50, (1, TOKENS), generator=torch.Generator().manual_seed(1))
for name, options in models.items():
    torch.manual_seed(2)
    model = getattr(transformers, f"{name}ForCausalLM")(getattr(transformers, f"{name}Config")(**options)).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    found = {}
    with torch.no_grad():
        whole = model(text, use_cache=False).logits[:, FIRST:]
        for way, sizes in ways.items():
            cache, parts = model(text[:, :FIRST], use_cache=True).cache, []
            for part in text[:, FIRST:].split(sizes, dim=1):
                step = model(part, cache=cache, use_cache=True)
                cache = step.cache
                parts.append(step.logits)
            found[way] = error(torch.cat(parts, dim=1), whole)
        without = error(model(text[:, FIRST:], use_cache=False).logits, whole)
    print(f"{name}: the last {TOKENS - FIRST} tokens after a cache, off by {', '.join(f'{each:.3f} {way}' for way, each in found.items())}; "
          f"without the first {FIRST} tokens by {without:.3f}")
    single = found.pop("one by one")
    assert single < 1e-4 and without > 0.3
    assert min(found.values()) > 0.1 and found["ten and ten"] > 0.3 if name in forgetful else max(found.values()) < 1e-4
PY
