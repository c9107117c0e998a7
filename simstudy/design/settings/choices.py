"""Alternatives of each setting: data and noise, attention and its parts, combinations, learners, query points."""

from typing import Annotated, ClassVar, Literal, get_args

from pydantic import Field

from simstudy.design.settings import records
from simstudy.design.settings.functions import OwnFunction
from simstudy.design.settings.records import Choice, Count, NonNegative, Positive, Real, Vector, tagged_union

KINDS = tagged_union()
Power = Annotated[int, Field(ge=1, le=10_000, title="power | r")]
_OF_HEADS = frozenset({"arrangement", "query_projections", "bandwidth"})


class GaussianKeys(Choice):
    """X ~ N(0, Σ) of unit variances: identity, equicorrelated, or autoregressive with Σ_jk = correlation^|j−k|."""

    kind: Literal["gaussian"] = "gaussian"
    structure: Literal["identity", "equicorrelated", "autoregressive"] = "identity"
    correlation: records.Share = 0.0


class SphereKeys(Choice, kind="sphere"):
    """X uniform on the sphere |x| = radius, as are Gaussian keys after a normalisation layer."""

    radius: Positive = 1.0


class Student(Choice, kind="student_t"):
    """Student's t of variance 1: multivariate keys of identity covariance, or heavy-tailed noise ε = σ·t/sd(t)."""

    df: float = Field(gt=2, le=records.LARGEST, allow_inf_nan=False)  # the variance is finite


class MixtureKeys(Choice, kind="mixture"):
    """Equal mixture of unit-covariance Gaussians centred at separation·e_c, c ≤ n_components, recentred to mean 0."""

    n_components: records.Several = 2  # at most n_features
    separation: Positive = 2.0


class AutoregressiveKeys(Choice, kind="autoregressive"):
    """Keys in time: X_i = coefficient·X_{i−1} + √(1 − coefficient²)·Z_i in every feature, X_1 and all Z_i ~ N(0, I)."""

    coefficient: Annotated[float, Field(gt=-1, lt=1, allow_inf_nan=False)]


class FileKeys(Choice, kind="file"):
    """Keys are rows of the user's data, equally likely; one column may be the response, the others are features.

    ``path`` is a .npy or .csv file, or a data set that scikit-learn ships ("sklearn:diabetes").
    ``held_out`` rows are set aside at random, under the seed, to be queries.
    """

    path: records.Path
    columns: Annotated[tuple[records.Line, ...], Field(strict=False, min_length=1)] | None = Field(None, exclude=True)
    response: records.Line | None = Field(None, exclude=True)
    sampling: Literal["with_replacement", "without"] = "with_replacement"
    standardise: bool = True  # features have mean 0 and variance 1
    held_out: records.Whole = 0


class GaussianNoise(Choice, kind="gaussian"):
    """ε ~ N(0, σ²)."""


class HeteroscedasticNoise(Choice, kind="heteroscedastic"):
    """ε | X ~ N(0, σ²(1 + strength·X₁²)/(1 + strength)): mean variance σ² when X₁ has unit variance."""

    strength: Positive = 1.0


class ResidualNoise(Choice, kind="residuals"):
    """ε = noise_sd · a residual; residuals are cross-fitted (each row by a fit to other rows) and have mean 0.

    ``paired``: the residual belongs to the row of the key; otherwise to a random row.
    """

    paired: bool = False


class Zero(Choice, kind="zero"):
    """m(x) = 0: pure noise."""


class Linear(Choice, kind="linear", degree=1):
    """m(x) = Σ_j coefficients_j x_j; coordinates beyond the list have coefficient 0."""

    coefficients: Vector = (1.0,)


class Quadratic(Choice, kind="quadratic", degree=2):
    """m(x) = Σ_j coefficients_j x_j²; a single coefficient holds for every coordinate: c·|x|²."""

    coefficients: Vector = (0.25,)


class _Waves(Choice):
    wave: Literal["sin", "cos"] = "sin"
    amplitude: Real = 1.0
    frequency: Positive = 1.0  # angular


class Ridge(_Waves, kind="ridge"):
    """m(x) = amplitude · wave(frequency · u·x), u = direction/|direction|; missing coordinates are 0."""

    direction: Vector = (1.0,)


