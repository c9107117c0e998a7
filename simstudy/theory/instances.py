"""Numbers of random instances by formula, registered by the type of their record.

The questions are those of arXiv 2604.08829 (hierarchies of resolutions),
arXiv 2604.23681 (what can be told of single heads from their sum, and ranks after layer normalisation),
arXiv 2604.00038 (decision of a colony after its first wave), of heads
at a temperature, and of masks: errors of the average of random numbers, and of the best of all their subsets.

The sums of all 2^k subsets of k random numbers lie around a point at random, with a density of 2^k times that of one
random subset, which is nearly Gaussian.  The distance from the point to the nearest of them is then that of a Poisson
process (Mertens 2001 on number partitioning), whose logarithm has the expectation given here: the mean of the distance
itself is that of the rare draws which the sums do not reach.

A target lies Z standard deviations from the mean of all subset sums of its k numbers, Z nearly standard normal, so that
its error is exponential with a mean proportional to exp(Z²/2): of a law without a mean, whose tail falls like 1/error.
The largest of M errors thus grows nearly like M, where errors all of one mean would grow like the logarithm of M.
"""

import math
from functools import singledispatch

import numpy as np
from scipy import special

from simstudy.design.settings.cell import Cell
from simstudy.design.settings.processes import AutoregressiveKeys, GaussianKeys, HeteroscedasticNoise, Linear
from simstudy.design.settings.systems import masks as settings
from simstudy.design.settings.systems import temperatures as heads
from simstudy.design.settings.systems.hierarchy import ResolutionInstance, ScoreKernelInstance
from simstudy.design.settings.systems.identifiability import HeadRecoveryInstance, LayerNormInstance
from simstudy.design.settings.systems.published_colonies import AcarInstance
from simstudy.design.settings.tables import Instance
from simstudy.temperatures import Problem, best_sharpness, exact_risk, log_bessel, log_mean_kernel
from simstudy.theory.functions import Array
from simstudy.theory.leading import NEXT_TERM_LIMIT

# Source numbers are products of two uniforms on (−1, 1): their variance, and what the random size of their sum of
# squares takes from the mean logarithm of that sum, times k: half of E x⁴/(E x²)² − 1.
_VARIANCE = 1.0 / 9.0
_SPREAD = 0.5 * (81.0 / 25.0 - 1.0)
# The sum of the positive ones among k numbers has mean k/8: E max(x, 0) = 1/8, of variance 1/18 − 1/64.
_REACH, _REACH_VARIANCE = 1.0 / 8.0, 1.0 / 18.0 - 1.0 / 64.0

# Laws of the place of a target among subset sums, and where they and the logarithms of errors are summed.
_LAWS = ("normal", "sphere")

_GRID = np.linspace(-1.0, 1.0, 803)[1:-1]
_FARTHEST = 12.0
_ERRORS = np.linspace(-40.0, 10.0, 401)


@singledispatch
def instance_numbers(instance: Instance | None, cell: Cell) -> dict[str, float]:
    """Numbers of the random instance of a cell that a formula gives at any size, by name."""
    return {}


@singledispatch
def instance_leading_order(instance: Instance | None, cell: Cell) -> dict[str, float]:
    """Numbers of the random instance of a cell that have a formula for large sizes, by name."""
    return {}


