"""Best masks of many random heads at once, and of layers of them: widths that do for all, and errors that add up.

The claims are those of arXiv 2511.04217 on H heads and on transformers without normalisation.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special

from simstudy.attention.instances import measure
from simstudy.attention.normalisers import softmax
from simstudy.attention.systems.identifiability import layer_norm
from simstudy.attention.systems.masks import subset_sums
from simstudy.data.shared import SharedData
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.systems.masked_stacks import MAX_UNITS, MaskedHeadsInstance, MaskedStackInstance

Array = NDArray[np.float64]

# Index legend: i, j input feature; k hidden unit; e entry of any matrix of the target.


def nearest_subset_sums(numbers: Array, targets: Array) -> Array:
    """Return for each target (e,) the nearest sum of a subset of its own numbers (k, e), k ≥ 2: (e,)."""
    half = len(numbers) // 2
    left, right = subset_sums(numbers[:half]), np.sort(subset_sums(numbers[half:]), axis=0)
    # One search for all: the sums of each entry are shifted beyond those of the entry before.
    reach = np.abs(right).max() + 1.0
    entries = np.arange(len(targets))
    sought = np.clip(targets - left, -reach, reach) + 2.0 * reach * entries
    above = np.searchsorted((right + 2.0 * reach * entries).ravel("F"), sought) - len(right) * entries
    above = np.clip(above, 1, len(right) - 1)
    sums = np.concatenate([left + np.take_along_axis(right, above - step, axis=0) for step in (0, 1)])
    return sums[np.abs(sums - targets).argmin(axis=0), entries]


def needed_units(numbers: Array, targets: Array, tolerance: float) -> Array:
    """Return how many of the numbers (k, e), 2 at least and k at most, reach each target (e,) to a tolerance: (e,)."""
    needed = np.full(len(targets), len(numbers))
    missed = np.arange(len(targets))
    for count in range(2, len(numbers)):
        sums = nearest_subset_sums(numbers[:count, missed], targets[missed])
        reached = np.abs(sums - targets[missed]) <= tolerance
        needed[missed[reached]] = count
        missed = missed[~reached]
        if not missed.size:
            break
    return needed


def _matrices(drawn: Array, d: int, scale: float) -> tuple[Array, Array]:
    """Entries of matrices of the target (replicate, e) and the numbers of the source (replicate, k, e).

    From normals (replicate, column, k), d(2d + 1) columns for each matrix: of the hidden units of the source those of
    block i keep the weight u_ik of input feature i alone, so that entry ij is the sum of a subset of u_ik·v_kj.
    """
    count, _, units = drawn.shape
    blocks = (2.0 * special.ndtr(drawn) - 1.0).reshape(count, -1, d * (2 * d + 1), units)
    kept, second = blocks[:, :, d * d : d * d + d], blocks[:, :, d * d + d :].reshape(count, -1, d, d, units)
    numbers = (kept[:, :, :, None] * second).reshape(count, -1, units)
    return scale * blocks[:, :, : d * d, 0].reshape(count, -1), numbers.swapaxes(1, 2)


@measure.register
def mask_heads(instance: MaskedHeadsInstance, cell: Cell, shared: SharedData) -> dict[str, Array]:
    """Largest error of an entry of any head at one width, and the width at which it is within the tolerance."""
    d = cell.data.n_features
    drawn = shared.normals(MAX_UNITS, 2 * instance.heads * d * (2 * d + 1))
    errors, widths = [], []
    for targets, numbers in zip(*_matrices(drawn, d, instance.scale), strict=True):
        masked = nearest_subset_sums(numbers[: instance.width // d], targets)
        errors.append(np.log(np.abs(masked - targets).max()))
        widths.append(d * needed_units(numbers, targets, instance.tolerance).max())
    return {"log_largest_error": np.array(errors), "needed_width": np.array(widths, float)}


@measure.register
def mask_stack(instance: MaskedStackInstance, cell: Cell, shared: SharedData) -> dict[str, Array]:
    """Largest errors of hidden states after layers whose matrices are the best masks of random ones."""
    n, d = cell.data.n_keys, cell.data.n_features
    units = instance.width // d
    drawn = shared.normals(max(n, units), d + 2 * instance.layers * d * (2 * d + 1))
    errors = []
    for tokens, targets, numbers in zip(
        drawn[:, :d, :n].swapaxes(1, 2), *_matrices(drawn[:, d:, :units], d, instance.scale), strict=True
    ):
        masked = nearest_subset_sums(numbers, targets)
        stacks = [matrices.reshape(instance.layers, 2, d, d) for matrices in (targets, masked)]
        changed = (_last_states(tokens, stack, instance.normalisation, cell.bandwidth**2) for stack in stacks)
        errors.append(np.log(np.abs(np.subtract(*changed)).max()))
    return {"log_stack_error": np.array(errors)}


def _last_states(states: Array, stack: Array, normalisation: str, temperature: float) -> Array:
    """Tokens (n, d) after layers of attention with residual connections, of matrices (layer, 2, d, d)."""
    for logits, values in stack:
        states = states + softmax(states @ logits @ states.T / temperature) @ states @ values
        states = layer_norm(states) if normalisation == "layer_norm" else states
    return states
