"""Numbers of random instances by formula, registered by the type of their record.

`subset_sums` has those of masks.  The questions are those of arXiv 2604.08829 (hierarchies of resolutions), arXiv
2511.20698 (hidden states of logits), arXiv 2604.23681 (what can be told of single heads from their sum, and ranks after
layer normalisation), Bhojanapalli and others (2020; patterns that a head can draw), arXiv 2604.00038 (decision of a
colony after its first wave), and of heads at a temperature.
"""

import math
from functools import singledispatch

import numpy as np

from simstudy.design.settings.cell import Cell
from simstudy.design.settings.processes import AutoregressiveKeys, GaussianKeys, HeteroscedasticNoise, Linear
from simstudy.design.settings.systems import temperatures as heads
from simstudy.design.settings.systems.hierarchy import ResolutionInstance, ScoreKernelInstance
from simstudy.design.settings.systems.hopfield import HopfieldNoiseInstance
from simstudy.design.settings.systems.identifiability import HeadRecoveryInstance, LayerNormInstance
from simstudy.design.settings.systems.low_rank import PatternInstance
from simstudy.design.settings.systems.published_colonies import AcarInstance
from simstudy.design.settings.tables import Instance
from simstudy.temperatures import Problem, best_sharpness, exact_risk, log_bessel, log_mean_kernel


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
def hopfield_noise(instance: HopfieldNoiseInstance, cell: Cell) -> dict[str, float]:
    """Numbers of the instance ``hopfield_noise``."""
    return {"noise_factor": noise_factor(instance.memory, instance.layers, instance.persistence)}


def noise_factor(memory: float, layers: int, persistence: float = 0.0) -> float:
    """Variance of noise in the hidden state of the last layer over that in the logits of one layer.

    Formula :eq:`noise-factor`, of noise with a correlation between any two layers (persistence), which nothing reduces.
    """
    former = memory ** (2 * (layers - 1))
    independent = former + (1.0 - former) * (1.0 - memory) / (1.0 + memory)
    return persistence + (1.0 - persistence) * independent


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
def pattern(instance: PatternInstance, cell: Cell) -> dict[str, float]:
    """Expected error of the logits of heads as wide as the tokens let them be; of others it has no closed form.

    Of n(n − 1) normal numbers, the logits of n queries less their means, tokens of d features show min(n, d) by
    min(n − 1, d) of whatever directions they span: the share of their squares has a beta distribution.
    """
    n, d = cell.data.n_keys, cell.data.n_features
    inside = min(n - 1, d)
    if cell.heads.head_dim < inside:
        return {}
    return {"pattern_error": 1.0 - min(n, d) * inside / (n * (n - 1))}


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
    """Risk and noise of an aligned pair without a sink: the limit in simstudy/docs/how-hot.md, with two heads."""
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
