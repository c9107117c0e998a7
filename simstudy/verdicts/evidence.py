"""p-values of one inequality, corrected for skewness and valid at all looks together, and of many inequalities.

For a contrast with independent block contributions, let t = (estimate − bound)/MCSE.  Hall's (1992) cubic removes its
skewness, and the tail of Student's t turns it into a normal score z.  The p-value is the reciprocal of the one-sided
normal mixture 2 √(ρ/(n + ρ)) exp(S²/2(n + ρ)) Φ(S/√(n + ρ)) at S = z√n.  It is a test martingale of Brownian motion
(Robbins 1970; Howard et al. 2021), which sums of influence values approximate (Waudby-Smith et al. 2024).  So the
level holds however often replicates are added and the p-value is computed again.

If one block has much of the squared error, Kolmogorov's inequality is used, with the level spread over doublings of n.
A count of events that is equal in every block shows no error.  If exceptions by one in a share q of replicates change
the estimate by d, N replicates without any have probability (1 − q)^N ≤ exp(−d·unseen).

A claim states inequalities.  Each has two p-values: ``against`` it (small if the data contradict it) and ``in_favour``
of it (small if they support it).  Every claim has the form "at most k inequalities fail".
"""

import functools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from simstudy.design.settings.cell import MIN_BLOCKS
from simstudy.replicates.intervals import students_of, widening

Array = NDArray[np.float64]

MIXTURE = 16.0
"""ρ, parameter of the mixture: bounds are tightest at 10 to 20 times as many blocks."""
LARGEST_SHARE = 0.2
"""Largest share of the squared error of one of 64 or more blocks with which a normal distribution is assumed."""
SPENT = 0.1
"""Share of the level that is spent on the number of units that differ, for a difference of shares of events."""
N_RANDOMISATIONS = 16
"""Number of randomisations of the quasi-Monte Carlo points of a control variate, which all cells share."""
SKEWED = 0.89
"""Largest skewness of a mean times z³, z the normal quantile of the level, with which Student's t is used."""


class Contrast(NamedTuple):
    """A smooth function of estimates with its Monte Carlo error: numbers, or arrays of one shape."""

    value: Any
    mcse: Any  # Standard error, 0 if blocks differ by rounding alone
    n_blocks: Any  # Number of simulated blocks or of draws of a population: n in bounds that hold at all looks
    degrees: Any  # Degrees of freedom of the error: number of contributions, each of one or more blocks, minus 1
    skewness: Any  # Skewness of the value: sum of the cubes of contributions over the cube of the error
    largest_share: Any  # Share of the squared error of the largest contribution
    # Number of replicates over the change of the value by an exception of one in all of them, if events are counted
    # and all blocks are equal; otherwise infinite
    unseen: Any = np.inf
    rounding: Any = 0.0  # Rounding error of the value, if blocks differ only by rounding; otherwise 0
    few: Any = 0.0  # Printed error if all blocks count equal events: that of two exceptions (Agresti and Coull 1998)
    fewest: Any = MIN_BLOCKS  # Least number of contributions for a verdict
    concentration: Any = 0.0  # Sum of the fourth powers of contributions over the fourth power of the error
    one_look: Any = 0.0  # Level of a claim if the number of blocks was fixed before a single look, otherwise 0
    # Numbers of units that add 1 and −1 to a difference of shares of events, with origin 0; of events and of other
    # units of a single share, with origin 1/2; otherwise NaN
    plus: Any = np.nan
    minus: Any = np.nan
    origin: Any = 0.0
    # For a ratio: function of a bound, sign(denominator)·(numerator − bound·denominator); at −∞ |denominator|
    beyond: Any = np.nan
    df: Any = np.inf  # Degrees of freedom of Student's t, if fewer, as randomisations add to the error

    def moved(self, value: Any) -> "Contrast":
        """Return a contrast with another value and the same error, which is no share or difference of shares."""
        return self._replace(value=value, plus=np.nan)

    @property
    def dominated(self) -> Any:
        """True if one block has too much of the squared error for a normal approximation."""
        return self.largest_share > LARGEST_SHARE * np.sqrt(MIN_BLOCKS / np.clip(self.degrees + 1.0, 1.0, MIN_BLOCKS))

    @property
    def widening(self) -> Any:
        """Printed error divided by the standard error; 1 at one look, where Student's t is exact for normal blocks."""
        of = self.skewness, self.concentration, self.degrees + 1, self.fewest
        return np.where(self.degrees > 0.0, 1.0, np.nan) if np.any(self.one_look) else widening(*of)

    @property
    def error(self) -> Any:
        """Error for tests of inequalities: standard error and rounding error in quadrature."""
        return np.hypot(self.mcse, self.rounding)

    def at(self, *place: int) -> "Contrast":
        """Return the contrast at a place of an array of contrasts."""
        return Contrast(*(np.broadcast_to(field, np.shape(self.value))[place] for field in self))


