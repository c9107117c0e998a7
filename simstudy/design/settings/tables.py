"""The tables of a cell, each field of one name over all tables."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from simstudy.design.settings import ensembles, mechanisms
from simstudy.design.settings.code import OwnHeads, OwnMeasure
from simstudy.design.settings.processes import GaussianKeys, GaussianNoise, Keys, Noise, Regression, Sum, Zero
from simstudy.design.settings.records import (
    Components,
    Count,
    Degrees,
    Line,
    NonNegative,
    Positive,
    Record,
    Seed,
)


class Data(Record):
    """Data-generating process: n pairs (X_i, Y_i), Y = m(X) + ε."""

    n_keys: Count = Field(description="number of training pairs n, at least 1 and at most 2³²")
    n_features: Components = Field(description="dimension d of the key space, at least 1 and at most 2²⁰")
    key_distribution: Keys = GaussianKeys()
    regression: Regression = Zero(kind="zero")
    noise: Noise = GaussianNoise(kind="gaussian")
    noise_sd: NonNegative = Field(
        1.0, description="noise standard deviation σ of at least 0; of residuals the factor on them"
    )

    @property
    def terms(self) -> tuple[Regression, ...]:
        """Regression functions whose sum is m."""
        return self.regression.terms if isinstance(self.regression, Sum) else (self.regression,)


class Heads(Record):
    """H projections W_h of shape (d, p), and the angles between them."""

    n_heads: Count = Field(description="number of heads H, at least 1; or state total_dim in its place")
    head_dim: Count = Field(
        description="dimension p of one head, at least 1 and at most n_features; or state total_dim in its place"
    )
    total_dim: Count | None = Field(
        None,
        exclude=True,
        description="dimension budget D = n_heads · head_dim, of which it states the one that is left out",
    )
    arrangement: Literal[
        "aligned", "orthogonal", "rotated", "principal_angles", "scattered", "haar", "haar_redrawn", "file", "own"
    ] = Field(description="how heads lie to one another, haar_redrawn anew in each replicate")
    angle: Degrees | None = Field(
        None, description='degrees in [0, 90] between any two heads; for arrangement = "rotated" only'
    )
    principal_angles: Annotated[tuple[Degrees, ...], Field(strict=False)] | None = Field(
        None, description='head_dim angles in degrees; for arrangement = "principal_angles" only'
    )
    spread: NonNegative | None = Field(
        None,
        description="size of the random part of each head beside the part that all share, 0 for aligned heads; for "
        'arrangement = "scattered" only',
    )
    head_seed: Seed = Field(
        0, description="number of the draw of random heads (haar, haar_redrawn, scattered), an integer in [0, 2⁶³)"
    )
    file: Line | None = Field(
        None, description='path of a .npy array (H, d, p), relative to the design; for arrangement = "file" only'
    )
    heads_function: OwnHeads | None = Field(
        None,
        description='{ path = "FILE.py", name = "FUNCTION" }: heads by code of your own; for arrangement = "own" only',
    )
    query_projections: Literal["same", "opposite", "haar", "file"] = Field(
        "same", description='"same" as the key projections, "opposite" sign in every second head, "haar" or "file"'
    )
    query_file: Line | None = Field(
        None, description='path of a .npy array (H, d, p), relative to the design; for query_projections = "file" only'
    )
    value_projections: mechanisms.ValueProjections = Field(
        mechanisms.NoValueProjections(kind="none"),
        description="what heads make of values that are vectors, none if values are numbers",
    )

    @model_validator(mode="before")
    @classmethod
    def _spend_budget(cls, values: Any) -> Any:
        """State the number of heads that the dimension budget buys, or the dimension that is left for each."""
        given = values if isinstance(values, dict) else {}
        total = given.get("total_dim")
        for stated, other in (("head_dim", "n_heads"), ("n_heads", "head_dim")):
            share = given.get(stated)
            if isinstance(total, int) and isinstance(share, int) and share > 0 and other not in given:
                return values | {other: max(1, total // share)}
        return values

    @property
    def redrawn(self) -> bool:
        """Whether every replicate has heads of its own."""
        return self.arrangement == "haar_redrawn"


class Estimator(Record):
    """The NW ensemble: logits, bandwidth b (temperature τ = b²) and combination of heads."""

    learner: ensembles.LearnerChoice = Field(
        ensembles.NadarayaWatsonLearner(kind="nadaraya_watson"), description="members of the ensemble"
    )
    logits: Literal["distance", "dot_product"] = "distance"
    bandwidth: ensembles.Bandwidth = Field(
        description='a positive number, "attention" (τ = √p), or { kind = "rate", smoothness = 2, constant = 1 }; '
        "trees, ants and learners of your own need none"
    )
    head_bandwidths: Annotated[tuple[Positive, ...], Field(strict=False, min_length=1)] | None = Field(
        None, description="n_heads factors on the bandwidth, one for each head; all 1 by default"
    )
    key_scale: Literal["raw", "normalised"] = Field(
        "raw", description='"raw" projected keys, or "normalised" to length √head_dim in every head'
    )
    transformation: mechanisms.Transformation = Field(
        mechanisms.NoTransformation(kind="none"), description="what keys, values and queries go through before logits"
    )
    normaliser: mechanisms.Normaliser = Field(
        mechanisms.SoftmaxNormaliser(kind="softmax"), description="how logits become weights"
    )
    mask: mechanisms.Mask = Field(
        mechanisms.NoMask(kind="none"), description="which keys a query may attend to, none for all of them"
    )
    combination: ensembles.Combination = Field(
        ensembles.UniformCombination(kind="uniform"),
        description='"uniform" (1/H), "sum" (1), n_heads weights, "geometric", "fibonacci", "optimal", "fitted" or '
        '"product" (of the kernels of heads)',
    )
    reference: Literal["none", "attention", "multi_head_attention", "torch_multi_head_attention"] = Field(
        "none", description="independent computation that the measure `discrepancy` compares with"
    )
    measure_function: OwnMeasure | None = Field(
        None, description='{ path = "FILE.py", name = "FUNCTION" }: the measure `own_measure`, by code of your own'
    )

    @model_validator(mode="before")
    @classmethod
    def _without_bandwidth(cls, values: Any) -> Any:
        stated = values.get("learner") if isinstance(values, dict) else None
        kind = stated.get("kind") if isinstance(stated, dict) else getattr(stated, "kind", stated)
        idle = isinstance(kind, str) and kind in ensembles.WITHOUT_BANDWIDTH
        return {"bandwidth": 1.0} | values if idle else values

    @property
    def plain(self) -> bool:
        """Whether heads are those of softmax attention on the keys themselves."""
        return (self.transformation.kind, self.normaliser.kind) == ("none", "softmax")


class Queries(Record):
    """Where the estimators are evaluated; the points are fixed over the replicates of a batch."""

    queries: ensembles.QueryChoice = Field(
        ensembles.OriginQuery(kind="origin"),
        description='"origin", { kind = "gaussian" }, { kind = "points" } or { kind = "held_out" }',
    )


Population = Annotated[
    tuple[Literal["queries", "heads", "held_out", "rows"], ...],
    Field(strict=False),
    AfterValidator(lambda names: tuple(sorted({*names}))),
]


class Simulation(Record):
    """How replicates are computed; these entries are part of the identity of stored batches."""

    seed: Seed = Field(0, description="an integer in [0, 2⁶³)")
    batch_size: Annotated[int, Field(ge=16, le=2**20, multiple_of=16)] = Field(
        256, description="replicates in one batch, a multiple of 16 up to 2²⁰"
    )
    noise_treatment: Literal["integrated", "drawn"] = Field(
        "integrated", description='"integrated" (Rao–Blackwell: noise enters by its variance) or "drawn"'
    )
    control: Literal["none", "expansion"] = Field(
        "expansion",
        description='"expansion": an expansion of known mean is taken off each replicate, where such means are known: '
        'less Monte Carlo error; or "none", the default in grids of which a cell has no closed forms or a population',
    )
    dtype: Literal["float64", "float32"] = "float64"
    population: Population = Field(
        (),
        description='what each batch draws anew, as a sample of a population to average over: a list of "queries" '
        '(gaussian ones), "heads" (haar, scattered or own ones), "held_out" (rows of data: another split, with what is '
        'scaled by and fitted to the others) and "rows" (of data, drawn with replacement: an outer bootstrap over data '
        "sets); by default nothing, as it is drawn once and then fixed",
    )
