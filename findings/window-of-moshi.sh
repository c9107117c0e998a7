#!/usr/bin/env bash
# Guess: `sliding_window` decides how many tokens Moshi sees, in one pass and in generating, as in Mistral.
# Found (transformers 5.24.0, torch 2.13.0, numpy 2.4.6): one pass ignores the window, and only a cache drops what lies outside.  With a
# window of 8 the last of 40 tokens sees all 40 in one pass, also in one that fills a cache; 8 if tokens come one by one; 12 if they come by
# five and 27 by twenty, as parts see what is left of the cache and all of themselves.  With random weights of one layer predictions differ
# from one pass by 1.27, 0.48 and 0.29 standard deviations.  Mistral sees 8 in all ways, and its predictions agree to rounding.
# Documented: "sliding window attention window size", 3,000 if it is not given.  No report on this was found.
# Why it matters: with longer texts a model is trained and judged with what it cannot see in generating, and parts of a prompt change it.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check transformers==5.24.0 numpy==2.4.6 torch==2.13.0
CUDA_VISIBLE_DEVICES= TRANSFORMERS_VERBOSITY=warning HF_HUB_OFFLINE=1 "$work/venv/bin/python" - <<'PY'
import warnings

import torch
import transformers

warnings.simplefilter("error")
TOKENS, WINDOW = 40, 8
small = {
    "vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 8, "sliding_window": WINDOW}
random = torch.Generator().manual_seed(1)
text = torch.randint(3, 50, (1, TOKENS), generator=random)


def seen(logits):
    """Which tokens change the last prediction if another one stands there."""
    right, places = logits(text), []
    for place in range(TOKENS - 1):
        other = text.clone()
        other[0, place] = 3 + (other[0, place] - 3 + 7) % 47
        if (logits(other) - right).abs().max() > 1e-4:
            places.append(place)
    return len(places) + 1


for name, options in (("Moshi", {"ffn_dim": 64}), ("Mistral", {"intermediate_size": 48})):
    config = getattr(transformers, f"{name}Config")(**small, **options)
    torch.manual_seed(2)
    model = getattr(transformers, f"{name}ForCausalLM")._from_config(config, attn_implementation="eager").eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)

    def prediction(tokens, size=TOKENS, use_cache=True):
        cache = None
        with torch.no_grad():
            for part in tokens.split(size, dim=1):
                step = model(part, cache=cache, use_cache=use_cache)
                cache = step.cache
        return step.logits[0, -1]

    right = prediction(text, use_cache=False)
    found = {"one pass without cache": seen(lambda tokens: prediction(tokens, use_cache=False))}
    apart = {}
    for size in (TOKENS, 20, 5, 1):
        found[f"{size} at once"] = seen(lambda tokens, size=size: prediction(tokens, size))
        apart[size] = float((prediction(text, size) - right).square().mean().sqrt() / right.std())
    print(f"{name}, window {WINDOW}: the last of {TOKENS} tokens sees {', '.join(f'{each} {way}' for way, each in found.items())}; differences "
          f"from one pass without cache {', '.join(f'{each:.2f} by {size}' for size, each in apart.items())}")
    assert list(found.values()) == ([40, 40, 27, 12, 8] if name == "Moshi" else [8] * 5)
    assert all(each > 0.1 for size, each in apart.items() if size < TOKENS) == (name == "Moshi") and apart[TOKENS] < 1e-4
PY
