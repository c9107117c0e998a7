#!/usr/bin/env bash
# Guess: with an attention mask, tokens of a padded row get what they get alone, in all models of one library or in none.
# Found (transformers 5.24.0, torch 2.13.0): padding at the right changes nothing.  At the left it does in GPT-2, GPT-Neo, BERT,
# DistilBERT and DeBERTa, whose positions count the padding, by about the size of the outputs; not in OPT and RoBERTa, whose
# positions are counted without it, nor in Llama and BLOOM, which see distances.  There is no warning.
# Documented for GPT-2 and BERT as an advice to pad at the right; position_ids that are given are as guessed.
# Why it matters: averages over a batch, of heads too, depend on which other rows are in it and on the tokenizer's side.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 transformers==5.24.0 numpy==2.4.6
HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error CUDA_VISIBLE_DEVICES= "$work/venv/bin/python" -W ignore - <<'PY'
import torch
import transformers

bert = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
gpt = {"n_embd": 32, "n_layer": 2, "n_head": 4}
models = {
    "GPT2": gpt,
    "GPTNeo": {"hidden_size": 32, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]},
    "Bert": bert,
    "DistilBert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64},
    "DebertaV2": bert,
    "OPT": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 64, "word_embed_proj_dim": 32},
    "Roberta": bert,
    "Llama": bert,
    "Bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4},
}
torch.manual_seed(0)
tokens, changed = torch.randint(5, 60, (1, 8)), {}
padding, ones = torch.ones(1, 4, dtype=torch.long), torch.ones(1, 8, dtype=torch.long)
left, mask = torch.cat([padding, tokens], 1), torch.cat([0 * padding, ones], 1)
for name, sizes in models.items():
    config = getattr(transformers, f"{name}Config")(vocab_size=60, pad_token_id=1, bos_token_id=2, eos_token_id=3, **sizes)
    model = getattr(transformers, f"{name}Model")(config).eval()
    for each in model.parameters():
        if each.dim() > 1:
            torch.nn.init.normal_(each, std=0.3)
    with torch.no_grad():
        alone = model(tokens).last_hidden_state
        right = model(torch.cat([tokens, padding], 1), attention_mask=mask.flip(1)).last_hidden_state[:, :8]
        found = model(left, attention_mask=mask).last_hidden_state[:, 4:]
        assert (right - alone).abs().max() < 1e-4, name
        if name in ("GPT2", "Bert"):
            places = (mask.cumsum(1) - 1).clamp(min=0)
            given = model(left, attention_mask=mask, position_ids=places).last_hidden_state[:, 4:]
            assert (given - alone).abs().max() < 1e-4, name
    size = float((found - alone).square().mean().sqrt() / alone.std())
    changed[name] = size > 0.2
    print(f"{name:11}padded at the left: outputs change by {size:.3f} of their standard deviation")
    assert changed[name] or size < 1e-4
assert [*changed.values()] == [True] * 5 + [False] * 4
PY