class Additive(_Waves, kind="additive"):
    """m(x) = Σ_{j≤n_active} a_j wave(frequency·x_j), over all features by default.

    a_j = amplitude · exp(−rate(j−1)) for ``exponential`` decay, amplitude · j^(−rate) for ``power``,
    amplitude for ``none``.
    """

    decay: Literal["none", "exponential", "power"] = "none"
    rate: NonNegative = 0.0
    n_active: Count | None = None


class Interaction(Choice, kind="interaction", degree=2):
    """m(x) = amplitude · Π_{j in coordinates} x_j, two distinct coordinates counted from 1."""

    amplitude: Real = 1.0
    coordinates: tuple[Count, Count] = Field((1, 2), strict=False)


_Terms = Zero | Linear | Quadratic | Ridge | Additive | Interaction | OwnFunction


class Sum(Choice, kind="sum"):
    """m(x) = sum of the terms."""

    terms: Annotated[tuple[Annotated[_Terms, KINDS], ...], Field(strict=False, min_length=1)]

    def _described(self) -> str:
        return " + ".join(term.label for term in self.terms)


class FileRegression(Choice, kind="file"):
    """m at a row of the user's data = its response; at other points m is unknown."""


class FittedRegression(Choice, kind="fitted"):
    """m = prediction by scikit-learn, fitted to the rows of the user's data, at these and at held-out rows."""

    learner: Literal["linear", "nearest_neighbours", "random_forest", "gradient_boosting"] = "random_forest"


class SoftmaxNormaliser(Choice, kind="softmax"):
    """w ∝ exp(z)."""


class EntmaxNormaliser(Choice, kind="entmax"):
    """w = (z/r − τ)_+^r with τ such that Σ w = 1: α-entmax with α = 1 + 1/r (Peters, Niculae and Martins 2019)."""

    power: Power  # r; sparsemax for r = 1


class SparsemaxNormaliser(Choice, kind="sparsemax"):
    """w = (z − τ)_+ with Σ w = 1: the projection on the simplex, entmax with r = 1 (Martins and Astudillo 2016)."""

    power: ClassVar[int] = 1


class TopKNormaliser(Choice, kind="top_k"):
    """w ∝ exp(z) for the k keys with the largest logits and for ties with the last of them, otherwise 0."""

    k: Count


class ReluNormaliser(Choice, kind="relu"):
    """w ∝ (z − threshold)_+: normalised ReLU.  With distance logits Epanechnikov's kernel, h² = −2 threshold b²."""

    threshold: Real


class CompactNormaliser(Choice, kind="compact"):
    """w ∝ (1 − |u|²)_+^r, u = (k_q − k_i)/(window·b): compact kernels of fixed bandwidth, from distance logits."""

    power: Power  # r; Epanechnikov's kernel for r = 1
    window: Positive = 1.0


class LocalLinearNormaliser(Choice, kind="local_linear"):
    """Weights of the intercept of a line fitted under softmax weights: local linear attention (arXiv 2510.01450).

    They sum to 1 and may be negative.  The squared slope is penalised: without a penalty it is local linear regression,
    with a large one softmax attention.
    """

    ridge: NonNegative = 0.0  # in squared bandwidths


class NoTransformation(Choice, kind="none"):
    """Keys, values and queries are those that the heads project."""


class MergeTransformation(Choice, kind="merge"):
    """Chunks of consecutive keys and their values are replaced by their means; the last chunk may be shorter."""

    stride: Count = Field(title="stride | s")


class LowRankTransformation(Choice, kind="low_rank"):
    """Keys and queries of each head compressed to fewer dimensions, fitted to keys and query points (arXiv 2512.05916).

    ``scores``: the best approximation of the matrix of their products; ``keys``: of the keys; ``stacked``: of keys and
    queries one below the other.
    """

    rank: Count = Field(title="rank | R")
    method: Literal["scores", "keys", "stacked"] = "scores"


class WholeMask(Choice, kind=("none", "causal")):
    """Every query sees all keys ("none"), or query q of Q the first ⌈q n/Q⌉ keys, as in a decoder ("causal")."""


class BandedMask(Choice, kind="banded"):
    """The last keys that a causal mask shows a query: attention in a sliding window."""

    width: Count = Field(title="width of the band | | keys")


