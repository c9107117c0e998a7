"""Attention heads whose projections follow the data: gradient descent on the leave-one-out error of the ensemble.

For heads f_h = Σ_j w_hj y_j with logits −|W_hᵀ(x_i − x_j)|²/(2b²), j ≠ i, and the mean squared error L of their
average, ∂L/∂W_h = −(1/b²) Σ_ij c_hij (x_i − x_j)(x_i − x_j)ᵀ W_h with c_hij = (2/nH)(f̄_i − y_i) w_hij (y_j − f_hi).
Each step goes down the part of the gradient that turns the subspace, and restores orthonormal columns.
"""

from __future__ import annotations

import numpy as np

from simstudy.attention.members import Array, Members, prepared
from simstudy.data.geometry import diversity_indices
from simstudy.data.heads import key_projections, query_points
from simstudy.data.shared import SharedData
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.ensembles import TrainedLearner
from simstudy.kernels import nw_estimates, project

# Index legend: r replicate, h head, i and j pairs, d feature, p dimension of a head.


class TrainedHeads:
    """Heads trained on the data of each replicate, from the arrangement of the cell on."""

    def __init__(self, learner: TrainedLearner, cell: Cell) -> None:
        self.learner, self.cell = learner, cell
        self._points = np.ascontiguousarray(query_points(cell).T[None])

    def evaluate(self, shared: SharedData) -> Members:
        """Return the estimates of the trained heads at all queries in the replicates of the data."""
        cell = self.cell
        keys, values = shared.keys(cell.data.n_keys).astype(np.float64), shared.values(cell).astype(np.float64)
        start = key_projections(cell, shared.first, shared.count)
        starts = np.broadcast_to(start, (shared.count, *start.shape[-3:]))
        trained = np.stack([self.train(x.T, y, w) for x, y, w in zip(keys, values, starts, strict=True)])
        points = np.ascontiguousarray(np.broadcast_to(self._points, (shared.count, *self._points.shape[1:])))
        queries = np.ascontiguousarray(np.asarray(project(points, trained)).transpose(0, 3, 1, 2))
        means = nw_estimates(project(keys, trained), values, queries, cell.bandwidth, "distance")
        return Members(means, None, diversity_indices(trained, cell.bandwidth), {})

    def train(self, x: Array, y: Array, projections: Array) -> Array:
        """Return the projections (h, d, p) after training on pairs x (i, d), y (i,)."""
        learner, w = self.learner, projections.copy()
        for step in range(learner.steps):
            _, gradient = loss_and_gradient(x, y, w, self.cell.bandwidth)
            turning = gradient - w @ (w.swapaxes(1, 2) @ gradient)
            length = np.linalg.norm(turning)
            if length == 0.0:
                break
            w, r = np.linalg.qr(w - learner.rate * (1 - step / learner.steps) / length * turning)
            w *= np.sign(np.diagonal(r, axis1=1, axis2=2))[:, None, :]
        return w


prepared.register(TrainedLearner, TrainedHeads)


def loss_and_gradient(x: Array, y: Array, w: Array, bandwidth: float) -> tuple[float, Array]:
    """Leave-one-out mean squared error of the average of heads, and its gradient (h, d, p).

    Parameters
    ----------
    x : (i, d)
    y : (i,)
    w : (h, d, p)
    bandwidth
        b > 0.
    """
    n, n_heads = len(y), len(w)
    z = x @ w
    squares = (z * z).sum(axis=2)
    logits = (2.0 * z @ z.swapaxes(1, 2) - squares[:, :, None] - squares[:, None, :]) / (2.0 * bandwidth**2)
    logits[:, range(n), range(n)] = -np.inf
    weights = np.exp(logits - logits.max(axis=2, keepdims=True))
    weights /= weights.sum(axis=2, keepdims=True)
    f = weights @ y
    residual = f.mean(axis=0) - y
    c = (2.0 / (n * n_heads)) * residual[:, None] * weights * (y - f[:, :, None])
    # Σ_ij c_ij (x_i − x_j)(x_i − x_j)ᵀ is the quadratic form of a graph with the symmetric weights c + cᵀ.
    symmetric = c + c.swapaxes(1, 2)
    spread = symmetric.sum(axis=2)[:, :, None] * z - symmetric @ z
    return float((residual**2).mean()), -(x.T @ spread) / bandwidth**2
