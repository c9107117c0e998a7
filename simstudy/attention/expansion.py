"""Control variates: moments of heads to second order in averages over keys, with known means at every n.

Given the keys, head h has the mean c_h = Σ_i K_hi m(X_i) / S_h with S_h = Σ_i K_hi, and two heads have the covariance
G_hg.  Let μ_h = E[K_h m] / E K_h and b_h = μ_h − m(x).  Control variates are subtracted from the error
e_h = c_h − m(x) and from the product P_hg = e_h e_g + G_hg.  They have mean 0 for any factors of their parts.  Factors
depend only on the cell.

**Distances, and rows of data: expansion.**  With the leading covariance G⁰_hg = σ² E[K_h K_g] / (n E K_h · E K_g),
a_h = S_h / (n E K_h) − 1, l_h = (1 + a_h) (c_h − μ_h) and γ_hg = G_hg (1 + a_h) (1 + a_g) / G⁰_hg − 1 are averages over
independent keys, of mean 0.  As c_h − μ_h = l_h / (1 + a_h) and G_hg = G⁰_hg (1 + γ_hg) / ((1 + a_h) (1 + a_g)), their
terms of first and second order minus the means of these are control variates.

If few keys have weight, the terms have heavy tails, unlike c_h and G_hg.  This is measured by
u_hg = E[K_h² K_g²] / (n (E[K_h K_g])²).  Terms of first order have the factor 1 / (1 + u³), of second order
1 / (1 + 3 u²).  There is no control if u_hh ≥ 1 or E K_h⁸ ≥ n (E K_h⁴)² for a head at a query: then the variance of the
terms is due to rare keys, which may be absent in all replicates.

**Dot products: one key is left out.**  Let S⁻ and L⁻ be the sums of K and K (m − μ) over all keys but the last, and
u_h = m − μ_h.  Keys are exchangeable, so that with the expectation E₁ over one key given the others

- E c_h − μ_h = n E f_h, f_h = E₁[K_h u_h / (S⁻_h + K_h)],
- E[(c_h − μ_h)(c_g − μ_g) + G_hg] = n E φ_hg,
  φ_hg = E₁[(K_h K_g (σ² + u_h u_g) + K_h u_h L⁻_g / 2 + K_g u_g L⁻_h / 2) / ((S⁻_h + K_h)(S⁻_g + K_g))].

Logits of a Gaussian key are normal.  E₁ depends on the mean and variance of m given the logits of two heads, and is
computed as a sum over nodes in the plane.  n f and n φ minus their terms of first and second order in
a = S⁻ / E S⁻ − 1 and l = L⁻ / E S⁻ replace plain replicates.  All factors (`_left_out`) follow from n and the variances
of logits.  They were chosen on cells of 8 to 4096 keys, for small errors, coverage of intervals, and no cell worse than
plain.  There is no control if E K_h² > n (E K_h)²: there 95 % intervals of correlations and covariances covered 91 %.

For keys X ~ N(0, Σ), a kernel times the density of a key is Gaussian, and so is a product of kernels.  m is a
polynomial of degree 2 plus waves A cos(k·x + φ), whose mean and variance under any Gaussian have closed forms.  For
keys from rows of data, expectations are sums over the rows.
"""

import functools
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simstudy.attention.members import pairs_of
from simstudy.attention.transformations import Inputs
from simstudy.data.heads import key_projections, query_points, query_projections
from simstudy.data.regression import Waves, as_waves, at_queries, at_rows, evaluate
from simstudy.data.span import root_of
from simstudy.design.settings.cell import Array, Cell
from simstudy.design.settings.choices import GaussianKeys
from simstudy.kernels.devices import gpu_kernels, is_on_gpu, to_host
from simstudy.kernels.left_out import integrate

# Index legend: r replicate, q query, h and g head, k dimension of one head or of two, j feature, a wave.