class FileMask(Choice, kind="file"):
    """Visible keys of each query, at least one: a .npy file of booleans (queries, keys), relative to the design."""

    path: records.Path


# Values may be vectors: y = m(X) s + ε for a key, with a random direction s (E ss' = I) and noise of variance σ² per
# component.  Head h returns A_h'Σ_i w_hi y_i with its own A_h = W_V W_O, and the ensemble the sum over heads.  Errors
# are squared distances from the projections of m(x) s by the same matrices.
class PlainValueProjections(Choice, kind=("none", "disjoint")):
    """Values are numbers, the same for all heads ("none"), or each head has its own components ("disjoint")."""


class RandomValueProjections(Choice, kind="random"):
    """W_V of orthonormal columns and W_O of orthonormal rows, uniform draws of ``head_seed`` for each head."""

    n_components: int = Field(ge=2, le=2**20, title="components of a value | v")
    value_dim: Count = Field(title="dimension that a head averages | k")
    output: Literal["own", "transposed"] = "own"  # W_O: another draw, or W_V transposed


class FixedBandwidth(Choice, kind="fixed"):
    """A constant bandwidth."""

    value: Positive


class AttentionBandwidth(Choice, kind="attention"):
    """Standard attention scaling τ = √p, that is b = p^(1/4)."""


class RateBandwidth(Choice, kind="rate"):
    """b = constant · n^(−1/(2·smoothness + p)), the rate-optimal order for smoothness β."""

    smoothness: Positive = 2.0
    constant: Positive = 1.0


class YarnBandwidth(Choice, kind="yarn"):
    """b = value/(rate·ln(n/tuned_at) + 1) above tuned_at keys, and value up to them: YaRN (Peng and others 2023)."""

    tuned_at: records.Several
    value: Positive = 1.0
    rate: Positive = 0.1  # as fitted by the authors


class LogBandwidth(Choice, kind="log"):
    """b = value·(ln tuned_at/ln n)^(power/2): logits grow as (ln n)^power; scalable softmax has 1 (Nakanishi 2025)."""

    tuned_at: records.Several
    value: Positive = 1.0
    power: Positive = 1.0


class KnownCombination(Choice, kind=("uniform", "sum", "fibonacci")):
    """The average of heads, their sum, or Fibonacci numbers as weights of sum 1, the largest first."""


class GivenCombination(Choice, kind="given"):
    """Weights stated in the design."""

    weights: Vector


class GeometricCombination(Choice, kind="geometric"):
    """a_h ∝ ratio^h, Σ a_h = 1."""

    ratio: float = Field(0.5, gt=0, lt=1, allow_inf_nan=False)


class OptimalCombination(Choice, kind="optimal"):
    """Weights of least mean squared error within a class, from the second moments that the simulation estimates.

    "affine" is Σ a_h = 1, "simplex" also a_h ≥ 0, "front_greater" also a_1 ≥ a_2 ≥ …, "unconstrained" a learned output
    projection.
    """

    within: Literal["affine", "simplex", "front_greater", "unconstrained"] = "affine"


class FittedCombination(Choice, kind="fitted"):
    """Least-squares weights on fresh validation pairs of each replicate."""

    n_validation: Count
    within: Literal["affine", "simplex", "unconstrained"] = "affine"


class ProductCombination(Choice, kind="product"):
    """One head whose kernel is the product of the kernels of all heads: logits are added (arXiv 2511.20698).

    ``mean`` averages logits: the log-linear pool of the kernels.
    """

    logits: Literal["sum", "mean"] = "sum"


class Learner(Choice):
    """Members of an ensemble; settings of heads that they ignore, and statistics that they give with estimates."""

    ignores: ClassVar[frozenset[str]] = frozenset()
    statistics: ClassVar[tuple[str, ...]] = ()


class NadarayaWatsonLearner(Learner, kind="nadaraya_watson"):
    """Attention heads: Nadaraya–Watson estimators, each in the subspace of its projection."""


class TrainedLearner(Learner, kind="trained", ignores=frozenset({"query_projections"})):
    """The same heads after gradient descent of their projections on the leave-one-out error of the ensemble.

    Least squares gives the output projection and values at every step, if they are learned.  The estimate of a head
    is n_heads times its contribution.
    """

    steps: records.Whole = 60
    rate: Positive = 0.3
    learned: Literal["projections", "output", "values"] = "projections"
    decay: Positive = 0.01


