#!/usr/bin/env bash
# Guess: `dropout=0.5` of an attention layer drops half of its weights in training, for each way of computing it, and leaves means of outputs.
# Found (memory-efficient-attention-pytorch 0.1.6, conformer 0.3.2, torch 2.13.0, numpy 2.4.6): in 1 of 6 cases weights are dropped, and means
# change there.  `Attention` drops nothing unless `memory_efficient=True`, and `CosineSimAttention` never does: training equals evaluation.
# With `memory_efficient=True` kept weights are made to sum to 1 again.  The first token of a causal text is therefore never scaled: each head
# gives its value or 0, so its mean is halved; that of the second is about 3/4, as a head without any kept weight gives 0.
# `Conformer` hands none of its three rates to its blocks, which all have 0; a `ConformerBlock` drops half of attention's outputs, not weights.
# There is no warning.
# Documented: the three rates of `Conformer`, all 0 in its example; `memory_efficient` as something to turn off for tests against normal
# attention.  Dropout is not; a change of 2022 that added it names the memory efficient way alone.  No report on this was found.
# Why it matters: ensembles by dropout are copies of one model there, and comparisons of rates compare seeds.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check \
    memory-efficient-attention-pytorch==0.1.6 conformer==0.3.2 torch==2.13.0 numpy==2.4.6
CUDA_VISIBLE_DEVICES= "$work/venv/bin/python" -W ignore - <<'PY'
import warnings

import torch
from conformer import Conformer, ConformerBlock
from memory_efficient_attention_pytorch import Attention, CosineSimAttention

warnings.simplefilter("error")
WIDTH, HEADS, RATE, TOKENS, COPIES = 16, 2, 0.5, 6, 40000
text = torch.randn(1, TOKENS, WIDTH, generator=torch.Generator().manual_seed(1))


def by_hand(layer):
    """The mean over all choices of kept weights, which are made to sum to 1, or 0 if none is kept."""
    q, k, v = (x.reshape(TOKENS, HEADS, -1).transpose(0, 1) for x in (layer.to_q(text), *layer.to_kv(text).chunk(2, dim=-1)))
    weights = (q @ k.transpose(1, 2) / (WIDTH // HEADS) ** 0.5).exp().tril()
    out = torch.zeros_like(v)
    choices = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * TOKENS)
    for kept in choices:
        chosen = weights * kept
        out += (chosen / chosen.sum(dim=-1, keepdim=True).clamp(min=1e-30)) @ v / len(choices)
    return layer.to_out(out.transpose(0, 1).reshape(TOKENS, WIDTH))


def ratios(layer):
    """Means of outputs in training, as multiples of those of evaluation, by token; and whether all are equal."""
    with torch.no_grad():
        right, found = layer.eval()(text)[0], layer.train()(text.expand(COPIES, -1, -1))
        mean = found.mean(dim=0)
        return (mean * right).sum(dim=-1) / right.square().sum(dim=-1), torch.allclose(found, right.expand_as(found), atol=1e-6), mean


for kind, options in ((Attention, {}), (CosineSimAttention, {"seq_len": TOKENS})):
    for efficient in (False, True):
        torch.manual_seed(2)
        layer = kind(dim=WIDTH, heads=HEADS, dim_head=WIDTH // HEADS, dropout=RATE, causal=True, memory_efficient=efficient, **options)
        ratio, same, mean = ratios(layer)
        print(f"{kind.__name__}, memory_efficient={efficient}: training equals evaluation {same}, means of the first tokens"
              f" {', '.join(f'{each:.2f}' for each in ratio[:3].tolist())}-fold")
        assert same == (not (kind is Attention and efficient))
        if not same:
            with torch.no_grad():
                assert torch.allclose(mean, by_hand(layer), atol=0.02) and abs(ratio[0] - 0.5) < 0.02
                share = (layer(text.expand(COPIES, -1, -1))[:, 0].abs().amax(dim=-1) == 0).double().mean().item()
            print(f"    the first token's output is 0 in {share:.1%}, by both heads {RATE**HEADS:.1%}")
            assert abs(share - RATE**HEADS) < 0.01

rates = {"attn_dropout": RATE, "ff_dropout": RATE, "conv_dropout": RATE}
shape = {"dim": WIDTH, "heads": HEADS, "dim_head": WIDTH // HEADS, "conv_kernel_size": 3}
for name, model in (("Conformer", Conformer(depth=2, conv_causal=True, **shape, **rates)), ("ConformerBlock", ConformerBlock(**shape, **rates))):
    found = sorted({each.p for each in model.modules() if isinstance(each, torch.nn.Dropout)})
    print(f"{name} with {rates}: rates of its layers {found}")
    assert found == [0.0 if name == "Conformer" else RATE]
    if name == "Conformer":
        same = torch.equal(model.train()(text), model.eval()(text))
        print(f"    training equals evaluation {same}")
        assert same
    else:
        zeros = (model.train().attn.fn(text.expand(100, -1, -1)) == 0).double().mean().item()
        print(f"    outputs of its attention that are 0: {zeros:.0%}")
        assert abs(zeros - RATE) < 0.03
PY