_LARGEST_EXPONENT = 1e4  # beyond, rounding errors dominate differences of logarithms, and no key is near
_SMALLEST = float(np.finfo(float).tiny)  # keeps logarithms finite for heads without rows in common
_FEW = "at some query point few keys carry weight, where a control variate would have heavy tails"
_FEWEST = 30  # least number of keys with which one is left out
_LARGEST_SHARE = 100.0  # largest ln u, at which factors are 0


class Expectations(NamedTuple):
    """Expectations over one key of a cell; pairs h ≤ g are in the order of `members.pairs_of`."""

    log_mass: Array  # (query, head) ln E K_h
    mean: Array  # (query, head) μ_h
    bias: Array  # (query, head) μ_h − m(x_q)
    tilt: Array  # (query, head) E[K_h² (m − μ_h)] / E K_h²
    log_product: Array  # (query, pair) ln E[K_h K_g]
    log_fourth: Array  # (query, pair) ln E[K_h² K_g²]
    log_first: Array  # (query, pair) ln E[K_h² K_g]
    log_second: Array  # (query, pair) ln E[K_h K_g²]
    log_eighth: Array  # (query, head) ln E K_h⁸
    spread: Array  # (query, pair) E[K_h K_g (m − μ_h)(m − μ_g)] / E[K_h K_g]


class Known(NamedTuple):
    """Means and factors that are equal in all replicates of a cell."""

    log_scale: Array  # (query, head) ln (n E K_h)
    mean: Array  # (query, head)
    bias: Array  # (query, head)
    first: Array  # (query, pair) factor on terms of first order
    second: Array  # (query, pair) factor on terms of second order
    leading: Array  # (query, pair) G⁰_hg; 0 if the variance of the noise differs between keys
    error_mean: Array  # (query, head) mean of the terms of e_h
    product_mean: Array  # (query, pair) mean of the terms of P_hg, except those of b_h e_g + b_g e_h


class LeftOut(NamedTuple):
    """Means and factors that are equal in all replicates of a cell with dot products; kernels are K_h / E K_h."""

    log_mass: Array  # (query, head) ln E K_h
    mean: Array  # (query, head)
    bias: Array  # (query, head)
    signal: Array  # (query, 1) factor of the part of m, which the following include
    noise: Array  # (query, pair) factor of the part of noise, which the following include
    nodes: Array  # (query, pair, 5, node) of `kernels.left_out`, in the precision of the cell
    errors: Array  # (2, query, head) factors of a and a² in f
    products: Array  # (11, query, pair) factors of the terms of φ in the order of `kernels.left_out`
    error_mean: Array  # (query, head) mean of the terms of second order of n f
    product_mean: Array  # (query, pair) the same for n φ


class _Tilted(NamedTuple):
    """Normal laws of a key weighted by kernels, in coordinates in which the key is N(0, I)."""

    log_mass: Array  # (law, q) ln of the expectation of the kernel
    at: Array  # (law, q, k): the mean is `directions` times these
    directions: Array  # (law, j, k)
    lost: Array  # (law, j, k): the covariance is I minus these times their transpose


def expansion(cell: Cell, means: Array, gram: Array, log_mass: Array, inputs: Inputs) -> Array | None:
    """Return the control variate of errors and products (replicate, query, head + pair); None if `known_of` has none.

    Arguments are a cell that is `Cell.controlled`, means c_h and log_mass ln S_h (replicate, query, head), gram G_hg
    (replicate, query, head, head), and the inputs of these.  It is on a GPU if they are, except for dot products.
    """
    known, n_heads = known_of(cell), means.shape[2]
    if isinstance(known, str):
        return None
    if isinstance(known, LeftOut):
        return _by_leaving_out(cell, known, means, gram, log_mass, inputs)
    if is_on_gpu(log_mass):
        return gpu_kernels().expand(means, gram, log_mass, *known)
    rows, columns = pairs_of(n_heads)
    equal = np.flatnonzero(rows == columns)
    scale = np.exp(log_mass - known.log_scale)
    a, linear = scale - 1.0, scale * (means - known.mean)
    first, second = known.first[:, equal], known.second[:, equal]
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


