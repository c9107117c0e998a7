"""Search for counterexamples to "more diverse heads have the smaller mean squared error", under theory.

Of two ensembles the second shall be more diverse, by a gap, and its predicted error as large as can be relative to that
of the first.  The subspaces of both are searched together: matrices are free, their orthonormal factors (QR) are the
heads, so that every step ends on the Grassmann manifold (Absil, Mahony and Sepulchre 2008, section 4.1).
Index legend: k ensemble (0 less, 1 more diverse); h head; d feature; p dimension of a head.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from simstudy.data.geometry import GEOMETRIC_INDICES, diversity_indices, orthonormal_bases
from simstudy.data.heads import query_points
from simstudy.design.own_code import own_pieces
from simstudy.design.settings.cell import Cell
from simstudy.errors import UserError
from simstudy.theory import leading_order

Array = NDArray[np.float64]

STEP = 1e-7
"""Step of the differences that give the gradients; entries of the matrices are of size 1."""
MARGIN = 1e-3
"""Share of the gap that is asked for beyond it, as the solver meets constraints to its tolerance only."""


class Counterexample(NamedTuple):
    """Two ensembles, the less diverse first: heads (2, H, d, p), their index (2,) and error at leading order (2,)."""

    heads: Array
    diversity: Array
    mse: Array

    @property
    def ratio(self) -> float:
        """Error of the more diverse over that of the less diverse ensemble: above 1, a counterexample."""
        return float(self.mse[1] / self.mse[0])


def worst_pair(cell: Cell, index: str, gap: float, *, seed: int = 0, n_starts: int = 8) -> Counterexample:
    """Return the pair of ensembles that speaks most against the claim, of several local optima.

    The cell states the data, the numbers of heads and of their dimensions, the estimator and the queries; its own heads
    do not matter. The index follows from the heads alone; the gap, positive, is its least difference. The same answer
    of several starts is a sign, not a proof, that no worse pair exists. UserError if leading order does not apply, or
    no pair with this gap is found.
    """
    if index not in GEOMETRIC_INDICES:
        raise UserError(f"index {index!r}: not an index of heads alone; use one of {', '.join(GEOMETRIC_INDICES)}")
    if cell.weights is None:
        raise UserError("combination: the search needs fixed weights of heads; choose a cell with others")
    if any(own_pieces(cell)):
        raise UserError("cell: theory knows nothing of functions of your own; choose a cell without")
    problem = _Problem(cell, index, gap)
    rng = np.random.default_rng(seed)
    found = [problem.solve(rng.standard_normal(problem.shape)) for _ in range(n_starts)]
    valid = [pair for pair in found if pair is not None]
    if not valid:
        raise UserError(
            f"no two ensembles with a gap of {gap:g} in {index} were found where leading order holds; "
            f"lower the gap, or choose a cell with more keys. Last reason: {problem.reason or 'the gap'}"
        )
    return max(valid, key=lambda pair: pair.ratio)


class _Problem:
    """ln error of the more minus that of the less diverse ensemble, to be maximised under the gap."""

    def __init__(self, cell: Cell, index: str, gap: float) -> None:
        self._cell, self._gap, self._weights = cell, gap, np.array(cell.weights)
        self._position = GEOMETRIC_INDICES.index(index)
        self._queries = query_points(cell)
        self.shape = (2, cell.heads.n_heads, cell.data.n_features, cell.heads.head_dim)
        self.reason = ""

    def solve(self, start: Array) -> Counterexample | None:
        """Return the local optimum from a start; None if leading order or the gap fails there."""
        result = minimize(
            lambda x: self._contrast(x, self._log_error), start.ravel(), method="SLSQP", jac=True,
            options={"maxiter": 150, "ftol": 1e-6},
            constraints={
                "type": "ineq", "fun": lambda x: -self._contrast(x, self._index)[0] - self._gap * (1 + MARGIN),
                "jac": lambda x: -self._contrast(x, self._index)[1],
            },
        )  # fmt: skip
        heads = orthonormal_bases(result.x.reshape(self.shape))
        diversity = np.array([self._index(each, 0, each[:0])[0] for each in heads])
        mse = np.exp([self._log_error(each, 0, each[:0])[0] for each in heads])
        holds = np.isfinite(mse).all() and diversity[1] - diversity[0] >= self._gap
        return Counterexample(heads, diversity, mse) if holds else None

    def _contrast(self, x: Array, measure: Callable[[Array, int, Array], Array]) -> tuple[float, Array]:
        """Measure of the less minus that of the more diverse ensemble, and its gradient by forward differences."""
        matrices = x.reshape(self.shape)
        n_entries = matrices[0, 0].size
        steps = STEP * np.eye(n_entries).reshape(n_entries, *matrices.shape[2:])
        gradient, total = np.zeros((2, self.shape[1], n_entries)), 0.0
        for k, sign in enumerate((1.0, -1.0)):
            for h, matrix in enumerate(matrices[k]):
                values = measure(matrices[k], h, matrix + steps)
                gradient[k, h] = sign * (values[1:] - values[0]) / STEP
            total += sign * float(values[0])
        return total, gradient.ravel()

    def _log_error(self, matrices: Array, h: int, moved: Array) -> Array:
        """ln error of an ensemble, then with each of the moved heads in the place of head h: (1 + moved,)."""
        heads = orthonormal_bases(np.concatenate([matrices, moved]))
        # All in one call, as the pairs of heads that stay are then predicted once.
        prediction = leading_order(self._cell, heads, heads, self._queries)
        self.reason = prediction.reason or self.reason
        members = self._members(len(matrices), h, len(moved))
        bias = prediction.bias[:, members] @ self._weights + (self._weights.sum() - 1) * prediction.target[:, None]
        covariance = prediction.covariance[:, members[:, :, None], members[:, None, :]]
        variance = np.einsum("qmhg,h,g->qm", covariance, self._weights, self._weights)
        logarithm: Array = np.log((bias**2 + variance).mean(axis=0))
        return logarithm

    def _index(self, matrices: Array, h: int, moved: Array) -> Array:
        """The index of an ensemble, then with each of the moved heads in the place of head h: (1 + moved,)."""
        ensembles = np.concatenate([matrices, moved])[self._members(len(matrices), h, len(moved))]
        return diversity_indices(ensembles, self._cell.bandwidth)[..., self._position]

    def _members(self, n_heads: int, h: int, n_moved: int) -> NDArray[np.intp]:
        members = np.tile(np.arange(n_heads), (1 + n_moved, 1))
        members[1:, h] = n_heads + np.arange(n_moved)
        return members