def why_no_verdict(contrast: Contrast) -> str:
    """Return why a contrast allows no verdict, or one only on distant bounds; otherwise an empty string."""
    if np.isfinite(contrast.plus):
        return ""
    if not np.isfinite(contrast.value):
        return "no estimate, or not a smooth function of means"
    if (blocks := contrast.degrees + 1) < contrast.fewest:
        common = " that cells with more and with fewer have in common" if contrast.n_blocks >= contrast.fewest else ""
        return f"{blocks:g} blocks of replicates or draws{common}, {contrast.fewest:g} are needed"
    if contrast.dominated:
        share = f"one block of {blocks:g} holds {100 * contrast.largest_share:.0f} % of the squared error"
        return share + ("" if contrast.one_look else ", so that only distant bounds decide")
    if contrast.one_look and abs(contrast.skewness * special.ndtri(contrast.one_look) ** 3) > SKEWED:
        return f"blocks are skewed: the mean of {blocks:g} has a skewness of {contrast.skewness:.1f}"
    if np.isfinite(contrast.unseen):
        return f"all {blocks:g} blocks are alike, so that only more than rare exceptions explain decides"
    if callable(contrast.beyond) and p_above(contrast.beyond(-np.inf), 0.0) > 1e-3:
        return "the denominator of the ratio may be 0"
    return ""


def p_above(contrast: Contrast, bound: ArrayLike) -> Array:
    """Return the p-value of the hypothesis "the truth is at most the bound": small if it is shown to be above.

    It is 1 without an estimate, with too few blocks, and if estimate and bound are equal.  A ratio is above the bound
    if the numerator is above bound times denominator (Fieller 1954) and the sign of the denominator is shown, too.
    """
    value, _, n_blocks, degrees, skewness = (np.asarray(field, float) for field in contrast[:5])
    distance = value - np.asarray(bound, float)
    with np.errstate(invalid="ignore", divide="ignore"):
        # Without error any difference is certain, except for exceptions that did not occur in these replicates.
        t = np.where(distance == 0.0, 0.0, distance / contrast.error)
        exceptions = np.where(distance > 0.0, np.exp(-np.maximum(distance, 0.0) * contrast.unseen), 0.0)
    if callable(contrast.beyond):  # `dominated` as for the ratio, so p rises with the bound
        sides = contrast.beyond(bound)._replace(largest_share=contrast.largest_share), contrast.beyond(-np.inf)
        return np.maximum.reduce([exceptions, *(p_above(side, 0.0) for side in sides)])
    sound = np.isfinite(value) & (degrees + 1 >= contrast.fewest) & ~np.isnan(t)
    t, n_blocks, degrees = (np.where(sound, each, other) for each, other in ((t, 0.0), (n_blocks, 1.0), (degrees, 1.0)))
    heavy, single = contrast.dominated, np.asarray(contrast.one_look) > 0.0
    z = normal_score(skewness_corrected(t, np.where(sound & ~heavy, skewness, 0.0)), np.minimum(degrees, contrast.df))
    with np.errstate(divide="ignore"):
        by_variance = np.where(t > 0.0, np.minimum(2.0 * _shares_spent(n_blocks) / t**2, 1.0), 1.0)
    found = np.where(single, special.stdtr(degrees, -t), np.where(heavy, by_variance, anytime_p(z, n_blocks)))
    p, counted = np.maximum(np.where(sound, found, 1.0), exceptions), np.isfinite(contrast.plus)
    return np.where(counted, exact_p(contrast, bound), p) if counted.any() else p


def p_below(contrast: Contrast, bound: ArrayLike) -> Array:
    """Return the p-value of the hypothesis "the truth is at least the bound": small if it is shown to be below."""
    return p_above(mirrored(contrast), -np.asarray(bound, float))


def mirrored(contrast: Contrast) -> Contrast:
    """Return the contrast with the opposite sign."""
    signs: dict[str, Any] = {name: -np.asarray(getattr(contrast, name)) for name in ("value", "skewness", "origin")}
    if callable(beyond := contrast.beyond):
        signs["beyond"] = lambda bound: mirrored(beyond(-bound))
    return contrast._replace(**signs, plus=contrast.minus, minus=contrast.plus)