@instance_numbers.register
def score_kernel(instance: ScoreKernelInstance, cell: Cell) -> dict[str, float]:
    """Signs of the eigenvalues of the mixed scores, and the share of the symmetric part.

    The symmetrised form of one level is (QK' + KQ')/2, which has p eigenvalues of either sign if the 2p columns of Q
    and K are independent; by Sylvester's law of inertia all levels together have L times as many, if the tokens of
    all levels are independent as columns: if level m and those above it have no more of them than positions.  With
    Haar O, OM has the law of M and E tr((OM)²) = |M|²/d, so that the symmetric part has (1 + 1/d)/2 of |M|².
    """
    n, d, p = cell.data.n_keys, cell.data.n_features, cell.heads.head_dim
    levels, tied = instance.levels, instance.projections == "tied"
    numbers = {"symmetric_share": 1.0 if tied else 0.5 * (1.0 + 1.0 / d)}
    room = all(d * (levels - m) <= -(-n // 2**m) for m in range(levels))
    if room and (tied or 2 * p <= d):
        numbers |= {"positive_eigenvalues": float(p * levels), "negative_eigenvalues": 0.0 if tied else p * levels}
    return numbers


@instance_numbers.register
def resolution(instance: ResolutionInstance, cell: Cell) -> dict[str, float]:
    """Error of chunk means of m(x) = Σ c_j x_j: |c|²(1 − Σ_{k,l} γ(k − l)/w²), and the noise σ²/w that they keep.

    γ are the autocovariances of a feature along the keys, if features are independent and Gaussian.
    """
    data, keys, width = cell.data, cell.data.key_distribution, instance.chunk
    numbers = {} if isinstance(data.noise, HeteroscedasticNoise) else {"level_noise": data.noise_sd**2 / width}
    lags = np.arange(width)
    if instance.signal == "band_limited":
        frequencies = 2.0 * np.pi * np.arange(1, instance.band + 1) / data.n_keys
        covariances = np.cos(np.outer(frequencies, lags)).mean(axis=0)
    elif isinstance(keys, AutoregressiveKeys):
        covariances = keys.coefficient**lags
    elif isinstance(keys, GaussianKeys) and keys.structure == "identity":
        covariances = (lags == 0).astype(np.float64)
    else:
        return numbers
    if isinstance(data.regression, Linear):
        counts = np.where(lags > 0, 2.0, 1.0) * (width - lags)
        size = float(np.square(data.regression.coefficients).sum())
        numbers["level_error"] = size * (1.0 - float(counts @ covariances) / width**2)
    return numbers


@instance_numbers.register
def head_recovery(instance: HeadRecoveryInstance, cell: Cell) -> dict[str, float]:
    """Nullity of the sum of heads, and the error of recovering them.

    Of the H·p channels at m positions that share them, W_O of rank r keeps r; gates, which differ from position to
    position, keep r at each, up to one for each head: min(Hp, min(m, H)·r).  Least squares then has the noise
    σ² Σ 1/(m s_i²), and all of the variance 1 of a direction that is lost.
    """
    n_heads, p = cell.heads.n_heads, cell.heads.head_dim
    channels, groups = n_heads * p, cell.data.n_keys // instance.held
    if instance.output == "shared":
        sizes = np.full(p, n_heads**-0.5)
    else:
        kept = min(channels, cell.data.n_features) - instance.rank_deficit
        # Equal ratios from 1 to 1/condition.
        sizes = instance.condition ** (-np.arange(kept) / max(kept - 1, 1))
    gated = instance.gates == "position"
    seen = min(channels, (min(instance.held, n_heads) if gated else 1) * len(sizes))
    numbers = {"nullity": float(groups * (channels - seen))}
    if not gated and not isinstance(cell.data.noise, HeteroscedasticNoise):
        noise = cell.data.noise_sd**2 * float((1.0 / sizes**2).sum()) / instance.held
        numbers["recovery_error"] = (noise + channels - seen) / channels
    return numbers


@instance_numbers.register
def layer_norm(instance: LayerNormInstance, cell: Cell) -> dict[str, float]:
    """Affine rank after layer normalisation LN(X) = D X P, D positive and diagonal, P = I − 11'/d.

    D changes no linear rank, so that of X P stays.  But it moves every token along its own ray from 0: of the affine
    hull of rank r, if it misses 0 after P, it makes the cone over it, of rank r + 1.
    """
    n, d = cell.data.n_keys, cell.data.n_features
    misses = instance.offset == "random"  # an offset along 1 is removed by P
    after = min(instance.rank + misses, d - 1, n - 1)
    gain = float(after - instance.rank)
    return {"normalised_affine_rank": float(after), "affine_rank_gain": gain, "centred_rank_gain": 0.0}


@instance_numbers.register
def acar(instance: AcarInstance, cell: Cell) -> dict[str, float]:
    """Decision after one wave as coded, if some of the pheromone at the start stays.

    The probability that v·max(a, 0) ≥ (n − v)·max(b, 0), a and b the observations of two sites, v the ants at the
    first: binomial, with probabilities in proportion to the qualities to the power ``heuristic``.
    """
    n_ants, noise_sd = cell.heads.n_heads, cell.data.noise_sd
    if cell.data.n_keys > 1 or instance.observation == "ant" or instance.evaporation > 0.99 or not noise_sd:
        return {}
    from scipy import integrate, stats  # their import takes most of a second, which few studies need

    qualities = np.array([10.0, 10.0 - 5.0 * instance.weakness])
    one, other = (stats.norm(q, noise_sd) for q in qualities)
    choice = stats.binom(n_ants, qualities[0] ** instance.heuristic / (qualities**instance.heuristic).sum())
    reach = qualities[1] + 9.0 * noise_sd
    total = float(other.cdf(0.0) + choice.pmf(n_ants) * other.sf(0.0))
    for v in range(1, n_ants):
        wins, _ = integrate.quad(lambda b, v=v: other.pdf(b) * one.sf(b * (n_ants - v) / v), 0.0, reach, epsabs=1e-10)
        total += float(choice.pmf(v)) * wins
    return {"acar_share": total}


@instance_numbers.register
def tempered_head(instance: heads.TemperedHeadInstance, cell: Cell) -> dict[str, float]:
    """Numbers of the instance ``tempered_head``."""
    n = cell.data.n_keys
    problem = Problem(instance.keys, cell.heads.head_dim, instance.signal, instance.shares, instance.query)
    risk = exact_risk(problem, best_sharpness(problem, instance.tuned_at) / cell.bandwidth**2, n)
    least = exact_risk(problem, best_sharpness(problem, n), n)
    return {"tempered_risk": risk, "excess_risk": 100.0 * (risk / least - 1.0)}


@instance_leading_order.register
def head_pair(instance: heads.HeadPairInstance, cell: Cell) -> dict[str, float]:
    """Risk and noise of an aligned pair without a sink: the limit of many keys, with two heads."""
    n, d = cell.data.n_keys, cell.heads.head_dim
    if instance.sink or (instance.weight and instance.partner != "aligned"):
        return {}
    best = best_sharpness(Problem("unit", d, instance.signal, instance.shares), n)
    rest = (1.0 - instance.weight) / instance.gate
    heads = [(1.0 / rest, instance.first * best)]
    heads += [(-instance.weight / rest, instance.second * best)] if instance.weight else []
    scales = [(degree, instance.signal * share) for degree, share in enumerate(instance.shares, start=1)]
    risk = sum(scale * (1.0 - sum(c * _shrinkage(d, b, degree) for c, b in heads)) ** 2 for degree, scale in scales)
    noise = 0.0
    for c, b in heads:
        for other, beside in heads:
            both, first, second = (log_mean_kernel(d, each) + each for each in (b + beside, b, beside))
            size = c * other * math.exp(both - first - second)
            noise += size
            for degree, scale in scales:
                first, second, both = (_shrinkage(d, each, degree) for each in (b, beside, b + beside))
                risk += size * scale * (1.0 - both * (first + second) + first * second) / n
    return {"pair_risk": risk + noise / n, "pair_noise": noise}


@instance_leading_order.register
def grouped_heads(instance: heads.GroupedHeadsInstance, cell: Cell) -> dict[str, float]:
    """Noise of the average of heads: n Σ w_h w_g tends to e^{cos} of the angle of queries on shared keys, else 1."""
    size = instance.heads // instance.groups
    sharing = math.exp(log_mean_kernel(cell.heads.head_dim, 1.0) + 1.0)
    return {"grouped_noise": (math.e + (size - 1) * sharing + instance.heads - size) / instance.heads}


def _shrinkage(d: int, sharpness: float, degree: int) -> float:
    """A_l: what a head leaves of a harmonic of degree l (Funk and Hecke)."""
    return math.exp(log_bessel(d / 2.0 - 1.0 + degree, sharpness) - log_bessel(d / 2.0 - 1.0, sharpness))


@instance_numbers.register
def random_heads(instance: settings.RandomHeadsInstance, cell: Cell) -> dict[str, float]:
    """Numbers of the instance ``random_heads`` that are exact: the error of the average of all heads."""
    variance = instance.correlation + (1.0 - instance.correlation) / cell.heads.n_heads
    # E ln of χ² over its degrees of freedom, one for each output.
    half = 0.5 * instance.outputs
    return {"log_average_error": float(0.5 * (special.digamma(half) - np.log(half) + np.log(variance)))}


@instance_leading_order.register
def masked_head(instance: settings.MaskedHeadInstance, cell: Cell) -> dict[str, float]:
    """Numbers of the instance ``masked_head``: the distance of an entry from the nearest subset sum."""
    count, scale = instance.width // cell.data.n_features, instance.scale
    error = nearest_sum_error(count, scale)
    # What the formula leaves out: empty and single sums, targets beyond all, E 1/Σx².
    distance = np.exp(error + np.euler_gamma)
    crowd = distance / scale + count * max(1.0 - np.log(scale), 0.0) * distance
    left = crowd + _unreached_share(count, scale) * abs(error)
    left += scale**2 / 3.0 / (count * _VARIANCE / 4.0) * _SPREAD / count
    return _where_little_is_left("log_entry_error", error, left)


@instance_leading_order.register
def best_subset(instance: settings.RandomHeadsInstance, cell: Cell) -> dict[str, float]:
    """Numbers of the instance ``random_heads`` for many heads, of independent errors: that of the best subset."""
    if instance.correlation:
        return {}
    n_heads, outputs = cell.heads.n_heads, instance.outputs
    error = best_average_error(n_heads, outputs)
    # What the formula leaves out: random mean and variance take 1/2H from each output, and k subsets more than at
    # random near the nearest take ln(1 + k).
    square = outputs * np.exp(2.0 * error)
    j = np.arange(1, n_heads)
    near = special.gammainc(0.5 * outputs, 0.5 * square * n_heads**2 / (4.0 * j * (1.0 - j / n_heads)))
    at_random = special.gammainc(0.5 * outputs, 0.5 * square * n_heads)
    crowd = float(special.comb(n_heads, j) @ (near - at_random))
    return _where_little_is_left("log_mask_error", error, 0.5 / n_heads + np.log1p(crowd) / outputs)


def _where_little_is_left(name: str, value: float, left: float) -> dict[str, float]:
    """Return a number by its name, if what its formula leaves out is a small share of it."""
    return {name: value} if left <= NEXT_TERM_LIMIT * abs(value) else {}


def nearest_sum_error(count: int, scale: float) -> float:
    """Mean logarithm of the distance of a target, uniform on (−scale, scale), from the nearest subset sum.

    Of k = count numbers, each a product of two uniforms on (−1, 1).
    """
    # Given the numbers, the sum of a random subset has mean Σx/2 and variance Σx²/4.
    variance = count * _VARIANCE / 4.0
    offset = 1.0 + scale**2 / 3.0 / variance
    density = -0.5 * (np.log(2.0 * np.pi * variance) - _SPREAD / count + offset)
    return float(-np.euler_gamma - np.log(2.0) - count * np.log(2.0) - density)


def _unreached_share(count: float, scale: float) -> float:
    """Share E (s − G)_+ / s of targets beyond the sum G of the positive numbers, by a gamma law of its moments."""
    size = _REACH_VARIANCE / _REACH
    shape, x = count * _REACH / size, scale / size
    return float(special.gammainc(shape, x) - count * _REACH / scale * special.gammainc(shape + 1.0, x))


def nearest_sum_rate(n_features: int) -> float:
    """Limit of what one hidden unit adds to :func:`nearest_sum_error`: formula :eq:`nearest-sum-rate`."""
    return float(-np.log(2.0) / n_features)


def best_average_error(n_heads: int, outputs: int) -> float:
    """Mean logarithm of the root mean square, over outputs, of the best average of a subset of normals."""
    density = 0.5 * outputs * (np.log(n_heads / (2.0 * np.pi)) - 1.0)
    volume = 0.5 * outputs * np.log(np.pi) - special.gammaln(0.5 * outputs + 1.0)
    nearest = -(n_heads * np.log(2.0) + density + volume + np.euler_gamma) / outputs
    return float(nearest - 0.5 * np.log(outputs))


def best_average_rate(n_heads: int, outputs: int) -> float:
    """Derivative of :func:`best_average_error` in the number H of heads: formula :eq:`best-average-rate`."""
    return float(-np.log(2.0) / outputs - 0.5 / n_heads)


@instance_leading_order.register
def masked_heads(instance: settings.MaskedHeadsInstance, cell: Cell) -> dict[str, float]:
    """Numbers of the instance ``masked_heads``, where the two laws of Z agree on them."""
    d, scale = cell.data.n_features, instance.scale
    entries, units = 2 * d * d * instance.heads, instance.width // d
    errors = {law: largest_entry_error(units, entries, scale, law) for law in _LAWS}
    widths = {law: d * needed_units(instance.tolerance, entries, scale, law) for law in _LAWS}
    return {
        **_where_laws_agree("log_largest_error", errors, entries * _unreached_share(units, scale)),
        **_where_laws_agree("needed_width", widths, entries * _unreached_share(widths["normal"] / d, scale)),
    }


def _where_laws_agree(name: str, values: dict[str, float], unreached: float) -> dict[str, float]:
    """Return a number by the normal law of Z, if the other law nearly gives it and few entries are out of reach."""
    value = values["normal"]
    return _where_little_is_left(name, value, abs(value - values["sphere"]) + unreached * abs(value))


def missed_share(count: int, error: Array | float, scale: float, law: str = "normal") -> Array:
    """Probability that the best subset sum misses a target by more than each error; Z normal or on a sphere."""
    variance = count * _VARIANCE / 4.0
    if law == "normal":
        place, weight = _FARTHEST * _GRID, special.softmax(-0.5 * (_FARTHEST * _GRID) ** 2)
    else:
        place, weight = np.sqrt(count) * _GRID, special.softmax(0.5 * (count - 3) * np.log1p(-(_GRID**2)))
    spread = 1.0 + scale**2 / 3.0 / variance
    density = np.exp(-0.5 * spread * place**2) / np.sqrt(2.0 * np.pi * variance)
    return np.exp(-(2.0 ** (count + 1)) * np.multiply.outer(np.asarray(error), density)) @ weight


def largest_entry_error(count: int, entries: int, scale: float, law: str = "normal") -> float:
    """Mean logarithm of the largest of the independent errors of entries; arguments as in :func:`missed_share`."""
    exceeded = -np.expm1(entries * np.log1p(-missed_share(count, np.exp(_ERRORS), scale, law)))
    return float(_ERRORS[0] + np.trapezoid(exceeded, _ERRORS))


def needed_units(tolerance: float, entries: int, scale: float, law: str = "normal") -> float:
    """Mean of how many numbers, 2 to 32, the entry needs that needs most to err by no more than the tolerance."""
    missed = np.array([missed_share(count, tolerance, scale, law) for count in range(3, settings.MAX_UNITS)])
    # Two numbers reach next to no target.
    return float(3.0 + np.sum(-np.expm1(entries * np.log1p(-missed))))


def needed_width_rate(n_features: int, n_heads: int, units: int) -> float:
    """What each unit of ln H adds to the width that H heads need, about k units: formula :eq:`needed-width-rate`."""
    entries = 2.0 * n_features**2 * n_heads
    # In units of its mean at Z = 0, which falls like 2^-k √k, an error exceeds y with probability 1/(y √(π ln y)).
    return float(n_features / (np.log(2.0) - 0.5 / units) / (1.0 + 0.5 / np.log(entries)))