class RandomForestLearner(Learner, kind="random_forest", ignores=_OF_HEADS):
    """Regression trees on bootstrap samples (Breiman 2001); n_heads is their number."""

    max_features: Count = 1  # features tried at a split
    min_leaf: Count = 5  # least number of pairs in a leaf


class GradientBoostingLearner(Learner, kind="gradient_boosting", ignores=_OF_HEADS):
    """Small trees, each fitted to the residuals of those before it (Friedman 2002); n_heads is their number.

    The estimate of a tree is n_heads times its contribution, which for the first includes the mean of outcomes.  So the
    average of trees is the prediction.
    """

    shrinkage: records.Part = 0.1  # share of a tree that is added
    depth: Count = 2  # splits from the root to a leaf, at most
    subsample: records.Part = 0.5  # random share of pairs a tree is fitted to


class AntColonyLearner(Learner, kind="ant_colony", ignores=_OF_HEADS, statistics=("regret",)):
    """Ants that estimate the quality of sites and recruit one another; n_heads ants, at most n_keys steps.

    Sites are the query points, their qualities the regression function there (arXiv 2603.20328).
    """

    exploration: records.Probability = 0.3  # probability that an ant ignores the others
    quorum: Positive = 20.0  # recruitment at which the colony decides
    per_ant: bool = False  # the quorum is for each ant, so that it grows with the colony
    reinforcement: Positive = 0.1  # pheromone laid for one unit of recruitment
    evaporation: records.Probability = 0.05  # share of pheromone lost in a step
    enthusiasm: Positive = 0.2  # recruitment for one unit of quality above the mean


class GaussianQueries(Choice, kind="gaussian"):
    """Query points drawn once from N(0, scale²·I_d), unless they are a population."""

    count: Count = 16
    scale: Positive = 1.0


class OriginQuery(Choice, kind="origin"):
    """The single query x = 0."""


class GivenQueries(Choice, kind="points"):
    """Query points stated in the design; missing coordinates are 0."""

    points: tuple[Vector, ...] = Field(strict=False, min_length=1)


class HeldOutQueries(Choice, kind="held_out"):
    """Rows of the user's data that are held out of the keys, the first ``count`` of them."""

    count: Count = 16


Keys = Annotated[GaussianKeys | SphereKeys | Student | MixtureKeys | AutoregressiveKeys | FileKeys, KINDS]
Noise = Annotated[GaussianNoise | Student | HeteroscedasticNoise | ResidualNoise, KINDS]
Regression = Annotated[_Terms | Sum | FileRegression | FittedRegression, KINDS]
_OfLogits = SoftmaxNormaliser | EntmaxNormaliser | SparsemaxNormaliser | TopKNormaliser | ReluNormaliser
Normaliser = Annotated[_OfLogits | CompactNormaliser | LocalLinearNormaliser, KINDS]
Transformation = Annotated[NoTransformation | MergeTransformation | LowRankTransformation, KINDS]
Mask = Annotated[WholeMask | BandedMask | FileMask, KINDS]
ValueProjections = Annotated[PlainValueProjections | RandomValueProjections, KINDS]
_Bandwidths = FixedBandwidth | AttentionBandwidth | RateBandwidth | YarnBandwidth | LogBandwidth
Bandwidth = Annotated[_Bandwidths, tagged_union("fixed", "value", (int, float))]
_Fixed = KnownCombination | GivenCombination | GeometricCombination
_Combinations = _Fixed | OptimalCombination | FittedCombination | ProductCombination
Combination = Annotated[_Combinations, tagged_union("given", "weights", (list, tuple))]
_Learners = NadarayaWatsonLearner | TrainedLearner | RandomForestLearner | GradientBoostingLearner | AntColonyLearner
LearnerChoice = Annotated[_Learners, KINDS]
WITHOUT_BANDWIDTH = {records.tags(each)[0] for each in get_args(_Learners) if "bandwidth" in each.ignores}
"""Kinds of learners without a bandwidth."""
QueryChoice = Annotated[GaussianQueries | OriginQuery | GivenQueries | HeldOutQueries, KINDS]
