"""Control variates: the linear part of the estimates of heads, whose expectations are known at every n.

The theory that runs are compared with derives its own expectations.

Given the keys, head h estimates c_h = Σ_i K_hi m(X_i) / S_h, S_h = Σ_i K_hi.  About μ_h = E[K_h m] / E K_h its linear
part is L_h = S_h (c_h − μ_h) / (n E K_h), an average over independent keys of expectation 0 with
E[L_h L_g] = C_hg / n, C_hg = E[K_h K_g (m − μ_h)(m − μ_g)] / (E K_h · E K_g).  With b_h = μ_h − m(x) and factors β
and γ that no key decides,

- β_h L_h may be taken off the error e_h, and
- b_h β_g L_g + b_g β_h L_h + γ_hg β_h β_g (L_h L_g − C_hg / n) off the product P_hg,

which changes no expectation; with factors of 1 it leaves what is of higher order in 1/n.  Where kernels catch few keys
L has heavy tails that c_h has not, so β_h = 1 / (1 + v_h), v_h = Var(S_h) / (E S_h)², and γ_hg = (γ_h γ_g)^(1/2),
γ_h = 1 / (1 + E K_h⁴ / (n (E K_h²)²)), the same for squares.  Either is near 1 for many keys and 0 for few.

For keys X ~ N(0, Σ), a kernel times the density of a key is a Gaussian again.  m is a polynomial of degree 2 plus waves
A cos(k·x + φ), and of such functions mean and variance under any Gaussian are closed.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simstudy.attention.members import Control, pairs_of
from simstudy.data.heads import key_projections, query_points, query_projections
from simstudy.data.regression import Waves, as_waves, evaluate
from simstudy.design.settings import GaussianKeys, Keys
from simstudy.design.settings.cell import Cell

Array = NDArray[np.float64]

# Index legend: r replicate, q query, h and g head, k dimension of one head or of two, j feature, a wave.

_LARGEST_EXPONENT = 1e4
"""Beyond, rounding decides differences of logarithms, and no key is near: β is 0."""


class Expectations(NamedTuple):
    """Expectations over one key of a cell.

    Attributes
    ----------
    log_mass : (query, head)
        ln E K_h.
    mean : (query, head)
        μ_h.
    bias : (query, head)
        μ_h − m(x_q).
    log_fourth : (query, head)
        ln E K_h⁴.
    log_product : (query, pair)
        ln E[K_h K_g], over pairs h ≤ g in the order of `members.pairs_of`.
    spread : (query, pair)
        E[K_h K_g (m − μ_h)(m − μ_g)] / E[K_h K_g].
    """

    log_mass: Array
    mean: Array
    bias: Array
    log_fourth: Array
    log_product: Array
    spread: Array


class _Known(NamedTuple):
    """What all replicates of a cell have in common."""

    log_factor: Array  # (query, head) ln (β_h / (n E K_h))
    mean: Array  # (query, head)
    bias: Array  # (query, head)
    share: Array  # (query, pair) γ_hg
    square: Array  # (query, pair) γ_hg β_h β_g C_hg / n


class _Tilted(NamedTuple):
    """The law of a key, in coordinates in which it is N(0, I), under a kernel as its density: N(mean, covariance)."""

    log_mass: Array  # (q,) ln of the expectation of the kernel
    mean: Array  # (q, j)
    covariance: Array  # (j, j)


def linear_parts(cell: Cell, means: Array, log_mass: Array) -> Control:
    """Return the linear parts of the estimates of replicates.

    Parameters
    ----------
    cell
        Fixed softmax heads on independent Gaussian keys: see `design.feasibility`.
    means : (replicate, query, head)
        c_h.
    log_mass : (replicate, query, head)
        ln S_h.
    """
    known = _known(cell)
    rows, columns = pairs_of(means.shape[-1])
    linear = np.exp(log_mass + known.log_factor) * (means - known.mean)
    first, second = linear.take(rows, axis=-1), linear.take(columns, axis=-1)
    # In place, since arrays of pairs are large.
    products = known.share * second
    products += known.bias[:, columns]
    products *= first
    second *= known.bias[:, rows]
    products += second
    products -= known.square
    return Control(linear, products)


# Every batch of a cell asks again.
@functools.lru_cache(maxsize=256)
def _known(cell: Cell) -> _Known:
    found, n = expectations(cell), cell.data.n_keys
    rows, columns = pairs_of(cell.heads.n_heads)
    square = found.log_product[:, rows == columns]
    # As logarithms, since kernels may catch hardly any key: 1 + v = 1 − 1/n + E K² / (n (E K)²).
    relative = square - 2.0 * found.log_mass - math.log(n)
    log_factor = -found.log_mass - (np.logaddexp(math.log1p(-1.0 / n), relative) if n > 1 else relative)
    log_factor[np.abs(found.log_mass) > _LARGEST_EXPONENT] = -np.inf
    log_share = -0.5 * np.logaddexp(0.0, found.log_fourth - 2.0 * square - math.log(n))
    share = log_share[:, rows] + log_share[:, columns]
    both = share + found.log_product + log_factor[:, rows] + log_factor[:, columns] - math.log(n)
    return _Known(log_factor - math.log(n), found.mean, found.bias, np.exp(share), np.exp(both) * found.spread)


def expectations(cell: Cell) -> Expectations:
    """Return the expectations of kernels, and of the regression function under them, at all queries of a cell.

    Raises
    ------
    TypeError
        If keys are not Gaussian, or the regression function has bumps, which are neither polynomials nor waves.
    """
    points, projections = query_points(cell), key_projections(cell)
    images = np.einsum("qj,hjk->hqk", points, query_projections(cell))
    root = _root(cell.data.key_distribution, cell.data.n_features)
    projections = root.T @ projections
    m = _in_coordinates(as_waves(cell.data.regression, cell.data.n_features), root)
    alone = [_tilted(cell, w, a) for w, a in zip(projections, images, strict=True)]
    mean = np.stack([_mean_and_variance(m, law)[0] for law in alone], axis=1)
    log_product, spread = [], []
    for h, g in zip(*pairs_of(cell.heads.n_heads), strict=True):
        law = _tilted(cell, *(np.concatenate([of[h], of[g]], axis=1) for of in (projections, images)))
        centre, variance = _mean_and_variance(m, law)
        log_product.append(law.log_mass)
        spread.append(variance + (centre - mean[:, h]) * (centre - mean[:, g]))
    bias = mean - evaluate(cell.data.regression, np.ascontiguousarray(points.T))[:, None]
    log_mass = np.stack([law.log_mass for law in alone], axis=1)
    # The logits of K⁴ are those of K for twice the keys and twice the queries.
    fourth = [_tilted(cell, 2.0 * w, 2.0 * a).log_mass for w, a in zip(projections, images, strict=True)]
    return Expectations(log_mass, mean, bias, *(np.stack(each, axis=1) for each in (fourth, log_product, spread)))


@functools.singledispatch
def _root(keys: Keys, d: int) -> Array:
    """R with R Rᵀ = Σ: a key is R z, z ~ N(0, I)."""
    raise TypeError(f"no expectations under {keys!r}")


@_root.register
def _(keys: GaussianKeys, d: int) -> Array:
    if keys.structure == "identity":
        return np.eye(d)
    gaps = np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
    covariance = keys.correlation ** (gaps if keys.structure == "autoregressive" else np.sign(gaps))
    return np.asarray(np.linalg.cholesky(covariance), np.float64)


def _tilted(cell: Cell, projection: Array, images: Array) -> _Tilted:
    """Return the law under exp(−|a − Wᵀz|²/(2b²)) or exp(a·Wᵀz/b²), W (j, k) and a (q, k): of one head or of two."""
    scaled, targets = projection / cell.bandwidth, images / cell.bandwidth
    if cell.estimator.logits == "dot_product":
        mean = targets @ scaled.T
        return _Tilted(0.5 * (mean**2).sum(axis=1), mean, np.eye(len(projection)))
    # By singular values, since two heads that coincide leave a singular matrix beside b² I.
    left, sizes, right = np.linalg.svd(scaled)
    turned = targets @ right.T
    shrinkage = 1.0 / (1.0 + np.pad(sizes, (0, max(scaled.shape) - len(sizes))) ** 2)
    mean = (turned[:, : len(sizes)] * sizes * shrinkage[: len(sizes)]) @ left[:, : len(sizes)].T
    exponent = -0.5 * (turned**2 * shrinkage[: turned.shape[1]]).sum(axis=1)
    # 1 where there is no singular value, so that both products have all factors that they need.
    covariance = (left * shrinkage[: len(left)]) @ left.T
    return _Tilted(exponent + 0.5 * np.log(shrinkage).sum(), mean, covariance)


def _mean_and_variance(m: Waves, law: _Tilted) -> tuple[Array, Array]:
    """Mean and variance (q,) of a function under a tilted law.

    With z = ν + y, y ~ N(0, T): E cos(k·y + θ) = e^{−kᵀTk/2} cos θ, and its derivatives in k give the products with y
    (Stein's lemma).  Means are taken off before anything is added.
    """
    slope, bent = m.gradient + 2.0 * law.mean @ m.curvature, m.curvature @ law.covariance
    mean = law.mean @ m.gradient + ((law.mean @ m.curvature) * law.mean).sum(axis=1) + np.trace(bent)
    variance = ((slope @ law.covariance) * slope).sum(axis=1) + 2.0 * (bent * bent.T).sum()
    along = m.waves @ law.covariance
    gram = along @ m.waves.T
    half = 0.5 * np.diagonal(gram)
    sizes, angles = m.amplitudes * np.exp(-half), law.mean @ m.waves.T + m.phases
    cosines, sines = np.cos(angles), np.sin(angles)
    curved = ((along @ m.curvature) * along).sum(axis=1)
    variance -= 2.0 * (cosines @ (sizes * curved) + ((slope @ along.T) * sines) @ sizes)
    ends, amplitudes = half[:, None] + half, np.outer(m.amplitudes, m.amplitudes)
    alike, opposite = (amplitudes * (np.exp(sign * gram - ends) - np.exp(-ends)) for sign in (1.0, -1.0))
    variance += 0.5 * ((cosines @ (alike + opposite)) * cosines + (sines @ (alike - opposite)) * sines).sum(axis=1)
    return mean + cosines @ sizes, variance


def _in_coordinates(m: Waves, root: Array) -> Waves:
    """Return z -> m(R z)."""
    curvature = root.T @ m.curvature @ root
    return m._replace(gradient=root.T @ m.gradient, curvature=curvature, waves=m.waves @ root)