def known_of(cell: Cell) -> Known | LeftOut | str:
    """Return the known means of a cell, or why there is no control variate."""
    return _left_out(cell) if cell.has_closed_forms and cell.estimator.logits == "dot_product" else _expanded(cell)


# Cached for all batches of a cell.
@functools.lru_cache(maxsize=512)
def _expanded(cell: Cell) -> Known | str:
    found, n = expectations(cell) if cell.has_closed_forms else over_rows(cell), cell.data.n_keys
    rows, columns = pairs_of(cell.heads.n_heads)
    equal, of_pairs = rows == columns, found.log_mass[:, rows] + found.log_mass[:, columns]
    if np.abs(of_pairs).max() > _LARGEST_EXPONENT:
        return "at some query point all weights are so small or large that rounding decides"
    # In logarithms, as kernels may have hardly any mass.
    log_share = found.log_fourth - 2.0 * found.log_product - math.log(n)
    log_kurtosis = found.log_eighth - 2.0 * found.log_fourth[:, equal] - math.log(n)
    if not ((log_share[:, equal] < 0.0) & (log_kurtosis < 0.0)).all():
        return _FEW
    share = np.exp(np.minimum(log_share, _LARGEST_SHARE))
    product = np.exp(found.log_product - of_pairs)
    first = np.exp(found.log_first - of_pairs - found.log_mass[:, rows])
    second = np.exp(found.log_second - of_pairs - found.log_mass[:, columns])
    square = product[:, equal]
    leading = product * (cell.data.noise_sd**2 / n if cell.even_noise else 0.0)
    # n times the means of a², aa' and a'², then of γ a and γ a'.
    of_masses = square[:, rows] + square[:, columns] + product - 3.0
    of_masses -= (first + second) / product - 2.0
    once, twice = 1.0 / (1.0 + share**3), 1.0 / (1.0 + 3.0 * share**2)
    error_mean = -twice[:, equal] * square * found.tilt
    product_mean = twice * (product * found.spread + leading * of_masses)
    return Known(
        found.log_mass + math.log(n), found.mean, found.bias, once, twice, leading, error_mean / n, product_mean / n
    )


_PIECE = 1 << 15  # nodes of pairs, or squares of waves, that are computed at once, for the cache
_LOG_PRECISION = 16.0  # least negative logarithm of the relative error of sums over nodes


