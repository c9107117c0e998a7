"""Moments to which one batch of one cell is reduced.

Performance measures are smooth functions of the means of two quantities of a replicate at each query: head errors e_h
and products P_hg.  E e_h is the bias of head h and E P_hg the second moment of head errors.  If noise is drawn,
e_h = f_h − m(x) and P_hg = e_h e_g.  If noise is integrated out (Rao–Blackwell), e_h = c_h − m(x) and
P_hg = e_h e_g + Σ_i w_hi w_gi Var(ε_i), with the same expectations.  Control variates of both are summed separately;
`controlled` decides whether they are subtracted.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Moments(NamedTuple):
    """Sums over blocks of consecutive replicates of a batch; pairs h ≤ g in the order of `numpy.triu_indices`."""

    n_defined: NDArray[np.int64]  # (block,) Replicates with a defined estimate
    error_sum: Array  # (block, query, head)
    product_sum: Array  # (block, query, pair) Sums of P_hg
    statistic_sum: Array  # (block, statistic) Sums of geometric diversity indices, then of the statistics of the cell
    control_sum: Array  # (block, query, head + pair) Sums of control variates of errors and products; empty without
    target: Array  # ([draw,] query) m(x_q), equal in all batches of a cell without a population
    failed: NDArray[np.int64]  # (n_failed,) Numbers of replicates without a defined estimate, which are in no sum


class Draw(NamedTuple):
    """Reduction of a batch of a population: averages over its queries, which do not depend on other batches."""

    n_defined: int
    averages: tuple[Array, ...] | None  # `Averages`, matrices as pairs h ≤ g; None with fewer than two usable blocks
    failed: NDArray[np.int64]


def empty(n_blocks: int, target: Array, n_heads: int, n_statistics: int, *, controlled: bool = False) -> Moments:
    """Return moments before any replicate."""
    n_queries, n_pairs = target.shape[-1], n_heads * (n_heads + 1) // 2
    shapes = (n_queries, n_heads), (n_queries, n_pairs), (n_statistics,), (n_queries, (n_heads + n_pairs) * controlled)
    sums = (np.zeros((n_blocks, *shape)) for shape in shapes)
    return Moments._make([np.zeros(n_blocks, np.int64), *sums, target, np.zeros(0, np.int64)])


def stack(batches: list[Moments]) -> Moments:
    """Return the blocks of consecutive batches in one array, in the given order."""
    *sums, targets, failed = zip(*batches, strict=True)
    return Moments._make([*map(np.concatenate, sums), targets[0], np.concatenate(failed)])


PLAIN, EXPANSION = "plain", "expansion"
FARTHEST = 4.0
"""Most standard errors of the mean of a control from 0; beyond, its mean is wrong or its tail was not sampled."""
ROUNDINGS = 16.0
"""Least standard error, in rounding errors of estimates, for replicates that vary less."""


def controlled(blocks: Moments) -> tuple[Moments, str]:
    """Return moments minus their control, unless its mean differs from 0, and the name of the estimator."""
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
    # Rounding errors of mean errors, squares and products, by the size of their terms.
    size = np.sqrt((blocks.product_sum[..., squares - n_heads].sum(axis=0) / total).mean())
    rounding = (size + np.sqrt((blocks.target**2).mean())) * np.array([1.0, size, size])
    error = np.maximum(error, total * ROUNDINGS * np.finfo(float).eps * rounding)
    farthest = float(np.max(np.abs(sums.sum(axis=0)) / np.maximum(error, np.finfo(float).tiny)))
    # Negated, so that a control that is not finite is rejected.
    if not farthest <= FARTHEST:
        return bare, f"{PLAIN}: the control variate averages to {farthest:.1f} standard errors, not to 0"
    errors, products = blocks.error_sum - taken[..., :n_heads], blocks.product_sum - taken[..., n_heads:]
    return bare._replace(error_sum=errors, product_sum=products), EXPANSION
