#!/usr/bin/env bash
# Guess: data and weights that are drawn before a model is trained differ in each replicate of a study, as no seed is set.
# Found (transformers 5.24.0, torch 2.13.0, accelerate 1.15.0, numpy 2.4.6): they do not if a `Trainer` trains.  It sets the seeds of
# `random`, NumPy's global generator and torch to 42 when it is made and again when it trains.  From the second replicate on,
# data, initial weights and NumPy's noise are the same numbers.  NumPy's Generators, and a new seed in each replicate, are as
# guessed.  Documented: a seed, 42, is set as training begins, to reproduce runs; not what follows for other draws.
# Why it matters: 1000 replicates are one, and their Monte Carlo error is 0.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 transformers==5.24.0 accelerate==1.15.0 numpy==2.4.6
HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error CUDA_VISIBLE_DEVICES= "$work/venv/bin/python" -W ignore - "$work" 2> /dev/null <<'PY'
import random
import sys

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

config = BertConfig(vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
options = TrainingArguments(sys.argv[1], report_to="none", max_steps=2, disable_tqdm=True, use_cpu=True, save_strategy="no")
generator = np.random.default_rng()


def replicate(seed=None):
    if seed is not None:
        for each in (random.seed, np.random.seed, torch.manual_seed):
            each(seed)
    texts, labels = torch.randint(5, 30, (32, 6)), np.random.randint(0, 2, 32)
    model = BertForSequenceClassification(config)
    first = float(model.classifier.weight[0, 0].detach())
    drawn = tuple(texts[0].tolist()), tuple(labels[:8].tolist()), round(random.random(), 6), round(first, 6)
    table = [{"input_ids": text, "labels": int(label)} for text, label in zip(texts, labels)]
    Trainer(model=model, args=options, train_dataset=table).train()
    return drawn, generator.random()


unseeded = [replicate() for _ in range(4)]
seeded = [replicate(seed) for seed in range(4)]
for drawn, _ in unseeded:
    print("tokens {}, labels {}, random {}, weight {}".format(*drawn))
print("replicates that differ:", len({drawn for drawn, _ in unseeded}), "of 4; with seeds", len({drawn for drawn, _ in seeded}))
assert len({drawn for drawn, _ in unseeded}) == 2 and unseeded[0][0] != unseeded[1][0] == unseeded[3][0]
assert len({drawn for drawn, _ in seeded}) == 4 and len({number for _, number in unseeded}) == 4
PY
