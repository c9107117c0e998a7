"""Attention heads with trained projections: gradient descent on the leave-one-out error of the ensemble.

The prediction at x_i is Σ_h f_hi with heads f_h = Σ_j w_hj v_hj, logits −|W_hᵀ(x_i − x_j)|²/(2b²), j ≠ i, and values
v_h.  These are y/H for the frozen average, ȳ/H + a_h(y − ȳ) with a learned W_O, and ȳ/H + a_h(y − ȳ) + u_hᵀx with a
learned W_V, which projects tokens (x, y).  They are linear in (a, u), which at every step are those of least squares
with weight decay.  So the gradient of the minimised loss L in W is that at fixed (a, u):
∂L/∂W_h = −(1/b²) Σ_ij c_hij (x_i − x_j)(x_i − x_j)ᵀ W_h with c_hij = (2/n) r_i w_hij (v_hj − f_hi) and residuals r_i.
Each step follows the part of the gradient that rotates the subspace, and orthonormalises columns.
"""

import numpy as np

from simstudy.attention.members import Array, Members, evaluated
from simstudy.attention.normalisers import softmax
from simstudy.data.geometry import diversity_indices
from simstudy.data.heads import key_projections, orthonormal, query_points
from simstudy.data.shared import SharedData
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.choices import TrainedLearner
from simstudy.kernels import nw_moments, project

_NUMBERS = 1 << 17  # most weights, or entries of Gram matrices, that are computed together: for the second-level cache

# Index legend: r replicate, h head, i and j pairs, d feature, p dimension of a head, k entry of a token.


@evaluated.register
def trained_heads(learner: TrainedLearner, cell: Cell, shared: SharedData) -> Members:
    """Return the estimates H f_h of heads that are trained on each replicate, starting at the heads of the cell."""
    n_heads, points = cell.heads.n_heads, query_points(cell).T
    keys, outcomes = shared.keys(cell.data.n_keys).astype(np.float64), shared.values(cell).astype(np.float64)
    start = key_projections(cell, shared.first, shared.count)
    starts = np.broadcast_to(start, (shared.count, *start.shape[-3:]))
    largest = n_heads * max(cell.data.n_keys**2, n_heads * (1 + keys.shape[1]) ** 2 * (learner.learned == "values"))
    n_parts = min(shared.count, -(-shared.count * largest // _NUMBERS))
    parts = (np.array_split(each, n_parts) for each in (keys.mT, outcomes, starts))
    fits = [train(learner, cell.bandwidth, *part) for part in zip(*parts, strict=True)]
    trained, values = np.concatenate([w for w, _ in fits]), n_heads * np.concatenate([v for _, v in fits])
    points = np.ascontiguousarray(np.broadcast_to(points, (shared.count, *points.shape)))
    queries = np.asarray(project(points, trained)).transpose(0, 3, 1, 2)
    projected = np.asarray(project(keys, trained))
    means = [
        nw_moments(projected[:, [h]], values[:, h], None, queries[:, :, [h]], cell.bandwidth, "distance")[0]
        for h in range(n_heads)
    ]
    return Members(np.concatenate(means, axis=2), None, diversity_indices(trained, cell.bandwidth), {})


def train(learner: TrainedLearner, bandwidth: float, x: Array, y: Array, projections: Array) -> tuple[Array, Array]:
    """Return the projections (…, h, d, p) after training on pairs x (…, i, d), y (…, i), and the values (…, h, j)."""
    w, tokens = projections.copy(), tokens_of(learner.learned, x, y)
    for step in range(learner.steps):
        gradient = loss_and_gradient(x, y, w, bandwidth, tokens, learner.decay)[1]
        turning = gradient - w @ (w.mT @ gradient)
        length = np.sqrt(np.square(turning).sum(axis=(-3, -2, -1), keepdims=True))
        turned = w - learner.rate * (1 - step / learner.steps) / np.where(length, length, 1.0) * turning
        w = np.where(length, orthonormal(turned), w)
    return w, fitted_values(_leave_one_out_weights(x[..., None, :, :] @ w, bandwidth), y, tokens, learner.decay)[0]


def tokens_of(learned: str, x: Array, y: Array) -> Array:
    """Return the features (…, k, j) in which learned values are linear; none for the frozen average."""
    both = np.concatenate([(y - y.mean(axis=-1, keepdims=True))[..., None, :], x.mT], axis=-2)
    return both[..., : {"projections": 0, "output": 1, "values": None}[learned], :]


def fitted_values(weights: Array, y: Array, tokens: Array, decay: float) -> tuple[Array, Array]:
    """Return the values (…, h, j) that minimise the loss for weights (…, h, i, j), and their penalty."""
    (*before, n_heads, n_pairs, _), n_tokens = weights.shape, tokens.shape[-2]
    if n_tokens == 0:
        return np.broadcast_to(y[..., None, :] / n_heads, (*before, n_heads, n_pairs)), np.zeros(before)
    read = np.moveaxis(weights @ tokens.mT[..., None, :, :], -3, -2).reshape(*before, n_pairs, n_heads * n_tokens)
    gram = read.mT @ read / n_pairs + decay * np.eye(n_heads * n_tokens)
    mean = y.mean(axis=-1, keepdims=True)
    coefficients = np.linalg.solve(gram, read.mT @ (y - mean)[..., None] / n_pairs)[..., 0]
    values = mean[..., None] / n_heads + coefficients.reshape(*before, n_heads, n_tokens) @ tokens
    return values, decay * np.square(coefficients).sum(axis=-1)


def loss_and_gradient(
    x: Array, y: Array, w: Array, bandwidth: float, tokens: Array, decay: float
) -> tuple[Array, Array]:
    """Return the penalised leave-one-out mean squared error, minimised over values, and its gradient (…, h, d, p)."""
    z = x[..., None, :, :] @ w
    weights = _leave_one_out_weights(z, bandwidth)
    values, penalty = fitted_values(weights, y, tokens, decay)
    v = values[..., None]
    f = weights @ v
    residual = f.sum(axis=-3, keepdims=True) - y[..., None, :, None]
    slope = (2.0 / y.shape[-1]) * residual
    # Σ_ij c_ij (x_i − x_j)(x_i − x_j)ᵀ is the quadratic form of a graph with weights c + cᵀ.  Rows of c sum to 0.  The
    # matrix c, a product of w and vectors, is not formed.
    rows = slope * (weights @ (v * z) - f * (weights @ z))
    masses = v * (weights.mT @ slope) - weights.mT @ (slope * f)
    columns = v * (weights.mT @ (slope * z)) - weights.mT @ (slope * f * z)
    spread = masses * z - rows - columns
    return np.square(residual).mean(axis=(-3, -2, -1)) + penalty, -(x.mT[..., None, :, :] @ spread) / bandwidth**2


def _leave_one_out_weights(z: Array, bandwidth: float) -> Array:
    """Return weights (…, h, i, j) of projected pairs z (…, h, i, p) on each other, with a diagonal of 0."""
    z = z / bandwidth
    # Terms that depend only on i do not change weights.
    weights = z @ z.mT - 0.5 * np.square(z).sum(axis=-1)[..., None, :]
    np.einsum("...ii->...i", weights)[:] = -np.inf
    return softmax(weights)
