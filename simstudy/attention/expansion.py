"""Control by expansion: moments of heads to second order in averages over keys, with known means at every n.

The theory that runs are compared with derives its own expectations.

Given the keys, head h estimates c_h = Σ_i K_hi m(X_i) / S_h, S_h = Σ_i K_hi, and G_hg is the covariance of two heads.
With μ_h = E[K_h m] / E K_h, b_h = μ_h − m(x) and the leading covariance G⁰_hg = σ² E[K_h K_g] / (n E K_h · E K_g),

- a_h = S_h / (n E K_h) − 1, l_h = (1 + a_h) (c_h − μ_h) and γ_hg = G_hg (1 + a_h) (1 + a_g) / G⁰_hg − 1 are averages
  over independent keys, each of mean 0,
- c_h − μ_h = l_h / (1 + a_h), G_hg = G⁰_hg (1 + γ_hg) / ((1 + a_h) (1 + a_g)).

The terms of first and second order in a, l and γ, less their means, are taken off the error e_h = c_h − m(x) and the
product P_hg = e_h e_g + G_hg.  That changes no expectation, whatever factors are put
before the terms.

Where few keys carry weight the terms have heavy tails, which c_h and G_hg have not.  The measure of this is
u_hg = E[K_h² K_g²] / (n (E[K_h K_g])²), the variance of G_hg (1 + a_h) (1 + a_g) over its squared mean but for 1/n.
Terms of first order get the factor 1 / (1 + u³) and of second order 1 / (1 + 3 u²): both are near 1 at many keys.

Nothing is taken off where u_hh ≥ 1, or where E K_h⁸ ≥ n (E K_h⁴)², for one head at one query.  The latter is where the
variance of the terms is that of rare keys.  Their share in the known means is not seen by replicates, so that intervals
were too short with dot products (64 to 1000 keys).  Then nothing is taken off at any query: errors at two queries
cancel in part, and would not if one of them were corrected alone.

For keys X ~ N(0, Σ), a kernel times the density of a key is a Gaussian again, and so is a product of kernels.  m is a
polynomial of degree 2 plus waves A cos(k·x + φ), and of such functions mean and variance under any Gaussian are closed.
Of rows of data that keys are drawn from, the expectations are sums over the rows.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simstudy.attention.members import pairs_of
from simstudy.data.heads import key_projections, query_points, query_projections
from simstudy.data.regression import Waves, as_waves, at_queries, at_rows, evaluate
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.processes import GaussianKeys, Keys
from simstudy.kernels.devices import is_there

Array = NDArray[np.float64]

# Index legend: r replicate, q query, h and g head, k dimension of one head or of two, j feature, a wave.

_LARGEST_EXPONENT = 1e4
"""Beyond, rounding decides differences of logarithms, and no key is near."""
_SMALLEST = float(np.finfo(float).tiny)
"""Of heads that see no row in common, so that logarithms are finite."""
_LARGEST_SHARE = 100.0
"""Logarithm of u beyond which its factors are 0."""


class Expectations(NamedTuple):
    """Expectations over one key of a cell.

    Attributes
    ----------
    log_mass : (query, head)
        ln E K_h.
    mean, bias : (query, head)
        μ_h and μ_h − m(x_q).
    tilt : (query, head)
        E[K_h² (m − μ_h)] / E K_h².
    log_product : (query, pair)
        ln E[K_h K_g], over pairs h ≤ g in the order of `members.pairs_of`.
    log_fourth : (query, pair)
        ln E[K_h² K_g²].
    log_first, log_second : (query, pair)
        ln E[K_h² K_g] and ln E[K_h K_g²].
    log_eighth : (query, head)
        ln E K_h⁸.
    spread : (query, pair)
        E[K_h K_g (m − μ_h)(m − μ_g)] / E[K_h K_g].
    """

    log_mass: Array
    mean: Array
    bias: Array
    tilt: Array
    log_product: Array
    log_fourth: Array
    log_first: Array
    log_second: Array
    log_eighth: Array
    spread: Array


class Known(NamedTuple):
    """What all replicates of a cell have in common."""

    log_scale: Array  # (query, head) ln (n E K_h)
    mean: Array  # (query, head)
    bias: Array  # (query, head)
    first: Array  # (query, pair) factor on terms of first order
    second: Array  # (query, pair) factor on terms of second order
    leading: Array  # (query, pair) G⁰_hg; 0 where the variance of the noise is not the same at all keys
    error_mean: Array  # (query, head) mean of the terms of e_h
    product_mean: Array  # (query, pair) mean of the terms of P_hg that do not come through e_h and e_g


class _Tilted(NamedTuple):
    """Laws of a key, in coordinates in which it is N(0, I), under kernels as densities: normal ones."""

    log_mass: Array  # (law, q) ln of the expectation of the kernel
    mean: Array  # (law, q, j)
    lost: Array  # (law, j, direction): the covariance is I less these times their transpose


def expansion(cell: Cell, means: Array, gram: Array, log_mass: Array) -> Array | None:
    """Return what is taken off errors and products.

    Parameters
    ----------
    cell
        One that is `Cell.controlled`.
    means, log_mass : (replicate, query, head)
        c_h and ln S_h.
    gram : (replicate, query, head, head)
        G_hg.

    Returns
    -------
    (replicate, query, head + pair)
        On a GPU if all three arrays are; None where `known_of` says why.
    """
    known, n_heads = known_of(cell), means.shape[2]
    if isinstance(known, str):
        return None
    if is_there(log_mass):
        from simstudy.kernels import cuda

        return cuda.expand(means, gram, log_mass, *known)
    rows, columns = pairs_of(n_heads)
    own = np.flatnonzero(rows == columns)
    scale = np.exp(log_mass - known.log_scale)
    a = scale - 1.0
    linear = scale * (means - known.mean)
    first, second = known.first[:, own], known.second[:, own]
    errors = linear * (first - a * second) - known.error_mean
    products = known.bias[:, rows] * errors[..., columns] + known.bias[:, columns] * errors[..., rows]
    one, other, both = a[..., rows], a[..., columns], linear[..., rows] * linear[..., columns]
    total = one + other
    if known.leading.any():
        packed = gram.reshape(*gram.shape[:2], -1)[..., rows * n_heads + columns]
        gap = packed * scale[..., rows] * scale[..., columns] - known.leading * (1.0 + total)
        products += known.first * gap
        both -= gap * total + known.leading * one * other
    products += known.second * both - known.product_mean
    return np.concatenate([errors, products], axis=-1)


# Every batch of a cell asks again.
@functools.lru_cache(maxsize=512)
def known_of(cell: Cell) -> Known | str:
    """Return what is known of a cell, or why there is no control variate."""
    found, n = expectations(cell) if cell.has_closed_forms else over_rows(cell), cell.data.n_keys
    rows, columns = pairs_of(cell.heads.n_heads)
    own, of_pairs = rows == columns, found.log_mass[:, rows] + found.log_mass[:, columns]
    if np.abs(of_pairs).max() > _LARGEST_EXPONENT:
        return "at some query point all weights are so small or large that rounding decides"
    # As logarithms, since kernels may catch hardly any key.
    log_share = found.log_fourth - 2.0 * found.log_product - math.log(n)
    log_kurtosis = found.log_eighth - 2.0 * found.log_fourth[:, own] - math.log(n)
    if not ((log_share[:, own] < 0.0) & (log_kurtosis < 0.0)).all():
        return "at some query point few keys carry weight, where a control variate would have heavy tails"
    share = np.exp(np.minimum(log_share, _LARGEST_SHARE))
    product = np.exp(found.log_product - of_pairs)
    first = np.exp(found.log_first - of_pairs - found.log_mass[:, rows])
    second = np.exp(found.log_second - of_pairs - found.log_mass[:, columns])
    square = product[:, own]
    leading = product * (cell.data.noise_sd**2 / n if cell.even_noise else 0.0)
    # Of a², aa' and a'², then of γ a and γ a', all times n.
    of_masses = square[:, rows] + square[:, columns] + product - 3.0
    of_masses -= (first + second) / product - 2.0
    once, twice = 1.0 / (1.0 + share**3), 1.0 / (1.0 + 3.0 * share**2)
    error_mean = -twice[:, own] * square * found.tilt
    product_mean = twice * (product * found.spread + leading * of_masses)
    return Known(
        found.log_mass + math.log(n), found.mean, found.bias, once, twice, leading, error_mean / n, product_mean / n
    )


def over_rows(cell: Cell) -> Expectations:
    """Expectations over the rows of data, each as likely as any other, that the keys of a cell are drawn from."""
    projections, targets = key_projections(cell) / cell.bandwidth, at_queries(cell)
    images = np.einsum("qj,hjk->qhk", query_points(cell), query_projections(cell)) / cell.bandwidth
    projected, m = projections.swapaxes(1, 2) @ cell.rows.keys.T, at_rows(cell)
    rows, columns = pairs_of(len(projections))
    found = []
    for image, target in zip(images, targets, strict=True):
        logits = (image[:, None] @ projected)[:, 0]
        if cell.estimator.logits == "distance":
            logits -= 0.5 * ((projected**2).sum(axis=1) + (image**2).sum(axis=1, keepdims=True))
        offset = logits.max(axis=1)
        k = np.exp(logits - offset[:, None])
        moved, square, both = k * (m - target), k**2, offset[rows] + offset[columns]
        kernel, product, product_gap, product_square, first, fourth = (
            each / len(m) + _SMALLEST
            for each in (k.sum(axis=1), k @ k.T, k @ moved.T, moved @ moved.T, square @ k.T, square @ square.T)
        )
        bias, of = moved.mean(axis=1) / kernel, product[rows, columns]
        spread = product_square[rows, columns] - (bias[rows] + bias[columns]) * product_gap[rows, columns]
        found.append((
            np.log(kernel) + offset, bias + target, bias, np.diagonal(product_gap) / np.diagonal(product) - bias,
            np.log(of) + both, np.log(fourth[rows, columns]) + 2.0 * both,
            np.log(first[rows, columns]) + both + offset[rows],
            np.log(first[columns, rows]) + both + offset[columns], np.log((square**4).mean(axis=1)) + 8.0 * offset,
            spread / of + bias[rows] * bias[columns],
        ))  # fmt: skip
    return Expectations(*map(np.stack, zip(*found, strict=True)))


def expectations(cell: Cell) -> Expectations:
    """Return the expectations of kernels, and of the regression function under them, at all queries of a cell.

    Raises
    ------
    TypeError
        If keys are not Gaussian, or the regression function is neither a polynomial nor waves.
    """
    points, projections = query_points(cell), key_projections(cell)
    images = np.einsum("qj,hjk->hqk", points, query_projections(cell))
    root = _root(cell.data.key_distribution, cell.data.n_features)
    projections = root.T @ projections
    m = as_waves(cell.data.regression, cell.data.n_features)
    curvature = root.T @ m.curvature @ root
    m = m._replace(gradient=root.T @ m.gradient, curvature=curvature, waves=m.waves @ root)

    def laws(*powers: tuple[NDArray[np.int64], float]) -> _Tilted:
        # A power of a kernel is that of keys and queries times its root, a product that of all dimensions together.
        of = (np.concatenate([math.sqrt(r) * each[h] for h, r in powers], axis=-1) for each in (projections, images))
        return _tilted(cell, *of)

    rows, columns = pairs_of(cell.heads.n_heads)
    alone, products = laws((np.arange(cell.heads.n_heads), 1.0)), laws((rows, 1.0), (columns, 1.0))
    mean = _mean_and_variance(m, alone)[0]
    one, other, own = mean[:, rows], mean[:, columns], rows == columns

    centre, variance = _mean_and_variance(m, products)
    spread, tilt = variance + (centre - one) * (centre - other), centre[:, own] - mean
    bias = mean - evaluate(cell.data.regression, np.ascontiguousarray(points.T))[:, None]
    fourth, first, second = (laws((rows, r), (columns, s)) for r, s in ((2.0, 2.0), (2.0, 1.0), (1.0, 2.0)))
    return Expectations(
        alone.log_mass.T, mean, bias, tilt, products.log_mass.T, fourth.log_mass.T, first.log_mass.T,
        second.log_mass.T, laws((np.arange(cell.heads.n_heads), 8.0)).log_mass.T, spread,
    )  # fmt: skip


def _root(keys: Keys, d: int) -> Array:
    """R with R Rᵀ = Σ: a key is R z, z ~ N(0, I)."""
    if not isinstance(keys, GaussianKeys):
        raise TypeError(f"no expectations under {keys!r}")
    if keys.structure == "identity":
        return np.eye(d)
    gaps = np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
    covariance = keys.correlation ** (gaps if keys.structure == "autoregressive" else np.sign(gaps))
    return np.asarray(np.linalg.cholesky(covariance), np.float64)


def _tilted(cell: Cell, projections: Array, images: Array) -> _Tilted:
    """Return laws under exp(−|a − Wᵀz|²/(2b²)) or exp(a·Wᵀz/b²), W (law, j, k) and a (law, q, k): of heads or pairs."""
    scaled, targets = projections / cell.bandwidth, images / cell.bandwidth
    if cell.estimator.logits == "dot_product":
        mean = targets @ scaled.swapaxes(1, 2)
        return _Tilted(0.5 * (mean**2).sum(axis=2), mean, np.zeros((*scaled.shape[:2], 0)))
    # By singular values, since two heads that coincide leave a singular matrix beside b² I.
    n_features, n_dims = scaled.shape[1:]
    left, sizes, right = np.linalg.svd(scaled, full_matrices=n_features < n_dims)
    turned, most = targets @ right.swapaxes(1, 2), sizes.shape[1]
    shrinkage = np.ones((len(scaled), 1, n_dims))
    shrinkage[:, 0, :most] /= 1.0 + sizes**2
    exponent = -0.5 * (turned**2 * shrinkage).sum(axis=2)
    log_mass = exponent + 0.5 * np.log(shrinkage).sum(axis=2)
    kept = sizes[:, None] * shrinkage[..., :most]
    mean = (turned[..., :most] * kept) @ left.swapaxes(1, 2)
    return _Tilted(log_mass, mean, left * np.sqrt(sizes[:, None] * kept))


def _mean_and_variance(m: Waves, law: _Tilted) -> tuple[Array, Array]:
    """Mean and variance (q, law) of a function under tilted laws.

    With z = ν + y, y ~ N(0, T): E cos(k·y + θ) = e^{−kᵀTk/2} cos θ, and its derivatives in k give the products with y
    (Stein's lemma).  Means are taken off before anything is added.
    """
    covariance = np.eye(law.mean.shape[2]) - law.lost @ law.lost.swapaxes(1, 2)
    slope, bent = m.gradient + 2.0 * law.mean @ m.curvature, m.curvature @ covariance
    mean = law.mean @ m.gradient + ((law.mean @ m.curvature) * law.mean).sum(axis=2)
    mean += np.trace(bent, axis1=1, axis2=2)[:, None]
    variance = ((slope @ covariance) * slope).sum(axis=2) + 2.0 * (bent * bent.swapaxes(1, 2)).sum(axis=(1, 2))[:, None]
    along = m.waves @ covariance
    gram = along @ m.waves.T
    half = 0.5 * np.diagonal(gram, axis1=1, axis2=2)
    sizes, angles = (m.amplitudes * np.exp(-half))[:, None], law.mean @ m.waves.T + m.phases
    cosines, sines = np.cos(angles), np.sin(angles)
    curved = ((along @ m.curvature) * along).sum(axis=2)[:, None]
    variance -= 2.0 * ((cosines * curved + (slope @ along.swapaxes(1, 2)) * sines) * sizes).sum(axis=2)
    ends, amplitudes = half[:, :, None] + half[:, None], np.outer(m.amplitudes, m.amplitudes)
    alike, opposite = (amplitudes * (np.exp(sign * gram - ends) - np.exp(-ends)) for sign in (1.0, -1.0))
    variance += 0.5 * ((cosines @ (alike + opposite)) * cosines + (sines @ (alike - opposite)) * sines).sum(axis=2)
    return (mean + (cosines * sizes).sum(axis=2)).T, variance.T