def exact_end(contrast: Contrast, level: Any) -> Array:
    """Return the lower end of the exact interval of a share of events, or of a difference of two in the same units.

    The first is that of Clopper and Pearson (1934).  The second is Δ(2π − 1): Δ is the share of units that differ, at
    its worse end for a tenth of the level, and π is the share of +1 among them.  Its sign is that of McNemar's test.
    """
    plus, differ, n, single = contrast.plus, contrast.plus + contrast.minus, contrast.n_blocks, contrast.origin != 0.0
    share = 2.0 * _least_share(plus, differ, np.where(single, 1.0, 1.0 - SPENT) * level) - 1.0
    share = np.maximum(share, np.where(_least_share(plus, differ, level) > 0.5, 0.0, -1.0))
    few, many = _least_share(differ, n, SPENT * level), 1.0 - _least_share(n - differ, n, SPENT * level)
    return np.asarray(contrast.origin + share * np.where(single, 0.5, np.where(share > 0.0, few, many)))


def _least_share(events: Any, n: Any, level: Any) -> Array:
    return np.nan_to_num(special.betaincinv(events, n - events + 1.0, level))  # NaN without events: the share is 0


def exact_p(contrast: Contrast, bound: ArrayLike) -> Array:
    """Return the exact p-value of the hypothesis "the truth is at most the bound" for shares of events.

    It is binomial for a share, McNemar's for a difference and the bound 0, else the level whose interval ends there.
    """
    beyond = np.asarray(bound, float) - contrast.origin
    chance = np.clip(0.5 + beyond, 0.0, 1.0)
    some, plus = contrast.plus > 0.0, np.maximum(contrast.plus, 1e-9)
    p = np.where(some, special.betainc(plus, contrast.minus + 1.0, chance), 0.5 + beyond >= 0.0)  # no share is below 0
    shifted = np.asarray((np.asarray(contrast.origin) == 0.0) & (beyond != 0.0))
    if not shifted.any():
        return np.asarray(p)
    low, high = np.full(shifted.shape, -700.0), np.zeros(shifted.shape)
    for _ in range(50):
        above = exact_end(contrast, np.exp(middle := (low + high) / 2)) - contrast.origin > beyond
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return np.where(shifted, np.exp(high), p)


def evidence_between(contrast: Contrast, bounds: tuple[float, float]) -> "Evidence":
    """Return the evidence that the truth is above the lower and below the upper bound, a part for each finite bound."""
    sides = [(p_above, p_below, bounds[0]), (p_below, p_above, bounds[1])]
    ends = [(fails(contrast, end), holds(contrast, end)) for holds, fails, end in sides if np.isfinite(end)]
    return Evidence(*(np.stack(column, axis=-1) for column in zip(*ends, strict=True)))


def _shares_spent(n_blocks: Array) -> Array:
    """Return j(j + 1) for the j-th doubling of the least number of blocks; the reciprocals add up to 1.

    By Kolmogorov's inequality, 2/t² times this factor is a p-value that holds at all looks.
    """
    doubling = np.floor(np.log2(np.maximum(n_blocks, MIN_BLOCKS) / MIN_BLOCKS)) + 1.0
    return np.asarray(doubling * (doubling + 1.0))


def interval(contrast: Contrast, level: float) -> tuple[float, float]:
    """Return the bounds at which `p_above` and `p_below` are the level; infinite where there is no verdict."""
    if not np.isfinite(contrast.value) or contrast.degrees + 1 < contrast.fewest:
        return -np.inf, np.inf
    n_blocks, value, error = float(contrast.n_blocks), float(contrast.value), float(contrast.error)
    end = _least_ratio if callable(contrast.beyond) else exact_end if np.isfinite(contrast.plus) else None
    if end is not None:
        return float(end(contrast, level)), -float(end(mirrored(contrast), level))
    exceptions = -np.log(level) / contrast.unseen
    if contrast.one_look:
        below = above = -special.stdtrit(contrast.degrees, level)
    elif contrast.dominated:
        below = above = np.sqrt(2.0 * _shares_spent(np.array(n_blocks)) / level)
    else:
        score, skewness = anytime_score(level, n_blocks), float(contrast.skewness)
        below, above = (students_of(score, sign * skewness, min(contrast.degrees, contrast.df)) for sign in (1.0, -1.0))
    return float(value - below * error - exceptions), float(value + above * error + exceptions)


def _least_ratio(contrast: Contrast, level: float) -> float:
    """Return the lower confidence bound of a ratio, at which `p_above` is the level, by Brent's method on its angle."""
    from scipy import optimize

    scale = float(abs(contrast.value) + contrast.error) or 1.0
    ends = -np.pi / 2, np.arctan(contrast.value / scale)
    if p_above(contrast, scale * np.tan(ends[0])) >= level:
        return -np.inf
    angle = optimize.brentq(lambda a: np.log(np.maximum(p_above(contrast, scale * np.tan(a)), 1e-300) / level), *ends)
    return float(scale * np.tan(angle))


