"""Best masks of random weights, and what an error of the logits does to attention: strong lottery tickets.

The claims are those of arXiv 2511.04217.

A mask is a choice of a subset; the best one is found exactly, by meeting in the middle (Horowitz and Sahni 1974).
"""

import numpy as np
from scipy import special

from simstudy.attention.members import Array, Rows, quantities
from simstudy.attention.normalisers import softmax
from simstudy.data.shared import SharedData
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.systems import masks as settings

# Index legend: i, j input feature; k hidden unit; e entry of any matrix of the target.


def subset_sums(numbers: Array) -> Array:
    """Sums of all 2^k subsets of numbers along the first axis, the empty one first: (2^k, ...)."""
    sums = np.zeros((1, *numbers.shape[1:]))
    for number in numbers:
        sums = np.concatenate([sums, sums + number])
    return sums


def nearest_subset_sums(numbers: Array, targets: Array) -> Array:
    """Return for each target (e,) the nearest sum of a subset of its own numbers (k, e), k ≥ 2: (e,)."""
    half = len(numbers) // 2
    left, right = (np.sort(subset_sums(part).T, axis=1) for part in (numbers[:half], numbers[half:]))
    # One search for all: the sums of each entry are shifted beyond those of the entry before.
    reach = np.abs(right).max() + 1.0
    shifts = 2.0 * reach * np.arange(len(targets))[:, None]
    firsts = right.shape[1] * np.arange(len(targets))[:, None]
    above = np.searchsorted((right + shifts).ravel(), np.clip(targets[:, None] - left, -reach, reach) + shifts)
    above = np.clip(above, firsts + 1, firsts + right.shape[1] - 1)
    sums = np.concatenate([left + right.ravel()[above - step] for step in (0, 1)], axis=1)
    return sums[np.arange(len(targets)), np.abs(sums - targets[:, None]).argmin(axis=1)]


@quantities.register
def mask_head(instance: settings.MaskedHeadInstance, cell: Cell, shared: SharedData) -> Rows:
    """Errors of the best mask of a random head with ``width`` hidden units, as many for each input feature.

    The target has logits x'Wx/b² and values v·x.  Of the hidden units of the source those of block i keep the weight
    u_ik of input feature i alone; each entry W_ij, and v_i, is then the sum of a subset of u_ik·v_kj that the second
    mask picks.
    """
    n, d = cell.data.n_keys, cell.data.n_features
    units = instance.width // d
    drawn = shared.normals(max(n, units), d + d * (2 * d + 3))
    sources = _matrices(drawn[:, d:, :units], d, d + 1, instance.scale)
    for tokens, target, numbers in zip(drawn[:, :d, :n], *sources, strict=True):
        # Matrices [W | v] (i, j + 1) of both heads, on tokens (i, token).
        target, masked = (each.reshape(d, d + 1) for each in (target, nearest_subset_sums(numbers, target)))
        logits, other = (tokens.T @ matrix[:, :-1] @ tokens / cell.bandwidth**2 for matrix in (target, masked))
        weights, changed = softmax(logits), softmax(other)
        values, replaced = target[:, -1] @ tokens, masked[:, -1] @ tokens
        errors = np.abs(other - logits).max(axis=1)
        variation = np.abs(changed - weights).sum(axis=1) / 2.0
        logarithms = np.log([errors.max(), np.abs(changed @ replaced - weights @ values).max()])
        yield np.log(np.abs(masked - target)).mean(), *logarithms, (variation / np.tanh(errors / 2.0)).max()


@quantities.register
def perturb_logits(instance: settings.PerturbedLogitsInstance, cell: Cell, shared: SharedData) -> Rows:
    """Total variation and change of output under a change of n_keys Gaussian logits, over their bounds."""
    n, size, bound = cell.data.n_keys, instance.error, np.tanh(instance.error / 2.0)
    for logits, values, noise in shared.normals(n, 3):
        if instance.direction == "extreme":
            # Weight 1/(1 + exp(size)) on the first key, where a change moves most; and values that see nothing else.
            logits = np.zeros_like(logits)
            logits[0] = np.log(n - 1.0) - size
            values = (np.arange(n) == 0).astype(float)
        weights = softmax(logits)
        if instance.direction == "random":
            change = size * (2.0 * special.ndtr(noise) - 1.0)
        else:
            reached = np.abs(np.cumsum(weights) - special.expit(-size))
            change = np.where(np.arange(n) <= np.argmin(reached), size, -size)
        difference = softmax(logits + change) - weights
        shares = np.abs(difference).sum() / 2.0 / bound, abs(difference @ values) / (bound * np.ptp(values))
        yield *shares, max(*shares, 1.0) - 1.0


