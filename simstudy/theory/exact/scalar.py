"""Expectations over one Gaussian key, for heads whose kernels depend on one linear function of the key each.

A kernel may be far narrower than the law of the keys: functions of it are integrated on a fine grid, against a joint
density that is interpolated from a coarse one by cardinal series.  All sums are trapezoid sums of analytic functions
that vanish at both ends, which converge exponentially (Trefethen and Weideman 2014, SIAM Review 56, 385).

Index legend: h, g head; q query; U values of log t; Z fine nodes; N coarse nodes; j feature.
"""

import itertools
from collections.abc import Iterator

import numpy as np

from simstudy.theory.exact.heads import EXTENT, MARGIN, ScalarHead, log_grid, scalar_heads
from simstudy.theory.exact.integrals import Factors, Moments
from simstudy.theory.functions import Array, Function, expectation, product_expectation
from simstudy.theory.tilting import HeadKernels

# Spectra of Gaussians and of e^{-e^z} are cut where they have fallen to exp(-_DECAY).
_DECAY = 36.0
# e^{-e^z} = 0 beyond.
_LARGE = 100.0
# Heads that see the same linear function of the key have a smaller 1 - correlation^2, by rounding alone.
_ALIGNED = 1e-13
_BLOCK = 4096
_NARROW_BLOCK = 256
# Laws are the same at every query under distance logits, those of one head in all its pairs, and kept up to this size.
_KEPT_NUMBERS = 10_000_000
_LARGEST_PRODUCT = 4e9
MAX_COARSE = 2500
MAX_FINE = 200_000