def skewness_corrected(t: ArrayLike, skewness: ArrayLike) -> Array:
    """Return Hall's monotone cubic transform of Student's statistic, which corrects for skewness (Hall 1992)."""
    t, skewness = np.asarray(t, float), np.asarray(skewness, float)
    finite = np.where(np.isfinite(t), t, 0.0)
    corrected = finite + skewness * (2.0 * finite**2 + 1.0) / 6.0 + skewness**2 * finite**3 / 27.0
    return np.where(np.isfinite(t), corrected, t)


def normal_score(t: ArrayLike, degrees: ArrayLike) -> Array:
    """Return the standard normal deviate with the tail probability of Student's t: z with sf(z) = sf_t(t)."""
    t = np.asarray(t, float)
    return np.copysign(special.ndtri(special.stdtr(degrees, -np.abs(t))), t)


def anytime_p(z: ArrayLike, n_blocks: ArrayLike) -> Array:
    """Return the p-value, valid at all looks together, of the normal score z of (estimate − bound)/MCSE."""
    n = np.asarray(n_blocks, float)
    score = np.asarray(z, float) * np.sqrt(n / (n + MIXTURE))
    below, above = np.minimum(score, 0.0), np.maximum(score, 0.0)
    with np.errstate(divide="ignore"):
        tail = np.log(0.5 * special.erfcx(-below / np.sqrt(2.0)))
    rising = np.where(score < 0.0, tail, 0.5 * above**2 + special.log_ndtr(above))
    return np.asarray(np.exp(-np.maximum(np.log(2.0) + 0.5 * np.log(MIXTURE / (n + MIXTURE)) + rising, 0.0)))


# Cached, as it is equal for all comparisons of a claim with the same number of blocks.
@functools.lru_cache(maxsize=4096)
def anytime_score(level: float, n_blocks: float) -> float:
    """Return the normal score at which `anytime_p` is the level: the half-width of a confidence sequence in MCSE."""
    wanted = 0.5 * np.log((n_blocks + MIXTURE) / MIXTURE) - np.log(2.0 * level)
    score = np.sqrt(2.0 * (wanted + np.log(2.0)))
    # Newton's method on a convex function, from above; to import scipy.optimize takes a tenth of a short run.
    for _ in range(6):  # exact to rounding at any level and number of blocks
        slope = score + np.exp(-0.5 * score**2 - special.log_ndtr(score)) / np.sqrt(2.0 * np.pi)
        score -= (0.5 * score**2 + special.log_ndtr(score) - wanted) / slope
    return float(score * np.sqrt((n_blocks + MIXTURE) / n_blocks))


class Evidence(NamedTuple):
    """p-values against a statement (small: contradicted) and for it (small: supported); parts along the last axis."""

    against: Array
    in_favour: Array


NOTHING = Evidence(np.array(1.0), np.array(1.0))  # supports and contradicts nothing


def at_most_fail(parts: Evidence) -> Evidence:
    """Return the evidence on "no more than k parts fail", from k = 0 to all of them (Lehmann and Romano 2005).

    For k = 0, Bonferroni's correction gives ``against``, the intersection-union test (Berger 1982) ``in_favour``.
    """
    n, none = parts.against.shape[-1], np.zeros((*parts.against.shape[:-1], 1))
    against = np.sort(parts.against, axis=-1) * np.arange(n, 0, -1)
    in_favour = np.sort(parts.in_favour, axis=-1)[..., ::-1] * np.arange(1, n + 1)
    both = (against, none + 1.0), (in_favour, none)
    return Evidence(*(np.minimum(np.concatenate(each, axis=-1), 1.0) for each in both))


def all_hold(parts: Evidence) -> Evidence:
    """Return the evidence on "all parts hold"."""
    return Evidence(*(p[..., 0] for p in at_most_fail(parts)))


def least_among(inside: NDArray[np.bool_], larger: Array) -> Evidence:
    """Return the evidence on "the least mean is among those ``inside``"; at least one is inside and one outside.

    ``larger[i, j]`` is the p-value of "mean i is at most mean j".
    """

    def refuted(some_of: NDArray[np.intp], every_of: NDArray[np.intp]) -> Array:
        table = larger[..., some_of[:, None], every_of]
        return np.asarray(np.minimum(table.min(axis=-1) * len(every_of), 1.0).max(axis=-1))

    within, without = np.flatnonzero(inside), np.flatnonzero(~inside)
    return Evidence(refuted(within, without), refuted(without, within))


def possible_minima(larger: Array) -> Array:
    """Return the p-value of "this mean is the least" for each mean: those of at least α are a confidence set."""
    return np.asarray(np.minimum(larger.min(axis=-1) * max(larger.shape[-1] - 1, 1), 1.0))
