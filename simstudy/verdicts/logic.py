"""From p-values of inequalities to p-values of what is claimed of many of them.

A claim is a statement on inequalities between estimates.  Each has two one-sided p-values: ``against`` it (small if
the data refute it) and ``in_favour`` of it (small if they prove it).  "The inequalities that fail weigh at most so
much" covers all that is needed: "all hold", "some holds", a share of pairs, a rank correlation.  Whether one looks once
or continually is a matter of the one-sided p-values alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

ROUNDING = 1e-9
"""Of sums of weights, relative to their total."""


class Evidence(NamedTuple):
    """p-values of "it holds" (small: contradicted) and of "it fails" (small: supported); parts along the last axis."""

    against: Array
    in_favour: Array

    @property
    def opposite(self) -> Evidence:
        """Evidence on the contrary."""
        return Evidence(self.in_favour, self.against)


NOTHING = Evidence(np.array(1.0), np.array(1.0))
"""Decides neither way."""


def together(parts: Sequence[Evidence]) -> Evidence:
    """Return single pieces of evidence as the parts of one array."""
    return Evidence(*(np.array(column) for column in zip(*parts, strict=True)))


def failing_weigh_at_most(budget: float, weights: Array, parts: Evidence) -> Evidence:
    """Return the evidence on "failing parts weigh at most the budget", under any dependence; weights are positive."""
    total = float(weights.sum())
    slack = ROUNDING * total
    against = _declared(parts.against, weights, total - budget - slack)
    return Evidence(against, _declared(parts.in_favour, weights, budget + slack))


def _declared(p_values: Array, weights: Array, left: float) -> Array:
    """p-value for declaring a finding of so many parts that the others weigh at most ``left``.

    If the parts without a finding weigh more than ``left``, then so does some subset of at most 1 + c of them, c the
    largest number of parts that weigh no more; and one of these must be among the declared.  Bonferroni's correction
    is for them alone (with equal weights: Lehmann and Romano 2005; with c = 0 the intersection-union test of Berger
    1982).
    """
    if left < 0:
        return np.ones(p_values.shape[:-1])
    if weights.sum() <= left:
        return np.zeros(p_values.shape[:-1])
    order = np.argsort(p_values, axis=-1)
    others = weights.sum() - np.cumsum(weights[order], axis=-1)
    last = np.argmax(others <= left, axis=-1)[..., None]
    p = np.take_along_axis(np.take_along_axis(p_values, order, axis=-1), last, axis=-1)[..., 0]
    at_stake = 1 + np.count_nonzero(np.cumsum(np.sort(weights)) <= left)
    return np.minimum(p * at_stake, 1.0)


def every(parts: Evidence) -> Evidence:
    """Return the evidence on "all parts hold"."""
    return failing_weigh_at_most(0.0, np.ones(parts.against.shape[-1]), parts)


def some(parts: Evidence) -> Evidence:
    """Return the evidence on "at least one part holds"."""
    n = parts.against.shape[-1]
    return failing_weigh_at_most(n - 1.0, np.ones(n), parts)


def least_among(inside: NDArray[np.bool_], larger: Array) -> Evidence:
    """Return the evidence on "the least mean is one of those ``inside``", of which some are and some are not.

    ``larger[i, j]`` is small if mean i is proven to exceed mean j.
    """

    def refuted(some_of: NDArray[np.intp], every_of: NDArray[np.intp]) -> Array:
        table = larger[..., some_of[:, None], every_of]
        return np.asarray(np.minimum(table.min(axis=-1) * len(every_of), 1.0).max(axis=-1))

    within, without = np.flatnonzero(inside), np.flatnonzero(~inside)
    return Evidence(refuted(within, without), refuted(without, within))


def possible_minima(larger: Array) -> Array:
    """Return for each level the p-value of "it has the least mean": those not below α are a confidence set of it."""
    return np.asarray(np.minimum(larger.min(axis=-1) * max(larger.shape[-1] - 1, 1), 1.0))


def spearman_budget(ranks: Array, at_least: float) -> float:
    """Return what discordant pairs may weigh, by differences of centred ranks, for a correlation of so much."""
    n = len(ranks)
    norm = np.linalg.norm(ranks - ranks.mean())
    return float(norm**2 - at_least * norm * np.sqrt(n * (n * n - 1) / 12))
