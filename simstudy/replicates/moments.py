"""The row of moments that one batch of one cell is reduced to.

Everything that the performance measures need is a smooth function of the means of two per-replicate quantities at
each query: the head errors e_h and the products P_hg, with E e_h the bias of head h and E P_hg the second moment of
head errors.  When noise is drawn, e_h = f_h − m(x) and P_hg = e_h e_g.  When noise is integrated out
(Rao–Blackwell), e_h = c_h − m(x) and P_hg = e_h e_g + Σ_i w_hi w_gi Var(ε_i), which have the same expectations.
An expansion of mean 0 may be taken off both: its sums stand beside, and `controlled` judges them.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Moments(NamedTuple):
    """Sums over each block of consecutive replicates of a batch; products over pairs as `numpy.triu_indices` orders."""

    n_defined: NDArray[np.int64]  # (block,) Replicates with a defined estimate
    error_sum: Array  # (block, query, head)
    product_sum: Array  # (block, query, pair) Of P_hg
    statistic_sum: Array  # (block, statistic) Of geometric diversity indices, and after them statistics of the cell
    control_sum: Array  # (block, query, head + pair) Of what may be taken off errors and products; 0 without a control
    target: Array  # ([draw,] query) m(x_q), the same in every batch of a cell without a population
    failed: NDArray[np.int64]  # (n_failed,) Replicates without a defined estimate, which entered no sum


class Draw(NamedTuple):
    """All that a batch of a population tells: averages over its queries, which no further batch changes."""

    n_defined: int
    averages: tuple[Array, ...] | None  # `Averages`, matrices as pairs h ≤ g; None with fewer than two usable blocks
    failed: NDArray[np.int64]


def empty(n_blocks: int, target: Array, n_heads: int, n_statistics: int, *, controlled: bool = False) -> Moments:
    """Return the moments of no replicate."""
    n_queries, n_pairs = target.shape[-1], n_heads * (n_heads + 1) // 2
    shapes = (n_queries, n_heads), (n_queries, n_pairs), (n_statistics,), (n_queries, (n_heads + n_pairs) * controlled)
    sums = (np.zeros((n_blocks, *shape)) for shape in shapes)
    return Moments._make([np.zeros(n_blocks, np.int64), *sums, target, np.zeros(0, np.int64)])


def stack(batches: list[Moments]) -> Moments:
    """Return the blocks of consecutive batches as one row of blocks, in the order given."""
    *sums, targets, failed = zip(*batches, strict=True)
    return Moments._make([*map(np.concatenate, sums), targets[0], np.concatenate(failed)])


PLAIN, EXPANSION = "plain", "expansion"
FARTHEST = 4.0
"""Standard errors by which the mean of a control may miss 0: beyond, its closed form is wrong or its tail unseen."""
ROUNDINGS = 16.0
"""Rounding errors of estimates that count as a standard error, where replicates vary by less."""


def controlled(blocks: Moments) -> tuple[Moments, str]:
    """Return the moments less their control, unless that does not average to 0, and the name of the estimator."""
    taken = blocks.control_sum
    bare = blocks._replace(control_sum=taken[..., :0])
    if not taken.any():
        return bare, PLAIN
    n_heads = blocks.error_sum.shape[-1]
    squares = n_heads + np.flatnonzero(np.equal(*np.triu_indices(n_heads)))

    def averages(each: Array) -> Array:
        parts = each[..., :n_heads], each[..., squares], each[..., n_heads:]
        return np.stack([part.mean(axis=(1, 2)) for part in parts], axis=-1)

    sums, total = averages(taken), blocks.n_defined.sum()
    error = np.sqrt(((sums - blocks.n_defined[:, None] * (sums.sum(axis=0) / total)) ** 2).sum(axis=0))
    # Rounding errors of average errors, squares and products of errors, by the size of what they are made of.
    size = np.sqrt((blocks.product_sum[..., squares - n_heads].sum(axis=0) / total).mean())
    rounding = (size + np.sqrt((blocks.target**2).mean())) * np.array([1.0, size, size])
    error = np.maximum(error, total * ROUNDINGS * np.finfo(float).eps * rounding)
    farthest = float(np.max(np.abs(sums.sum(axis=0)) / np.maximum(error, np.finfo(float).tiny)))
    # So written, since a control that is not finite compares as false.
    if not farthest <= FARTHEST:
        return bare, f"{PLAIN}: the control variate averages to {farthest:.1f} standard errors, not to 0"
    less = blocks.error_sum - taken[..., :n_heads], blocks.product_sum - taken[..., n_heads:]
    return bare._replace(error_sum=less[0], product_sum=less[1]), EXPANSION