# Some MB each, 100 MB with hundreds of queries; at most eight cells share data and are computed in turn.
@functools.lru_cache(maxsize=8)
def _left_out(cell: Cell) -> LeftOut | str:
    n, sigma, (projections, m) = cell.data.n_keys, cell.data.noise_sd * cell.even_noise, _whitened(cell)
    points = query_points(cell)
    slopes = (points @ query_projections(cell) @ projections.swapaxes(1, 2)).swapaxes(0, 1) / cell.bandwidth**2
    joint = slopes @ slopes.swapaxes(1, 2)
    square = np.diagonal(joint, axis1=1, axis2=2)
    if n < _FEWEST or square.max() > math.log(n):
        return _FEW
    rows, columns = pairs_of(len(projections))
    equal, mean = np.flatnonzero(rows == columns), _means_along(m, slopes)
    most = np.maximum(square[:, rows], square[:, columns])
    share, tail = np.exp(most) / (n - 1.0), np.exp(2.0 * most) / (n - 1.0)
    # If weights are nearly equal, plain replicates hardly vary.
    plain = np.expm1(square[:, rows]) * np.expm1(square[:, columns]) / n + _SMALLEST
    noise = 1.0 / (1.0 + 0.5 * share + 100.0 / (n - 1.0) ** 2 + (np.expm1(most) / (n - 1.0)) ** 2 / plain)
    signal = 1.0 / (1.0 + 0.01 * share.max(axis=1, keepdims=True) + 2.0 / (n - 1.0) ** 2)
    wave = max(np.abs(m.waves @ _plane(each[rows], each[columns])).max(initial=0.0) for each in slopes)
    x = _grid(joint, n, wave, 4 if m.curvature.any() else 2 * int(m.gradient.any()))
    nodes, parts = np.empty((*noise.shape, 5, len(x)), cell.simulation.dtype), []
    step = max(1, _PIECE // (len(rows) * max(len(x), len(m.waves) ** 2)))
    for q in (slice(first, first + step) for first in range(0, len(points), step)):
        of_queries = _nodes(m, slopes[q], mean[q], sigma**2 * noise[q], signal[q], x)
        parts.append(_derivatives(of_queries, n - 1.0, rows, columns))
        nodes[q] = of_queries
    f, found = (np.concatenate(each, axis=1) for each in zip(*parts, strict=True))
    cross, of_squares = np.exp(joint[:, rows, columns]), np.expm1(joint) / (n - 1.0)
    tilted = np.stack([_means_along(m, each[rows] + each[columns]) for each in slopes])
    # E a_g l_h, E a_h l_g.
    one, other = (cross * (tilted - mean[:, each]) / (n - 1.0) for each in (rows, columns))
    means = np.stack([
        of_squares[:, rows, rows], of_squares[:, rows, columns], of_squares[:, columns, columns],
        one[:, equal][:, rows], other, one, one[:, equal][:, columns],
    ])  # fmt: skip
    once, twice = 1.0 / (1.0 + 0.2 * tail**0.75), 1.0 / (1.0 + 3.0 * tail + 60.0 * tail**2)
    errors = f[1:] * np.stack([once[:, equal], twice[:, equal]])
    products = np.concatenate([once * found[1:5], twice * found[5:]])
    return LeftOut(
        0.5 * square, mean, mean - evaluate(cell.data.regression, np.ascontiguousarray(points.T))[:, None],
        signal, noise, nodes, errors, products,
        n * errors[1] * of_squares[:, rows, columns][:, equal], n * (products[4:] * means).sum(axis=0),
    )  # fmt: skip


def _means_along(m: Waves, slopes: Array) -> Array:
    """Return means (...) of a function under N(a, I), a (..., j)."""
    of_waves = np.cos(slopes @ m.waves.T + m.phases) @ (m.amplitudes * np.exp(-0.5 * (m.waves**2).sum(axis=1)))
    found = slopes @ m.gradient + of_waves + np.trace(m.curvature)
    return np.asarray(found + ((slopes @ m.curvature) * slopes).sum(axis=-1) if m.curvature.any() else found)


def _plane(*slopes: Array) -> Array:
    """Return orthonormal axes (law, j, 2) for two slopes (law, j) of logits; the second is 0 if they are parallel."""
    axes: list[Array] = []
    for vectors in slopes:
        rest = vectors - sum((vectors * axis).sum(axis=1, keepdims=True) * axis for axis in axes)
        length, size = (np.linalg.norm(each, axis=1, keepdims=True) for each in (rest, vectors))
        axes.append(np.divide(rest, length, out=np.zeros_like(rest), where=length > 1e-7 * size))
    return np.stack(axes, axis=2)


def _grid(joint: Array, n: int, wave: float, degree: int) -> Array:
    """Return nodes (node, 2) of the trapezoidal rule in a plane, for logits of covariance ``joint`` and squares of m.

    At spacing h, the error is e^(−2πy/h) times the size of an integrand at the imaginary part y: e^(y²/2) for the
    normal density, e^(2ky) for squared waves, y^degree for polynomials.  1 / (S + K) has a pole at the logit ln S + iπ,
    where the density is smaller by e^(−x²/2), with x the real part; S is assumed to be at least n / e.
    """
    wanted = max(_LOG_PRECISION, 7.0 + 1.5 * math.log(n)) + 1.75 * degree  # deviations may be as small as n^(−3/2)
    square, reach = np.diagonal(joint, axis1=1, axis2=2), math.sqrt(2.0 * wanted)
    farthest = max(6.0, reach)  # largest distance of nodes from 0, in standard deviations
    sd = np.maximum(np.sqrt(square), 0.1)  # with smaller ones the pole is too far away to matter
    y, x = math.pi / sd, np.maximum(math.log(n) - 1.0 - 0.5 * square - joint.max(axis=2), 0.0) / sd
    least = np.maximum(wanted + 0.5 * (y**2 - x**2) + 2.0 * wave * y, y)
    spacing = min(2.0 * math.pi / (reach + 2.0 * wave), (2.0 * math.pi * y / least)[y < reach].min(initial=np.inf))
    axis = spacing * np.arange(-(farthest // spacing), farthest // spacing + 1)
    nodes = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    return nodes[(nodes**2).sum(axis=1) <= farthest**2]


def _nodes(m: Waves, slopes: Array, mean: Array, noise: Array, signal: Array, x: Array) -> Array:
    """Return nodes (query, pair, 5, node) of `kernels.left_out`, with factors of noise (query, pair) and signal."""
    pairs = pairs_of(slopes.shape[1])
    one, other = (slopes[:, heads].reshape(-1, slopes.shape[2]) for heads in pairs)
    plane = _plane(one, other)
    along = [slope[:, None] @ plane for slope in (one, other)]
    at = along[0] + along[1] + x
    centre, variance = _mean_and_variance(m, _Tilted(np.empty(0), at, plane, plane))
    nodes, density = np.empty((len(one), 5, len(x))), np.exp(-0.5 * (x**2).sum(axis=1))
    weights = density / density.sum() * np.exp((one * other).sum(axis=1))[:, None]
    u, v = (centre - mean[:, heads].reshape(-1, 1) for heads in pairs)
    of_signal = weights * np.repeat(signal, len(pairs[0]), axis=0)
    for row, each in enumerate(along):
        nodes[:, row] = np.exp((at @ each.swapaxes(1, 2))[..., 0] - 0.5 * (each**2).sum(axis=2))
    nodes[:, 2] = weights * noise.reshape(-1, 1) + of_signal * (variance + u * v)
    nodes[:, 3], nodes[:, 4] = of_signal * u, of_signal * v
    return nodes.reshape(*noise.shape, 5, -1)


def _derivatives(nodes: Array, s: float, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> tuple[Array, Array]:
    """Return f and its factors of a and a² (3, query, head), φ and its factors (12, query, pair), at S = s (1 + a)."""
    equal, (r, t) = np.flatnonzero(rows == columns), np.moveaxis(s / (s + nodes[:, :, :2]), 2, 0)
    x, of_one = r * t, r[:, equal]
    of_pairs = nodes[:, :, 2:] @ np.stack([x, x * r, x * t, x * r * r, x * x, x * t * t], axis=2).swapaxes(2, 3)
    v, w, u = np.moveaxis(of_pairs, (2, 3), (0, 1))
    one, two, three = (nodes[:, equal, 3] * np.stack([of_one, of_one**2, of_one**3])).sum(axis=-1)
    f = np.stack([-one, one + two, -one - two - three])
    first, second = f[0][:, rows] - w[0], f[0][:, columns] - u[0]
    of_first, of_second = f[1][:, rows] + w[1], f[1][:, columns] + u[2]
    terms = [
        v[0], -v[1], -v[2], 0.5 * second, 0.5 * first, *v[3:],
        0.5 * (u[1] - second), 0.5 * of_first, 0.5 * of_second, 0.5 * (w[2] - first),
    ]  # fmt: skip
    return f / s**2, np.stack(terms) / s**2


def _by_leaving_out(cell: Cell, known: LeftOut, means: Array, gram: Array, log_mass: Array, inputs: Inputs) -> Array:
    """Return the control variate: plain replicates minus averages over a left-out key, with their expansions."""
    n = cell.data.n_keys  # arrays on a GPU have no ellipsis in indices
    last = inputs.keys[:, :, :, n - 1 : n], inputs.values[:, n - 1 : n]
    arrays = (to_host(x)[0] if is_on_gpu(x) else x for x in (means, gram, log_mass, inputs.queries, *last))
    means, gram, log_mass, queries, key, value = (np.asarray(each, np.float64) for each in arrays)
    rows, columns = pairs_of(means.shape[2])
    logits = np.einsum("rhk,qhk->rqh", key[..., 0], queries) / cell.bandwidth**2
    mass, left = np.exp(log_mass - known.log_mass), np.exp(logits - known.log_mass)
    # In single precision, one key may have all weight by rounding.
    sums = np.maximum(mass - left, 1e-7 * mass)
    gaps = means - known.mean
    linear = mass * gaps - left * (value[:, :, None] - known.mean)
    f, found = integrate(sums, linear, n, known.nodes, known.errors, known.products)
    errors = known.signal * gaps - f - known.error_mean
    products = known.signal * gaps[..., rows] * gaps[..., columns] - found - known.product_mean
    if cell.even_noise:
        products += known.noise * gram.reshape(*gram.shape[:2], -1)[..., rows * means.shape[2] + columns]
    products += known.bias[:, rows] * errors[..., columns] + known.bias[:, columns] * errors[..., rows]
    return np.concatenate([errors, products], axis=-1)


def over_rows(cell: Cell) -> Expectations:
    """Return expectations over the equally likely rows of data from which the keys of a cell are drawn."""
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
    """Return expectations at all queries of a cell; TypeError unless keys are Gaussian and m has a closed form."""
    points, (projections, m) = query_points(cell), _whitened(cell)
    images = np.einsum("qj,hjk->hqk", points, query_projections(cell))

    def laws(*powers: tuple[NDArray[np.int64], float]) -> _Tilted:
        # Kernels are exp(−|a − Wᵀz|²/(2b²)), W (law, j, k), a (law, q, k).  A power r of a kernel multiplies W and a by
        # √r; a product of kernels concatenates their dimensions.
        of = (np.concatenate([math.sqrt(r) * each[h] for h, r in powers], axis=-1) for each in (projections, images))
        scaled, targets = (each / cell.bandwidth for each in of)
        # By singular values, as WᵀW is singular for two equal heads.
        n_features, n_dims = scaled.shape[1:]
        left, sizes, right = np.linalg.svd(scaled, full_matrices=n_features < n_dims)
        turned, most = targets @ right.swapaxes(1, 2), sizes.shape[1]
        shrinkage = np.ones((len(scaled), 1, n_dims))
        shrinkage[:, 0, :most] /= 1.0 + sizes**2
        log_mass = 0.5 * (np.log(shrinkage) - turned**2 * shrinkage).sum(axis=2)
        kept = sizes[:, None] * shrinkage[..., :most]
        return _Tilted(log_mass, turned[..., :most] * kept, left, left * np.sqrt(sizes[:, None] * kept))

    rows, columns = pairs_of(cell.heads.n_heads)
    alone, products = laws((np.arange(cell.heads.n_heads), 1.0)), laws((rows, 1.0), (columns, 1.0))
    mean = _mean_and_variance(m, alone)[0].T
    one, other, equal = mean[:, rows], mean[:, columns], rows == columns
    centre, variance = (each.T for each in _mean_and_variance(m, products))
    spread, tilt = variance + (centre - one) * (centre - other), centre[:, equal] - mean
    bias = mean - evaluate(cell.data.regression, np.ascontiguousarray(points.T))[:, None]
    fourth, first, second = (laws((rows, r), (columns, s)) for r, s in ((2.0, 2.0), (2.0, 1.0), (1.0, 2.0)))
    return Expectations(
        alone.log_mass.T, mean, bias, tilt, products.log_mass.T, fourth.log_mass.T, first.log_mass.T,
        second.log_mass.T, laws((np.arange(cell.heads.n_heads), 8.0)).log_mass.T, spread,
    )  # fmt: skip


def _whitened(cell: Cell) -> tuple[Array, Waves]:
    """Return key projections (head, j, dimension) and the regression function of z, for keys R z with z ~ N(0, I)."""
    keys, d = cell.data.key_distribution, cell.data.n_features
    projections, m = key_projections(cell), as_waves(cell.data.regression, d)
    if not isinstance(keys, GaussianKeys):
        raise TypeError(f"no expectations under {keys!r}")
    if (root := root_of(keys, d)) is None:
        return projections, m
    curvature = root.T @ m.curvature @ root
    return root.T @ projections, m._replace(gradient=root.T @ m.gradient, curvature=curvature, waves=m.waves @ root)


def _mean_and_variance(m: Waves, law: _Tilted) -> tuple[Array, Array]:
    """Return mean and variance (law, q) of a function under normal laws.

    With z = ν + y, y ~ N(0, T): E cos(k·y + θ) = e^{−kᵀTk/2} cos θ, and its derivatives in k are expectations of
    products with y (Stein's lemma).  Means are subtracted before terms are added.
    """
    curved, mean = m.curvature.any(), (law.at @ (law.directions.swapaxes(1, 2) @ m.gradient)[..., None])[..., 0]
    # The gradient of m at ν is linear in 1 and the coordinates of ν.
    at, slopes = np.insert(law.at, 0, 1.0, axis=2)[..., : None if curved else 1], m.gradient[None, :, None]
    if curved:
        bent, stiff = m.curvature @ law.directions, m.curvature @ law.lost
        slopes = np.concatenate([np.broadcast_to(slopes, (len(bent), *slopes.shape[1:])), 2.0 * bent], axis=2)
        inner = law.lost.swapaxes(1, 2) @ stiff
        mean += ((law.at @ (law.directions.swapaxes(1, 2) @ bent)) * law.at).sum(axis=2)
        mean += (np.trace(m.curvature) - np.trace(inner, axis1=1, axis2=2))[:, None]
    across, seen = slopes.swapaxes(1, 2), m.waves @ law.lost
    turned = across @ law.lost
    variance = ((at @ (across @ slopes - turned @ turned.swapaxes(1, 2))) * at).sum(axis=2)
    if curved:
        squares = (m.curvature**2).sum() - 2.0 * (stiff**2).sum(axis=(1, 2)) + (inner**2).sum(axis=(1, 2))
        variance += 2.0 * squares[:, None]
    if not len(m.amplitudes):
        return mean, variance
    gram = m.waves @ m.waves.T - seen @ seen.swapaxes(1, 2)
    half = 0.5 * np.diagonal(gram, axis1=1, axis2=2)
    sizes = (m.amplitudes * np.exp(-half))[:, None]
    angles = law.at @ (m.waves @ law.directions).swapaxes(1, 2) + m.phases
    cosines, sines = np.cos(angles), np.sin(angles)
    linear = sines * (at @ (across @ m.waves.T - turned @ seen.swapaxes(1, 2)))
    if curved:
        along = m.waves - seen @ law.lost.swapaxes(1, 2)
        linear += cosines * ((along @ m.curvature) * along).sum(axis=2)[:, None]
    variance -= 2.0 * (linear * sizes).sum(axis=2)
    ends, amplitudes = half[:, :, None] + half[:, None], np.outer(m.amplitudes, m.amplitudes)
    alike, opposite = (amplitudes * (np.exp(sign * gram - ends) - np.exp(-ends)) for sign in (1.0, -1.0))
    variance += 0.5 * ((cosines @ (alike + opposite)) * cosines + (sines @ (alike - opposite)) * sines).sum(axis=2)
    return mean + (cosines * sizes).sum(axis=2), variance
