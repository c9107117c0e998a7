"""Heads that are trained to solve new linear tasks in context: the signs of their output weights, and their error.

Given the coordinates z_i of tokens along a query of length l, heads predict Σ_i w_i y_i, w = Σ_h o_h softmax(k_h l z).
Over tasks, noise, and what tokens are across the query, the mean squared error is

    L = (σ² + (d − 1)/d) |w|² + (w'z − l)²/d.

Index legend: r replicate; b prompt; h head; i token.
"""

import numpy as np

from simstudy.attention.members import Array, Rows, quantities
from simstudy.attention.normalisers import softmax
from simstudy.data.shared import SharedData
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.systems.in_context import InContextHeadsInstance

PROMPTS, TESTED, START = 8, 256, 0.1
"""New prompts in each step, prompts that the risk is measured on, and the deviation of weights before training."""


@quantities.register
def train_in_context(instance: InContextHeadsInstance, cell: Cell, shared: SharedData) -> Rows:
    """Signs and error of heads after training, one run in each replicate."""
    n, d, n_heads = cell.data.n_keys, cell.data.n_features, cell.heads.n_heads
    noise, last = cell.data.noise_sd**2, instance.steps * PROMPTS
    positive = instance.outputs == "positive"
    normals = shared.normals(max(n + d, 2 * n_heads), last + TESTED + 1)
    logits, outputs = START * normals[:, -1, :n_heads], START * normals[:, -1, n_heads : 2 * n_heads]
    outputs = np.abs(outputs) if positive else outputs
    for step in range(instance.steps):
        _, pulls, turns = _descent(
            logits, outputs, normals[:, step * PROMPTS : (step + 1) * PROMPTS, : n + d], n, noise
        )
        size = instance.rate * (1.0 - step / instance.steps)
        logits, outputs = logits - size * turns, outputs - size * pulls
        outputs = np.maximum(outputs, 0.0) if positive else outputs
    error, _, _ = _descent(logits, outputs, normals[:, last : last + TESTED, : n + d], n, noise)
    total = np.abs(outputs).sum(axis=1)
    both_signs = (outputs.min(axis=1) < 0.0) & (outputs.max(axis=1) > 0.0)
    size = np.abs(outputs.sum(axis=1)) / np.where(total > 0.0, total, 1.0)
    return zip(both_signs, size, (outputs * logits > 0.0).mean(axis=1), error, strict=True)


def _descent(logits: Array, outputs: Array, prompts: Array, n: int, noise: float) -> tuple[Array, Array, Array]:
    """Error (r,) of prompts (r, b, n + d), tokens along the query and the query, and its gradient in both weights."""
    z, query = prompts[..., :n], prompts[..., n:]
    d, length = query.shape[-1], np.sqrt((query * query).sum(axis=-1))
    # Sums are over the last axis, or of few heads: so the bits of a replicate do not depend on others.
    heads = softmax(logits[:, None, :, None] * (length[..., None] * z)[:, :, None])
    w = (outputs[:, None, :, None] * heads).sum(axis=2)
    spread, missed = noise + (d - 1.0) / d, (w * z).sum(axis=-1) - length
    error = spread * (w * w).sum(axis=-1) + missed**2 / d
    pulled = heads * (2.0 * (spread * w + missed[..., None] * z / d))[:, :, None]
    pull = pulled.sum(axis=-1)
    turn = (pulled * z[:, :, None]).sum(axis=-1) - (heads * z[:, :, None]).sum(axis=-1) * pull
    turn = turn * outputs[:, None] * length[..., None]
    return error.mean(axis=1), pull.mean(axis=1), turn.mean(axis=1)
