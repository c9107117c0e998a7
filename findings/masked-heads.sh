#!/usr/bin/env bash
# Guess: `head_mask` takes heads out of a model, as it did for years, or is refused; so is an argument whose name is misspelt.
# Found (transformers 5.24.0, torch 2.13.0, numpy 2.4.6): models take any argument by name and ignore what they do not know.  GPT-2, BERT,
# RoBERTa, DistilBERT, ELECTRA, ALBERT, XLNet, T5's encoder and ViT give the same output to the last bit with all heads masked as with
# none; if hooks set the heads' outputs to zero, it changes by 0.9 to 1.3 standard deviations.  A mask of half the text under the name
# `atention_mask` is ignored as well.  There is no warning.
# Documented: that masks of heads are gone since 5.0; not that they are taken and ignored.  No report on this was found.
# Why it matters: in a study of what heads do each head has an importance of exactly 0, and one letter makes padding count as text.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6 torch==2.13.0 transformers==5.24.0
TRANSFORMERS_VERBOSITY=warning HF_HUB_OFFLINE=1 CUDA_VISIBLE_DEVICES= "$work/venv/bin/python" - <<'PY'
import warnings

import torch
import transformers

warnings.simplefilter("error")
LAYERS, HEADS, TOKENS = 2, 4, 10
bert = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": 64}
gpt2 = {"vocab_size": 50, "n_embd": 32, "n_layer": LAYERS, "n_head": HEADS, "bos_token_id": 1, "eos_token_id": 2}
small = {"vocab_size": 50, "dim": 32, "n_layers": LAYERS, "n_heads": HEADS, "hidden_dim": 64}
t5 = {"vocab_size": 50, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": LAYERS, "num_heads": HEADS}
models = {"GPT2": gpt2, "Bert": bert, "Roberta": bert, "DistilBert": small, "Electra": bert | {"embedding_size": 32},
          "Albert": bert | {"embedding_size": 32}, "T5": t5,
          "XLNet": {"vocab_size": 50, "d_model": 32, "n_layer": LAYERS, "n_head": HEADS, "d_inner": 64}, "ViT": bert | {"image_size": 8, "patch_size": 4}}
torch.manual_seed(1)
tokens, half = torch.randint(3, 50, (1, TOKENS)), (torch.arange(TOKENS) < TOKENS // 2).long()[None]
for name, options in models.items():
    options = {key: value for key, value in options.items() if name != "ViT" or key != "vocab_size"}
    model = getattr(transformers, f"{name}{'EncoderModel' if name == 'T5' else 'Model'}")(getattr(transformers, f"{name}Config")(**options))
    for parameter in model.eval().parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    data = {"pixel_values": torch.randn(1, 3, 8, 8)} if name == "ViT" else {"input_ids": tokens}

    def output(**extra):
        with torch.no_grad():
            return model(**data, **extra).last_hidden_state

    right = output()
    masked = output(head_mask=torch.zeros(LAYERS, HEADS))
    line = f"{name}: all heads masked, outputs equal {torch.equal(masked, right)}"
    assert torch.equal(masked, right)
    if name != "ViT":
        misspelt, spelt = output(atention_mask=half), output(attention_mask=half)
        change = float(((spelt - right) ** 2).mean().sqrt() / right.std())
        line += f"; half of the text masked, change {change:.2f}, with the name misspelt {float(abs(misspelt - right).max())}"
        assert torch.equal(misspelt, right) and change > 0.05
    blocks = [each for key, each in model.named_modules() if key.endswith((
        "attention.output.dense", "attention.dense", "attn.c_proj", "attention.out_lin", "SelfAttention.o", "attention.o_proj"))]
    for each in blocks:
        each.register_forward_hook(lambda module, inputs, found: torch.zeros_like(found))
    if blocks:
        change = float(((output() - right) ** 2).mean().sqrt() / right.std())
        line += f"; heads' outputs set to zero, change {change:.2f}"
        assert change > 0.5
    print(line)
PY
