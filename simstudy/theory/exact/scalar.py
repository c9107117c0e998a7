"""Expectations over one Gaussian key, for heads whose kernels each depend on one linear function of the key.

These are dot-product heads, K = exp(k.X), and distance heads of dimension 1.  A kernel may be far narrower than the
distribution of keys.  So functions of it are integrated on a fine grid, against a joint density that is interpolated
from a coarse grid by cardinal series.  All sums are trapezoid sums of analytic functions that vanish at both ends;
they converge exponentially (Trefethen and Weideman 2014, SIAM Review 56, 385).

Index legend: q query; U values of log t; N coarse nodes.
"""

import itertools
from typing import NamedTuple

import numpy as np
import scipy
from scipy.special import expit, ndtr, ndtri

from simstudy.theory.exact.integrals import Factors, Law, Moments, damped
from simstudy.theory.functions import Array, Function, expectation, square_expectation
from simstudy.theory.tilting import Heads

# A key lies further out with probability 2e-17.  Weights are at most 1, so its effect on a moment is of that order.
EXTENT = 8.5
# Share of the integral of |d phi^n| that is neglected at either end of log t.
_TAIL = 1e-14
# e^{-tK} < _TAIL at log t = depth + MARGIN if log K > -depth.
MARGIN = float(np.log(-np.log(_TAIL)))
# At this step in log t, sums over e^{-tS} tS and e^{-tS} (tS)^2 are 1 within 2e-12 for every S.
_STEP = 0.3
# Spectra of Gaussians and of e^{-e^z} are truncated where they have fallen to exp(-_DECAY).
_DECAY = 36.0
# If 1 - correlation^2 is smaller, two heads have the same linear function of the key up to rounding.
_ALIGNED = 1e-13
_BLOCK = 4096
_NARROW_BLOCK = 256
# Moments are the same at every query for distance logits, and for all pairs of a head: cached up to this size.
_KEPT_NUMBERS = 10_000_000
_LARGEST_PRODUCT = 4e9
MAX_COARSE = 2500
MAX_FINE = 200_000


class ScalarHead(NamedTuple):
    """Kernel exp(-(offset - spread x)^2 / 2 + slope x) of x = axis.X ~ N(0, 1)."""

    axis: Array
    offset: float
    spread: float
    slope: float

    def log_kernel(self, x: Array) -> Array:
        """Return log K at values x of any shape."""
        return -0.5 * (self.offset - self.spread * x) ** 2 + self.slope * x

    def log_mass(self) -> float:
        """Return log E K, or an upper bound of it over keys within `EXTENT`."""
        if self.slope:
            return self.slope * min(0.5 * self.slope, EXTENT)
        width = 1 + self.spread**2
        return -0.5 * (np.log(width) + self.offset**2 / width)

    def log_depth(self, n_keys: int) -> float:
        """Return the value that -log max_i K(X_i) over n keys exceeds with probability `_TAIL`."""
        probability = _TAIL ** (1 / n_keys)
        if self.slope:
            return float(-self.slope * ndtri(probability))
        if not self.spread:
            return 0.5 * self.offset**2

        def excess(r: float) -> float:
            beyond = ndtr((self.offset - r) / self.spread) + ndtr(-(self.offset + r) / self.spread)
            return float(beyond - probability)

        return 0.5 * float(scipy.optimize.brentq(excess, 0.0, abs(self.offset) + 2 * EXTENT * self.spread)) ** 2

    def steepness(self, n_keys: int) -> float:
        """Return a bound of |d log K / dx| where -log K is at most `log_depth` + `MARGIN`."""
        return self.slope + self.spread * np.sqrt(2 * (max(self.log_depth(n_keys), 0.0) + MARGIN))


def scalar_heads(kernels: Heads, covariance: Array, query: int) -> list[ScalarHead]:
    """Return heads at one query, for dot-product logits of any dimension or distance logits of dimension 1."""
    projected = kernels.projected_queries[:, query]
    if kernels.logits == "distance":
        directions, offsets = kernels.projections[:, :, 0] / kernels.bandwidth, projected[:, 0] / kernels.bandwidth
    else:
        directions = np.einsum("hjk,hk->hj", kernels.projections, projected) / kernels.bandwidth**2
        offsets = np.zeros(len(directions))
    heads = []
    for direction, offset in zip(directions, offsets, strict=True):
        scale = float(np.sqrt(direction @ covariance @ direction))
        # A constant kernel depends on no axis; any will do.
        axis = direction / scale if scale else np.eye(len(direction))[0] / np.sqrt(covariance[0, 0])
        spread, slope = (scale, 0.0) if kernels.logits == "distance" else (0.0, scale)
        heads.append(ScalarHead(axis, float(offset), spread, slope))
    return heads


