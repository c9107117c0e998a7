"""Settings of an ensemble: rules of bandwidth, combinations of heads, learners, query points."""

from typing import Annotated, ClassVar, Literal, get_args

from simstudy.design.settings.records import (
    KINDS,
    Choice,
    Count,
    Part,
    Points,
    Positive,
    Probability,
    Ratio,
    Several,
    Vector,
    Whole,
    tagged_union,
    tags,
)  # fmt: skip


class FixedBandwidth(Choice):
    """A bandwidth that depends on nothing."""

    kind: Literal["fixed"]
    value: Positive


class AttentionBandwidth(Choice):
    """Standard attention scaling τ = √p, that is b = p^(1/4)."""

    kind: Literal["attention"]


class RateBandwidth(Choice):
    """b = constant · n^(−1/(2·smoothness + p)), the rate-optimal order for smoothness β."""

    kind: Literal["rate"]
    smoothness: Positive = 2.0
    constant: Positive = 1.0


class _LengthRule(Choice):
    """b = value/√g: logits grow by the factor g from n₀ = tuned_at keys, where g = 1, to n keys."""

    tuned_at: Several
    value: Positive = 1.0


class YarnBandwidth(_LengthRule):
    """g = (rate·ln(n/n₀) + 1)² above n₀, and 1 up to it: YaRN (Peng and others 2023)."""

    kind: Literal["yarn"]
    rate: Positive = 0.1  # as fitted by the authors


class LogBandwidth(_LengthRule):
    """g = (ln n/ln n₀)^power: 1 is scalable softmax (Nakanishi 2025), 2 is one of the laws of gap counting."""

    kind: Literal["log"]
    power: Positive = 1.0


Bandwidth = Annotated[
    FixedBandwidth | AttentionBandwidth | RateBandwidth | YarnBandwidth | LogBandwidth,
    tagged_union("fixed", "value", (int, float)),
]


class KnownCombination(Choice):
    """The average of heads, their sum, or weights of sum 1 like Fibonacci numbers, the largest first."""

    kind: Literal["uniform", "sum", "fibonacci"]


class GivenCombination(Choice):
    """Weights stated in the design."""

    kind: Literal["given"]
    weights: Vector


class GeometricCombination(Choice):
    """a_h ∝ ratio^h, Σ a_h = 1."""

    kind: Literal["geometric"]
    ratio: Ratio = 0.5


class OptimalCombination(Choice):
    """Weights of least mean squared error within a class, from the second moments that the simulation estimates.

    "affine" is Σ a_h = 1, "simplex" also a_h ≥ 0, "front_greater" also a_1 ≥ a_2 ≥ …, "unconstrained" a learned output
    projection.
    """

    kind: Literal["optimal"]
    within: Literal["affine", "simplex", "front_greater", "unconstrained"] = "affine"


class FittedCombination(Choice):
    """Weights of least squares on fresh validation pairs of each replicate."""

    kind: Literal["fitted"]
    n_validation: Count
    within: Literal["affine", "simplex", "unconstrained"] = "affine"


class ProductCombination(Choice):
    """One head whose kernel is the product of the kernels of all heads: logits are added (arXiv 2511.20698).

    ``mean`` averages logits: the log-linear pool of the kernels.
    """

    kind: Literal["product"]
    logits: Literal["sum", "mean"] = "sum"


_Fixed = KnownCombination | GivenCombination | GeometricCombination
Combination = Annotated[
    _Fixed | OptimalCombination | FittedCombination | ProductCombination,
    tagged_union("given", "weights", (list, tuple)),
]


class Learner(Choice):
    """Members of an ensemble: random heads and bandwidths that they ignore, and what they tell beside estimates."""

    ignores: ClassVar[frozenset[str]] = frozenset()
    statistics: ClassVar[tuple[str, ...]] = ()


class NadarayaWatsonLearner(Learner):
    """Attention heads: Nadaraya–Watson estimators, each in the subspace of its projection."""

    kind: Literal["nadaraya_watson"]


_OF_HEADS = frozenset({"arrangement", "query_projections", "bandwidth"})


class TrainedLearner(Learner):
    """The same heads after gradient descent of their projections on the leave-one-out error of the ensemble.

    Least squares gives the output projection and values at every step, if they are learned.  The estimate of a head
    is n_heads times what it adds.
    """

    kind: Literal["trained"]
    steps: Whole = 60
    rate: Positive = 0.3
    learned: Literal["projections", "output", "values"] = "projections"
    decay: Positive = 0.01

    ignores = frozenset({"query_projections"})


class RandomForestLearner(Learner):
    """Regression trees on bootstrap samples (Breiman 2001); n_heads is their number."""

    kind: Literal["random_forest"]
    max_features: Count = 1  # features tried at a split
    min_leaf: Count = 5  # least number of pairs in a leaf

    ignores = _OF_HEADS


class GradientBoostingLearner(Learner):
    """Small trees, each fitted to what those before it leave (Friedman 2002); n_heads is their number.

    Estimates of trees are n_heads times what each adds, and of the first the mean of outcomes, so that their average
    is the prediction.
    """

    kind: Literal["gradient_boosting"]
    shrinkage: Part = 0.1  # share of a tree that is added
    depth: Count = 2  # splits from the root to a leaf, at most
    subsample: Part = 0.5  # random share of pairs a tree is fitted to

    ignores = _OF_HEADS


class AntColonyLearner(Learner):
    """Ants that estimate the qualities of sites and recruit one another; n_heads ants, at most n_keys steps.

    Sites are the query points, their qualities the regression function there (arXiv 2603.20328).
    """

    kind: Literal["ant_colony"]
    exploration: Probability = 0.3  # probability that an ant ignores the others
    quorum: Positive = 20.0  # recruitment at which the colony decides
    per_ant: bool = False  # the quorum is for each ant, so that it grows with the colony
    reinforcement: Positive = 0.1  # pheromone laid for one unit of recruitment
    evaporation: Probability = 0.05  # share of pheromone lost in a step
    enthusiasm: Positive = 0.2  # recruitment for one unit of quality above the mean

    ignores = _OF_HEADS
    statistics = ("regret",)


_Trees = RandomForestLearner | GradientBoostingLearner
_Learners = NadarayaWatsonLearner | TrainedLearner | _Trees | AntColonyLearner
LearnerChoice = Annotated[_Learners, KINDS]
WITHOUT_BANDWIDTH = frozenset(tag for each in get_args(_Learners) if "bandwidth" in each.ignores for tag in tags(each))
"""Kinds of learners that look at no bandwidth."""


class GaussianQueries(Choice):
    """Query points drawn once from N(0, scale²·I_d) and then fixed for the whole study."""

    kind: Literal["gaussian"]
    count: Count = 16
    scale: Positive = 1.0


class OriginQuery(Choice):
    """The single query x = 0."""

    kind: Literal["origin"]


class GivenQueries(Choice):
    """Query points stated in the design; missing coordinates are 0."""

    kind: Literal["points"]
    points: Points


class HeldOutQueries(Choice):
    """Rows of the user's data that are held out of the keys, the first ``count`` of them."""

    kind: Literal["held_out"]
    count: Count = 16


QueryChoice = Annotated[GaussianQueries | OriginQuery | GivenQueries | HeldOutQueries, KINDS]
