"""Bias of heads that see the means of consecutive keys, and of their values, with its term of order 1/n.

A key, given the means of chunks, is Gaussian around a multiple of them; a head that weighs chunks by their means
averages the regression function over that law.  Index legend: h head; q query; c chunk; t key.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simstudy.design.settings.cell import Cell
from simstudy.design.settings.mechanisms import MergeTransformation
from simstudy.design.settings.processes import AutoregressiveKeys, GaussianKeys
from simstudy.theory.functions import Array, Function, expectation, regression_function, targets
from simstudy.theory.leading import MIN_EFFECTIVE_SIZE, NEXT_TERM_LIMIT, Prediction

Times = NDArray[np.intp]

MOST_RELATIVE_VARIANCE = 1.0 / MIN_EFFECTIVE_SIZE
"""Of the sum of kernels, the parameter of the expansion: wide kernels vary little, be there few chunks."""
_SAME = 1e-12
_FAR = 1e-3
"""Correlation of keys from which on their chunks count as independent."""
_NO_VARIANCE = "merged keys: the bias for many keys is derived, and no variance"


def merged_leading_order(cell: Cell, key_projections: Array, query_projections: Array, queries: Array) -> Prediction:
    """Bias of heads over merged keys at any bandwidth, for many chunks.

    Formula :eq:`merged-keys`.

    With K_c the kernel of the mean of chunk c, m_c the mean of m over the chunk and μ = Σ E K_c m_c / Σ E K_c:
    E f = μ − Cov(Σ K_c, Σ K_c (m_c − μ)) / (Σ E K_c)² + next term.  Chunks of a time series are correlated, and a last
    shorter chunk has another law: both sums hold every chunk, and every pair of chunks whose keys are correlated.

    Parameters
    ----------
    cell, key_projections, query_projections, queries
        As of :func:`leading_order`; orthonormal projections.

    Returns
    -------
    Prediction
        Valid where, for every head and query, the relative variance of Σ K_c is at most `MOST_RELATIVE_VARIANCE`, and
        the next term moves the squared bias over the queries by `NEXT_TERM_LIMIT` at most.
    """
    target, merge = targets(cell, queries), cell.estimator.transformation
    blank = Prediction.blank(target, len(key_projections), _reason(cell, key_projections))
    if not isinstance(merge, MergeTransformation) or blank.reason:
        return blank
    regression = regression_function(cell.data.regression, cell.data.n_features)
    images = np.einsum("qd,hdp->hqp", queries, query_projections)
    heads = [
        _expand(_Chunks(cell, merge.stride, regression, projection, image))
        for projection, image in zip(key_projections, images, strict=True)
    ]
    means, relative, neglected = (np.stack(parts, axis=1) for parts in zip(*heads, strict=True))
    bias = means - target[:, None]
    if outside := _outside(cell, merge.stride, bias, relative, neglected):
        return blank._replace(reason=outside)
    return blank._replace(bias=bias, reason=_NO_VARIANCE)


class _Chunks(NamedTuple):
    """Chunks of keys as one head sees them; projection (d, p), images (q, p) of the queries."""

    cell: Cell
    stride: int
    regression: Function
    projection: Array
    images: Array

    def block(self, number: int) -> Times:
        """Times of the keys of a full chunk."""
        return np.arange(number * self.stride, (number + 1) * self.stride)

    @property
    def correlation(self) -> float:
        """Correlation of a key with the next one."""
        keys = self.cell.data.key_distribution
        return keys.coefficient if isinstance(keys, AutoregressiveKeys) else 0.0

    def kinds(self) -> list[tuple[int, Times]]:
        """Chunks of one law: how many, and the times of one of them; the last chunk may be shorter."""
        count, rest = divmod(self.cell.data.n_keys, self.stride)
        kinds = [(count, self.block(0)), (1, self.block(count)[:rest])]
        return [(number, times) for number, times in kinds if number and len(times)]

    def pairs(self) -> Iterator[tuple[int, Times, Times]]:
        """Ordered pairs of chunks that are not independent: how many of one law, and the times of both."""
        count, rest = divmod(self.cell.data.n_keys, self.stride)
        rho, last = abs(self.correlation), self.block(count)[:rest]
        reach = 1 + (int(np.log(_FAR) / (self.stride * np.log(rho))) + 1 if rho else 0)
        for lag in range(min(count, reach)):
            # Time may be reversed, so that both orders are alike.
            yield (count - lag) * (2 if lag else 1), self.block(0), self.block(lag)
        for before in range(max(count - reach + 1, 0), count) if rest else ():
            yield 1, self.block(before), last
            yield 1, last, self.block(before)
        if rest:
            yield 1, last, last

    def weighted(self, seen: list[Times], at: Times) -> tuple[Array, Array]:
        """E K of a product K of kernels of chunks, and E K m / E K with m averaged over some keys, (q,) each.

        The posterior of a Gaussian model that observes means of chunks.
        """
        rho, b2 = np.float64(self.correlation), self.cell.bandwidth**2

        def covariance(one: Times, two: Times) -> Array:
            return rho ** np.abs(one[:, None] - two)

        evidence = np.array([[covariance(one, two).mean() for two in seen] for one in seen]) + b2 * np.eye(len(seen))
        certainty = np.linalg.inv(evidence).sum()
        square = (self.images**2).sum(axis=1)
        log_det = self.images.shape[1] * np.linalg.slogdet(evidence / b2)[1]
        visible, identity = self.projection @ self.projection.T, np.eye(len(self.projection))
        shared = np.array([covariance(one, at).mean(axis=0) for one in seen])
        gains = np.linalg.solve(evidence, shared)
        means = [
            expectation(self.regression, gain.sum() * self.images @ self.projection.T, identity - gain @ own * visible)
            for gain, own in zip(gains.T, shared.T, strict=True)
        ]
        return np.exp(-0.5 * (certainty * square + log_det)), np.mean(means, axis=0)


def _expand(chunks: _Chunks) -> tuple[Array, Array, Array]:
    """Mean of the estimate, relative variance of Σ K_c, and next term of the mean; arrays (q,)."""
    single = {len(times): chunks.weighted([times], times) for _, times in chunks.kinds()}
    masses = [number * single[len(times)][0] for number, times in chunks.kinds()]
    total = np.sum(masses, axis=0)
    mean = np.sum(np.multiply(masses, [single[len(times)][1] for _, times in chunks.kinds()]), axis=0) / total
    variance, drift = np.zeros_like(total), np.zeros_like(total)
    for number, one, two in chunks.pairs():
        (mass, moved), (first, _), (second, alone) = (
            chunks.weighted([one, two], two),
            single[len(one)],
            single[len(two)],
        )
        variance += number * (mass - first * second)
        drift += number * (mass * (moved - mean) - first * second * (alone - mean))
    relative = variance / total**2
    # With d = K/E K − 1 and n = (1 + d)(m − μ), of independent chunks, the next term over the relative variance squared
    # is (E[n d²] − 3 E[n d] E[d²]) / E[d²]²; correlation inflates both by the same factors.
    times = chunks.block(0)
    (once, _), (twice, bent), (thrice, most) = (chunks.weighted([times] * power, times) for power in (1, 2, 3))
    square, cube = twice / once**2, thrice / once**3
    tilt = square * (bent - mean)
    skewness = (cube * (most - mean) - 2.0 * tilt - 3.0 * tilt * (square - 1.0)) / (square - 1.0) ** 2
    return mean - drift / total**2, relative, relative**2 * skewness


def _outside(cell: Cell, stride: int, bias: Array, relative: Array, neglected: Array) -> str:
    """Why the expansion is not good enough; empty if it is.  Arrays (q, h)."""
    if not relative.max() <= MOST_RELATIVE_VARIANCE:
        query, head = np.unravel_index(np.argmax(relative), relative.shape)
        chunks = -(-cell.data.n_keys // stride)
        return (
            f"merged keys: at query {query}, head {head} (counted from 0) the kernels of {chunks} chunks have a sum of "
            f"relative variance {relative[query, head]:.2g} (at most {MOST_RELATIVE_VARIANCE:g} allowed)"
        )
    square = (bias**2).sum(axis=0)
    moved = np.abs(2.0 * bias * neglected).sum(axis=0) + (neglected**2).sum(axis=0)
    if (moved <= NEXT_TERM_LIMIT * square).all():
        return ""
    worst = int(np.argmax(moved - NEXT_TERM_LIMIT * square))
    return (
        f"merged keys: the next term moves the squared bias of head {worst} (counted from 0) by "
        f"{moved[worst] / square[worst]:.1%} (at most {NEXT_TERM_LIMIT:.0%})"
    )


def _reason(cell: Cell, projections: Array) -> str:
    """Why the formula does not apply; empty if it does."""
    estimator, keys = cell.estimator, cell.data.key_distribution
    if not isinstance(estimator.transformation, MergeTransformation):
        return "keys are not merged"
    white = isinstance(keys, GaussianKeys) and keys.structure == "identity"
    if not (white or isinstance(keys, AutoregressiveKeys)):
        return f"merged keys: derived for standard normal or autoregressive keys, and these are {keys.label}"
    if (
        estimator.logits != "distance"
        or estimator.normaliser.kind != "softmax"
        or estimator.combination.kind == "product"
    ):
        return "merged keys: derived for softmax of distances"
    gram = projections.swapaxes(1, 2) @ projections
    if cell.heads.redrawn or np.abs(gram - np.eye(cell.heads.head_dim)).max() > _SAME:
        return "merged keys: derived for given orthonormal projections"
    return ""