def log_grid(head: ScalarHead, n_keys: int, distinctness: float, coarsening: float) -> tuple[Array, Array]:
    """Return nodes and weights of a trapezoid rule in log t that resolves e^{-tK} and the law of log max_i K(X_i)."""
    low = np.log(_TAIL / n_keys) - head.log_mass()
    high = head.log_depth(n_keys) + MARGIN
    step = coarsening * _STEP
    if head.slope:
        # The largest of n normal variables has a standard deviation of order 1 / (2 ln n)^(1/2).
        step *= max(1.0, head.slope * min(1 / (1 + np.sqrt(2 * np.log(n_keys))), distinctness))
        log_t = low + step * np.arange(np.ceil((high - low) / step) + 1)
        return log_t, np.full(len(log_t), step)
    bend = (min(np.sqrt(2 * high) / 40, head.spread * min(0.1, 0.3 * distinctness)) / _STEP) ** 2
    knee = 5 + 1.2 * bend

    def bent(y: Array) -> Array:
        return y + 0.5 * bend * np.logaddexp(0, y - knee) ** 2

    start = scipy.optimize.brentq(lambda y: bent(y) - low, low - 1 - bend if low < knee else knee - 1 - bend, low + 1)
    y = np.arange(start, start + (high - low) + 2 * step, step)
    y = y[: np.searchsorted(bent(y), high) + 1]
    return bent(y), step * (1 + bend * np.logaddexp(0, y - knee) * expit(y - knee))