class ScalarLaw:
    """One key N(0, covariance) with its response, as seen by heads that depend on one linear function of it each."""

    def __init__(
        self, kernels: HeadKernels, regression: Function, variance: Function, n_keys: int, coarsening: float
    ) -> None:
        self._covariance, self._regression, self._variance = kernels.covariance, regression, variance
        self._n_keys, self._coarsening = n_keys, coarsening
        self._heads = [scalar_heads(kernels, q) for q in range(kernels.projected_queries.shape[1])]
        highest, self._distinctness = self._resolution()
        self._spacing = coarsening * np.pi / highest
        self._coarse = _centred_grid(max(self._spacing, 2 * EXTENT / MAX_COARSE))
        self._known: dict[bytes, Moments] = {}

    def too_large(self) -> str:
        """Say why the grids would be too large, or nothing."""
        n_coarse = 2 * EXTENT / self._spacing
        if n_coarse > MAX_COARSE:
            return (
                f"quadrature needs {n_coarse:.0f} nodes an axis (at most {MAX_COARSE}): two heads are nearly but not "
                "exactly aligned, or the regression function varies too fast"
            )
        n_fine = 2 * EXTENT / min(self._fine_spacing(heads) for heads in self._heads)
        if n_fine > MAX_FINE:
            return (
                f"quadrature needs {n_fine:.0f} nodes to resolve the kernels (at most {MAX_FINE}): they are too narrow"
            )
        return ""

    def factors(self, query: int) -> list[Factors]:
        """Functions of tK of every head, on the coarse nodes."""
        nodes, spacing = self._fine(query)
        heads = self._heads[query]
        grids = [log_grid(head, self._n_keys, self._distinctness, self._coarsening) for head in heads]
        return self._project(heads, nodes, spacing, grids)

    def alone(self, query: int, head: int) -> Moments:
        """Law of one key as one head sees it, (N,)."""
        return self._coarsely(self._heads[query][head].axis[None])

    def together(
        self, query: int, factors: list[Factors], first: int, second: int
    ) -> tuple[tuple[Factors, Factors], tuple[Moments, Moments], Moments]:
        """Factors of two heads, the law of one key as each sees it and as both see it."""
        heads = self._heads[query][first], self._heads[query][second]
        axes = np.array([head.axis for head in heads])
        correlation = axes[0] @ self._covariance @ axes[1]
        if 1 - correlation**2 < _ALIGNED:
            return self._aligned(query, heads, float(np.sign(correlation)))
        return (
            (factors[first], factors[second]),
            (self.alone(query, first), self.alone(query, second)),
            self._coarsely(axes),
        )

    def _coarsely(self, axes: Array) -> Moments:
        """Law of one key on the coarse nodes of one axis or two."""
        key = axes.tobytes()
        if key not in self._known:
            if sum(known.one.size for known in self._known.values()) > _KEPT_NUMBERS:
                self._known.clear()
            grid = np.stack(np.meshgrid(*[self._coarse] * len(axes), indexing="ij"), axis=-1)
            self._known[key] = self._moments(axes, grid)
        return self._known[key]

    def _aligned(
        self, query: int, heads: tuple[ScalarHead, ScalarHead], sign: float
    ) -> tuple[tuple[Factors, Factors], tuple[Moments, Moments], Moments]:
        nodes, spacing = self._fine(query)
        law = Moments(*(spacing * moment for moment in self._moments(heads[0].axis[None], nodes[:, None])))
        # The kernels are functions of one another, so no step in log t may be longer than what e^{-tK} allows.
        grids = [log_grid(head, self._n_keys, 0.0, self._coarsening) for head in heads]
        if len(nodes) * len(grids[0][0]) * len(grids[1][0]) > _LARGEST_PRODUCT:
            # Too coarse for the pair: the error estimate will say so.
            grids = [log_grid(head, self._n_keys, 1.0, self._coarsening) for head in heads]
        turned = heads[1]._replace(offset=sign * heads[1].offset, slope=sign * heads[1].slope)
        first, second = self._expand([heads[0], turned], nodes, grids)
        return (first, second), (law, law), law

    def _fine_spacing(self, heads: list[ScalarHead]) -> float:
        # e^{-tK} is analytic where |Im log tK| < pi/2, that is in a strip of half-width pi / (2 |d log K / dx|).
        steepness = max(1.0, *(head.steepness(self._n_keys) for head in heads))
        return min(self._spacing / 2, self._coarsening * np.pi**2 / (_DECAY * steepness))

    def _fine(self, query: int) -> tuple[Array, float]:
        heads = self._heads[query]
        spacing = self._fine_spacing(heads)
        nodes = _centred_grid(spacing)
        # Elsewhere tK < exp(-_DECAY) at every t.
        seen = [head.log_kernel(nodes) > -head.log_depth(self._n_keys) - MARGIN - _DECAY for head in heads]
        return nodes[np.any(seen, axis=0)], spacing

    def _expand(self, heads: list[ScalarHead], nodes: Array, grids: list[tuple[Array, Array]]) -> list[Factors]:
        """Functions of tK at the nodes."""
        expanded = []
        for head, (log_t, steps) in zip(heads, grids, strict=True):
            z = np.exp(np.minimum(log_t[:, None] + head.log_kernel(nodes), _LARGE))
            lost, first, second = _functions(z)
            expanded.append(Factors(lost, first, second, steps))
        return expanded

    def _project(
        self, heads: list[ScalarHead], nodes: Array, spacing: float, grids: list[tuple[Array, Array]]
    ) -> list[Factors]:
        """Functions of tK integrated against the cardinal functions of the coarse nodes."""
        parts = [np.zeros((3, len(log_t), len(self._coarse))) for log_t, _ in grids]
        for block in _blocks(len(nodes), _NARROW_BLOCK):
            basis = spacing * _cardinal(nodes[block], self._coarse, self._spacing)
            for head, (log_t, _), part in zip(heads, grids, parts, strict=True):
                log_kernel = head.log_kernel(nodes[block])
                # Below `low` tK is negligible at all nodes of the block, from `high` on e^{-tK} is.
                low = np.searchsorted(log_t, -_DECAY - np.log(self._n_keys) - log_kernel.max())
                high = np.searchsorted(log_t, MARGIN + 1 - log_kernel.min())
                part[:, low:high] += _functions(np.exp(log_t[low:high, None] + log_kernel)) @ basis
                part[0, high:] += basis.sum(axis=0)
        return [Factors(part[0], part[1], part[2], steps) for part, (_, steps) in zip(parts, grids, strict=True)]

    def _moments(self, axes: Array, values: Array) -> Moments:
        """Density of the values (..., A) of the key on A axes, times 1 and conditional moments of Y."""
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
            own = product_expectation(self._regression, self._regression, means, spread)
            moments.mean[index] = density[index] * expectation(self._regression, means, spread)
            moments.square[index] = density[index] * (own + expectation(self._variance, means, spread))
        return moments

    def _axes(self) -> Iterator[Array]:
        """Distinct axes (1, d) of heads, and distinct pairs (2, d) of axes that are not aligned."""
        distinct = {}
        for heads in self._heads:
            for one, two in itertools.combinations_with_replacement(heads, 2):
                correlation = one.axis @ self._covariance @ two.axis
                axes = np.array([one.axis] if 1 - correlation**2 < _ALIGNED else [one.axis, two.axis])
                distinct[axes.tobytes()] = axes
        yield from distinct.values()

    def _resolution(self) -> tuple[float, float]:
        """Highest frequency in joint densities times E[m^2 | values], and least conditional deviation, on an axis."""
        frequencies, largest = [], 1.0
        # The error of a density is multiplied by n in the moments.
        decay = _DECAY + 2 * np.log(self._n_keys)
        for axes in self._axes():
            precisions = np.linalg.inv(axes @ self._covariance @ axes.T)
            slopes = precisions @ axes @ self._covariance
            for slope, precision in zip(slopes, np.diag(precisions), strict=True):
                waves = (2 * np.abs(part.linear.imag @ slope).max() for part in self._regression.exponentials)
                frequencies.append(max(waves, default=0.0) + np.sqrt(2 * decay * precision))
                largest = max(largest, precision)
        return max(frequencies), largest**-0.5


def _functions(z: Array) -> Array:
    """1 - e^{-z}, z e^{-z} and z^2 e^{-z}, stacked."""
    left = np.exp(-z)
    return np.array([-np.expm1(-z), z * left, z * (z * left)], dtype=np.float64)


def _centred_grid(spacing: float) -> Array:
    half = np.ceil(EXTENT / spacing)
    return spacing * np.arange(-half, half + 1)


def _cardinal(points: Array, nodes: Array, spacing: float) -> Array:
    """Cardinal functions sin(pi u) / (pi u), u = (point - node) / spacing, with one sine for each point."""
    position, index = points / spacing, np.round(nodes / spacing)
    nearest = np.round(position)
    offset = position[:, None] - index
    parity = 1.0 - 2.0 * (np.add.outer(nearest, index) % 2)
    sine = np.sin(np.pi * (position - nearest)) / np.pi
    cardinal = np.ones(offset.shape)
    return np.divide(sine[:, None] * parity, offset, out=cardinal, where=offset != 0)


def _blocks(n: int, size: int) -> list[slice]:
    return [slice(i, i + size) for i in range(0, n, size)]
