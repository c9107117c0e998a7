"""What it costs to inspect the heads of a transformer: processor seconds, whatever else is running, and memory."""

import time
import tracemalloc
from collections.abc import Iterator

import numpy as np
from measure import Row

from simstudy import inspect_heads
from simstudy.transformers.heads import TransformerHeads

BERT = (12, 12, 768, 64)
"""Layers, heads of each, features and dimensions, as of BERT's base model."""


def made(
    shape: tuple[int, int, int, int], n_sequences: int = 16, n_tokens: int = 128
) -> tuple[TransformerHeads, np.ndarray]:
    """Heads with directions in common, so that angles of key subspaces are small as well as large, and states."""
    n_layers, _, d, _ = shape
    rng = np.random.default_rng(0)
    projections = rng.standard_normal((4, *shape), dtype=np.float32) / np.float32(d**0.5)
    projections[:2] += projections[:2, :, :1]
    return TransformerHeads(*projections), rng.standard_normal((n_layers, n_sequences, n_tokens, d), dtype=np.float32)


def inspection_rows(shape: tuple[int, int, int, int] = BERT) -> Iterator[Row]:
    """Cost of `inspect_heads`, once everything is imported."""
    inspect_heads(*made((1, 2, 8, 2), 4, 9))
    heads, states = made(shape)
    start = time.process_time()
    inspect_heads(heads, states)
    size = f"{shape[0]} layers of {shape[1]} heads, d = {shape[2]}, p = {shape[3]}"
    yield Row("inspection", size, "processor", time.process_time() - start, "s")
    tracemalloc.start()
    inspect_heads(heads, states)
    yield Row(
        "inspection", size, "memory", tracemalloc.get_traced_memory()[1] / 2**20, "MB at peak, beside what is given"
    )
    tracemalloc.stop()