@quantities.register
def mask_random_heads(instance: settings.RandomHeadsInstance, cell: Cell, shared: SharedData) -> Rows:
    """Errors of the average of n_heads heads and of the average of the best subset, root mean square over outputs."""
    drawn = shared.normals(cell.heads.n_heads + 1, instance.outputs).swapaxes(1, 2)
    errors = np.sqrt(instance.correlation) * drawn[:, :1] + np.sqrt(1.0 - instance.correlation) * drawn[:, 1:]
    counts = subset_sums(np.ones(cell.heads.n_heads))[1:]
    for each in errors:
        squares = ((subset_sums(each)[1:] / counts[:, None]) ** 2).mean(axis=1)
        # The set of all heads is the last of the subsets.
        yield 0.5 * np.log(squares[-1]), 0.5 * np.log(squares.min())


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


def _matrices(drawn: Array, d: int, n_columns: int, scale: float) -> tuple[Array, Array]:
    """Entries of targets (replicate, e) and numbers of sources (replicate, k, e), laid out as in `mask_head`."""
    count, _, units = drawn.shape
    size = d * n_columns
    blocks = (2.0 * special.ndtr(drawn) - 1.0).reshape(count, -1, d + 2 * size, units)
    kept, second = blocks[:, :, size : size + d], blocks[:, :, size + d :].reshape(count, -1, d, n_columns, units)
    numbers = (kept[:, :, :, None] * second).reshape(count, -1, units)
    return scale * blocks[:, :, :size, 0].reshape(count, -1), numbers.swapaxes(1, 2)


@quantities.register
def mask_heads(instance: settings.MaskedHeadsInstance, cell: Cell, shared: SharedData) -> Rows:
    """Largest error of an entry of any head at one width, and the width at which it is within the tolerance."""
    d = cell.data.n_features
    drawn = shared.normals(settings.MAX_UNITS, 2 * instance.heads * d * (2 * d + 1))
    for targets, numbers in zip(*_matrices(drawn, d, d, instance.scale), strict=True):
        masked = nearest_subset_sums(numbers[: instance.width // d], targets)
        needed = needed_units(numbers, targets, instance.tolerance)
        yield np.log(np.abs(masked - targets).max()), d * needed.max()


@quantities.register
def mask_stack(instance: settings.MaskedStackInstance, cell: Cell, shared: SharedData) -> Rows:
    """Largest errors of hidden states after layers whose matrices are the best masks of random ones."""
    n, d = cell.data.n_keys, cell.data.n_features
    units = instance.width // d
    drawn = shared.normals(max(n, units), d + 2 * instance.layers * d * (2 * d + 1))
    sources = _matrices(drawn[:, d:, :units], d, d, instance.scale)
    for tokens, targets, numbers in zip(drawn[:, :d, :n].swapaxes(1, 2), *sources, strict=True):
        masked = nearest_subset_sums(numbers, targets)
        stacks = [matrices.reshape(instance.layers, 2, d, d) for matrices in (targets, masked)]
        changed = (_last_states(tokens, stack, instance.normalisation, cell.bandwidth**2) for stack in stacks)
        yield (np.log(np.abs(np.subtract(*changed)).max()),)


def _last_states(states: Array, stack: Array, normalisation: str, temperature: float) -> Array:
    """Tokens (n, d) after layers of attention with residual connections, of matrices (layer, 2, d, d)."""
    for logits, values in stack:
        states = states + softmax(states @ logits @ states.T / temperature) @ states @ values
        if normalisation == "layer_norm":
            states = (states - states.mean(axis=1, keepdims=True)) / states.std(axis=1, keepdims=True)
    return states