class ScalarLaw(Law):
    """One key N(0, covariance) and its response, for heads that each depend on one linear function of the key."""

    def __init__(
        self, heads: Heads, covariance: Array, regression: Function, variance: Function, n_keys: int, coarsening: float
    ) -> None:
        self._covariance, self._regression, self._variance = covariance, regression, variance
        self._n_keys, self._coarsening = n_keys, coarsening
        self._heads = [scalar_heads(heads, covariance, q) for q in range(heads.projected_queries.shape[1])]
        highest, self._distinctness = self._resolution()
        self._spacing = coarsening * np.pi / highest
        self._coarse = _centred_grid(max(self._spacing, 2 * EXTENT / MAX_COARSE))
        self._known: dict[bytes, Moments] = {}

    def too_large(self) -> str:
        """Return why the grids would be too large, or an empty string."""
        n_coarse = 2 * EXTENT / self._spacing
        if n_coarse > MAX_COARSE:
            return (
                f"quadrature needs {n_coarse:.0f} nodes per axis (at most {MAX_COARSE}): two heads are nearly but not "
                "exactly aligned, or the regression function varies too fast"
            )
        n_fine = 2 * EXTENT / min(self._fine_spacing(heads) for heads in self._heads)
        if n_fine > MAX_FINE:
            return (
                f"quadrature needs {n_fine:.0f} nodes to resolve the kernels (at most {MAX_FINE}): they are too narrow"
            )
        return ""

    def factors(self, query: int) -> list[Factors]:
        """Return the functions of tK of every head, integrated against the cardinal functions of the coarse nodes."""
        nodes, spacing = self._fine(query)
        heads = self._heads[query]
        grids = [log_grid(head, self._n_keys, self._distinctness, self._coarsening) for head in heads]
        parts = [np.zeros((3, len(log_t), len(self._coarse))) for log_t, _ in grids]
        for block in _blocks(len(nodes), _NARROW_BLOCK):
            basis = spacing * _cardinal(nodes[block], self._coarse, self._spacing)
            for head, (log_t, _), part in zip(heads, grids, parts, strict=True):
                log_kernel = head.log_kernel(nodes[block])
                # At all nodes of the block, tK is negligible below `low`, and e^{-tK} from `high` on.
                low = np.searchsorted(log_t, -_DECAY - np.log(self._n_keys) - log_kernel.max())
                high = np.searchsorted(log_t, MARGIN + 1 - log_kernel.min())
                part[:, low:high] += damped(log_t[low:high, None] + log_kernel) @ basis
                part[0, high:] += basis.sum(axis=0)
        return [Factors(part, steps) for part, (_, steps) in zip(parts, grids, strict=True)]

    def moments(self, query: int, *heads: int) -> Moments:
        """Return the moments of one key for one head, (N,), or two, (N, N), on the coarse nodes."""
        axes = np.array([self._heads[query][head].axis for head in heads])
        key = axes.tobytes()
        if key not in self._known:
            if sum(known.one.size for known in self._known.values()) > _KEPT_NUMBERS:
                self._known.clear()
            grid = np.stack(np.meshgrid(*[self._coarse] * len(axes), indexing="ij"), axis=-1)
            self._known[key] = self._moments(axes, grid)
        return self._known[key]

    def pair(
        self, query: int, factors: list[Factors], first: int, second: int
    ) -> tuple[tuple[Factors, Factors], tuple[Moments, Moments], Moments]:
        """Return the same as the base class; on the fine nodes if two heads have the same linear function."""
        one, other = heads = self._heads[query][first], self._heads[query][second]
        correlation = one.axis @ self._covariance @ other.axis
        if 1 - correlation**2 >= _ALIGNED:
            return super().pair(query, factors, first, second)
        nodes, spacing = self._fine(query)
        law = Moments(*(spacing * moment for moment in self._moments(one.axis[None], nodes[:, None])))
        # Each kernel is a function of the other, so that steps in log t must resolve e^{-tK}.
        grids = [log_grid(head, self._n_keys, 0.0, self._coarsening) for head in heads]
        if len(nodes) * len(grids[0][0]) * len(grids[1][0]) > _LARGEST_PRODUCT:
            # May be too coarse for the pair; the error estimate then shows it.
            grids = [log_grid(head, self._n_keys, 1.0, self._coarsening) for head in heads]
        sign = float(np.sign(correlation))
        turned = other._replace(offset=sign * other.offset, slope=sign * other.slope)
        found = [
            Factors(damped(log_t[:, None] + head.log_kernel(nodes)), steps)
            for head, (log_t, steps) in zip((one, turned), grids, strict=True)
        ]
        return (found[0], found[1]), (law, law), law

    def _fine_spacing(self, heads: list[ScalarHead]) -> float:
        # e^{-tK} is analytic where |Im log tK| < pi/2, that is, in a strip of half-width pi / (2 |d log K / dx|).
        steepness = max(1.0, *(head.steepness(self._n_keys) for head in heads))
        return min(self._spacing / 2, self._coarsening * np.pi**2 / (_DECAY * steepness))

    def _fine(self, query: int) -> tuple[Array, float]:
        heads = self._heads[query]
        spacing = self._fine_spacing(heads)
        nodes = _centred_grid(spacing)
        # Elsewhere tK < exp(-_DECAY) at every t.
        needed = [head.log_kernel(nodes) > -head.log_depth(self._n_keys) - MARGIN - _DECAY for head in heads]
        return nodes[np.any(needed, axis=0)], spacing

    def _moments(self, axes: Array, values: Array) -> Moments:
        """Return the density at values (..., A) of a key on A axes, times 1 and the conditional moments of Y."""
        gram = axes @ self._covariance @ axes.T
        precision = np.linalg.inv(gram)
        exponent = -0.5 * np.einsum("...a,ab,...b->...", values, precision, values)
        density = np.sqrt(np.linalg.det(precision / (2 * np.pi))) * np.exp(exponent)
        moments = Moments(density, np.zeros_like(density), np.zeros_like(density))
        slopes = precision @ axes @ self._covariance
        spread = self._covariance - self._covariance @ axes.T @ slopes
        near = np.argwhere(exponent > -2 * _DECAY)
        for block in _blocks(len(near), _BLOCK):
            index = tuple(near[block].T)
            means = values[index] @ slopes
            square = square_expectation(self._regression, means, spread) + expectation(self._variance, means, spread)
            moments.mean[index] = density[index] * expectation(self._regression, means, spread)
            moments.square[index] = density[index] * square
        return moments

    def _resolution(self) -> tuple[float, float]:
        """Highest frequency of joint densities times E[m^2 | values]; least conditional deviation along an axis."""
        distinct, frequencies, largest = {}, [], 1.0
        for heads in self._heads:
            for one, two in itertools.combinations_with_replacement(heads, 2):
                correlation = one.axis @ self._covariance @ two.axis
                axes = np.array([one.axis] if 1 - correlation**2 < _ALIGNED else [one.axis, two.axis])
                distinct[axes.tobytes()] = axes
        # The error of a density is multiplied by n in the moments.
        decay = _DECAY + 2 * np.log(self._n_keys)
        for axes in distinct.values():
            precisions = np.linalg.inv(axes @ self._covariance @ axes.T)
            slopes = precisions @ axes @ self._covariance
            for slope, precision in zip(slopes, np.diag(precisions), strict=True):
                waves = 2 * np.abs(self._regression.frequencies @ slope)
                frequencies.append(waves.max(initial=0.0) + np.sqrt(2 * decay * precision))
                largest = max(largest, precision)
        return max(frequencies), largest**-0.5


def _centred_grid(spacing: float) -> Array:
    half = np.ceil(EXTENT / spacing)
    return spacing * np.arange(-half, half + 1)


def _cardinal(points: Array, nodes: Array, spacing: float) -> Array:
    """Cardinal functions sin(pi u) / (pi u) with u = (point - node) / spacing, computed by one sine for each point."""
    position, index = points / spacing, np.round(nodes / spacing)
    nearest = np.round(position)
    offset = position[:, None] - index
    parity = 1.0 - 2.0 * (np.add.outer(nearest, index) % 2)
    sine = np.sin(np.pi * (position - nearest)) / np.pi
    cardinal = np.ones(offset.shape)
    return np.divide(sine[:, None] * parity, offset, out=cardinal, where=offset != 0)


def _blocks(n: int, size: int) -> list[slice]:
    return [slice(i, i + size) for i in range(0, n, size)]
