"""Best masks of random weights, and what an error of the logits does to attention: strong lottery tickets.

The claims are those of arXiv 2511.04217.

A mask is a choice of a subset; the best one is found exactly, by meeting in the middle (Horowitz and Sahni 1974).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special

from simstudy.attention.instances import measure
from simstudy.attention.normalisers import softmax
from simstudy.data.shared import SharedData
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.systems.masks import MaskedHeadInstance, PerturbedLogitsInstance, RandomHeadsInstance

Array = NDArray[np.float64]

# Index legend: i, j input feature; k hidden unit.


def subset_sums(numbers: Array) -> Array:
    """Sums of all 2^k subsets of numbers along the first axis, the empty one first: (2^k, ...)."""
    sums = np.zeros((1, *numbers.shape[1:]))
    for number in numbers:
        sums = np.concatenate([sums, sums + number])
    return sums


def nearest_subset_sum(numbers: Array, target: float) -> float:
    """Return the sum of the subset of numbers (k,), k ≥ 2, that is nearest to a target; no other is nearer."""
    half = len(numbers) // 2
    left, right = subset_sums(numbers[:half]), np.sort(subset_sums(numbers[half:]))
    above = np.clip(np.searchsorted(right, target - left), 1, len(right) - 1)
    sums = left + right[np.stack([above - 1, above])]
    return float(sums.flat[np.argmin(np.abs(sums - target))])


@measure.register
def mask_head(instance: MaskedHeadInstance, cell: Cell, shared: SharedData) -> dict[str, Array]:
    """Errors of the best mask of a random head with ``width`` hidden units, as many for each input feature.

    The target has logits x'Wx/b² and values v·x.  Of the hidden units of the source those of block i keep the weight
    u_ik of input feature i alone; each entry W_ij, and v_i, is then the sum of a subset of u_ik·v_kj that the second
    mask picks.
    """
    n, d = cell.data.n_keys, cell.data.n_features
    units = instance.width // d
    first, second = d + d * (d + 1), d + d * (d + 1) + d
    drawn = shared.normals(max(n, units), second + d * (d + 1))
    uniform = 2.0 * special.ndtr(drawn[:, d:, :units]) - 1.0
    rows = []
    for tokens, numbers in zip(drawn[:, :d, :n], uniform, strict=True):
        target = instance.scale * numbers[: first - d, 0].reshape(d, d + 1)
        kept = numbers[first - d : second - d, None] * numbers[second - d :].reshape(d, d + 1, -1)
        masked = [[nearest_subset_sum(kept[i, j], target[i, j]) for j in range(d + 1)] for i in range(d)]
        rows.append(_head_errors(tokens, target, np.array(masked), cell.bandwidth**2))
    names = ("log_entry_error", "log_logit_error", "log_output_error", "mask_bound_share")
    return dict(zip(names, np.array(rows).T, strict=True))


def _head_errors(tokens: Array, target: Array, masked: Array, temperature: float) -> tuple[float, ...]:
    """Errors of a head with matrices [W | v] (i, j + 1) in place of another, on tokens (i, token)."""
    logits, other = (tokens.T @ matrix[:, :-1] @ tokens / temperature for matrix in (target, masked))
    weights, changed = softmax(logits), softmax(other)
    values, replaced = target[:, -1] @ tokens, masked[:, -1] @ tokens
    errors = np.abs(other - logits).max(axis=1)
    variation = np.abs(changed - weights).sum(axis=1) / 2.0
    return (
        float(np.log(np.abs(masked - target)).mean()),
        float(np.log(errors.max())),
        float(np.log(np.abs(changed @ replaced - weights @ values).max())),
        float((variation / np.tanh(errors / 2.0)).max()),
    )


@measure.register
def perturb_logits(instance: PerturbedLogitsInstance, cell: Cell, shared: SharedData) -> dict[str, Array]:
    """Total variation and change of output under a change of n_keys Gaussian logits, over their bounds."""
    drawn = shared.normals(cell.data.n_keys, 3)
    rows = [_shares(logits, values, noise, instance) for logits, values, noise in drawn]
    variation, output = np.array(rows).T
    excess = np.maximum(np.maximum(variation, output), 1.0) - 1.0
    return {"bound_share": variation, "output_share": output, "bound_excess": excess}


def _shares(logits: Array, values: Array, noise: Array, instance: PerturbedLogitsInstance) -> tuple[float, float]:
    size = instance.error
    if instance.direction == "extreme":
        # Weight 1/(1 + exp(size)) on the first key, where a change moves most; and values that see nothing else.
        logits = np.zeros_like(logits)
        logits[0] = np.log(len(logits) - 1.0) - size
        values = (np.arange(len(logits)) == 0).astype(float)
    weights = softmax(logits)
    if instance.direction == "random":
        change = size * (2.0 * special.ndtr(noise) - 1.0)
    else:
        reached = np.abs(np.cumsum(weights) - special.expit(-size))
        change = np.where(np.arange(len(logits)) <= np.argmin(reached), size, -size)
    difference, bound = softmax(logits + change) - weights, np.tanh(size / 2.0)
    return float(np.abs(difference).sum() / 2.0 / bound), float(abs(difference @ values) / (bound * np.ptp(values)))


@measure.register
def mask_random_heads(instance: RandomHeadsInstance, cell: Cell, shared: SharedData) -> dict[str, Array]:
    """Errors of the average of n_heads heads and of the average of the best subset, root mean square over outputs."""
    drawn = shared.normals(cell.heads.n_heads + 1, instance.outputs).swapaxes(1, 2)
    errors = np.sqrt(instance.correlation) * drawn[:, :1] + np.sqrt(1.0 - instance.correlation) * drawn[:, 1:]
    counts = subset_sums(np.ones(cell.heads.n_heads))[1:]
    squares = [((subset_sums(each)[1:] / counts[:, None]) ** 2).mean(axis=1) for each in errors]
    # The set of all heads is the last of the subsets.
    return {
        "log_average_error": np.array([0.5 * np.log(square[-1]) for square in squares]),
        "log_mask_error": np.array([0.5 * np.log(square.min()) for square in squares]),
    }
