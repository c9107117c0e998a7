"""The tables of a cell, each field of one name over all tables."""

from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from simstudy.design.settings import ensembles, mechanisms
from simstudy.design.settings.code import OwnCode, OwnHeads
from simstudy.design.settings.levels import label
from simstudy.design.settings.processes import GaussianKeys, GaussianNoise, Keys, Noise, Regression, Sum, Zero
from simstudy.design.settings.records import Components, Count, Degrees, Line, NonNegative, Positive, Record, Seed


class Table(Record):
    """Settings of a cell; cells that differ in other tables hold the same one."""

    @cached_property
    def labels(self) -> dict[str, Any]:
        """Every setting and parameter of a choice, as it labels cells in results."""
        labels: dict[str, Any] = {}
        for name in type(self).model_fields:
            labels[name] = label(value := getattr(self, name))
            if isinstance(value, Record):
                of_choice = [each for each in value if each[0] not in ("kind", "label")]
                labels |= {f"{name}.{key}": label(parameter) for key, parameter in of_choice}
        return labels

    @cached_property
    def own(self) -> tuple[tuple[str, OwnCode], ...]:
        """The user's own functions, each with the setting that states it."""
        values = ((name, getattr(self, name)) for name in type(self).model_fields)
        pieces = (
            (name, each) for name, value in values for each in (value.terms if isinstance(value, Sum) else [value])
        )
        return tuple((name, piece) for name, piece in pieces if isinstance(piece, OwnCode))


class Data(Table):
    """Data-generating process: n_keys pairs (X_i, Y_i), Y = m(X) + ε, of n_features features.

    ``noise_sd`` is the standard deviation σ of the noise, and of residuals the factor on them.
    """

    n_keys: Count
    n_features: Components
    key_distribution: Keys = GaussianKeys()
    regression: Regression = Zero(kind="zero")
    noise: Noise = GaussianNoise(kind="gaussian")
    noise_sd: NonNegative = 1.0

    @property
    def terms(self) -> tuple[Regression, ...]:
        """Regression functions whose sum is m."""
        return self.regression.terms if isinstance(self.regression, Sum) else (self.regression,)


class Heads(Table):
    """n_heads projections W_h of shape (n_features, head_dim), and how they lie to one another.

    ``total_dim`` may replace n_heads or head_dim, of which it is the product.  ``angle`` in degrees is that between any
    two "rotated" heads; ``principal_angles`` are head_dim of them.  ``spread`` is the size of the random part of a
    "scattered" head beside the part that all share.  ``head_seed`` numbers the draw of random heads.  ``file`` is a
    .npy array (head, feature, dimension), relative to the design.  "haar_redrawn" heads are new in
    each replicate; query projections are "opposite" in sign in every second head.
    """

    n_heads: Count
    head_dim: Count
    total_dim: Count | None = Field(None, exclude=True)
    arrangement: Literal[
        "aligned", "orthogonal", "rotated", "principal_angles", "scattered", "haar", "haar_redrawn", "file", "own"
    ]
    angle: Degrees | None = None
    principal_angles: Annotated[tuple[Degrees, ...], Field(strict=False)] | None = None
    spread: NonNegative | None = None
    head_seed: Seed = 0
    file: Line | None = Field(None, exclude=True)
    heads_function: OwnHeads | None = None
    query_projections: Literal["same", "opposite", "haar"] = "same"
    value_projections: mechanisms.ValueProjections = mechanisms.PlainValueProjections(kind="none")

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
        """True if every replicate has heads of its own."""
        return self.arrangement == "haar_redrawn"


class Estimator(Table):
    """The Nadaraya–Watson ensemble: logits, bandwidth b (temperature τ = b²) and combination of heads.

    ``head_bandwidths`` are factors on the bandwidth, one for each head.  Keys are "raw" or "normalised" to length
    √head_dim.  ``reference`` is an independent computation that the measure ``discrepancy`` compares with.
    """

    learner: ensembles.LearnerChoice = ensembles.NadarayaWatsonLearner(kind="nadaraya_watson")
    logits: Literal["distance", "dot_product"] = "distance"
    bandwidth: ensembles.Bandwidth
    head_bandwidths: Annotated[tuple[Positive, ...], Field(strict=False, min_length=1)] | None = None
    key_scale: Literal["raw", "normalised"] = "raw"
    transformation: mechanisms.Transformation = mechanisms.NoTransformation(kind="none")
    normaliser: mechanisms.Normaliser = mechanisms.SoftmaxNormaliser(kind="softmax")
    mask: mechanisms.Mask = mechanisms.WholeMask(kind="none")
    combination: ensembles.Combination = ensembles.KnownCombination(kind="uniform")
    reference: Literal["none", "attention", "multi_head_attention", "torch_multi_head_attention"] = "none"

    @model_validator(mode="before")
    @classmethod
    def _without_bandwidth(cls, values: Any) -> Any:
        stated = values.get("learner") if isinstance(values, dict) else None
        kind = stated.get("kind") if isinstance(stated, dict) else getattr(stated, "kind", stated)
        ignored = isinstance(kind, str) and kind in ensembles.WITHOUT_BANDWIDTH
        return {"bandwidth": 1.0} | values if ignored else values

    @property
    def plain(self) -> bool:
        """True if heads are those of softmax attention on the keys themselves."""
        return (self.transformation.kind, self.normaliser.kind) == ("none", "softmax")


class Queries(Table):
    """Where the estimators are evaluated; the points are fixed over the replicates of a batch."""

    queries: ensembles.QueryChoice = ensembles.OriginQuery(kind="origin")


Population = Annotated[
    tuple[Literal["queries", "heads", "held_out", "rows"], ...],
    Field(strict=False),
    AfterValidator(lambda names: tuple(sorted({*names}))),
]


class Simulation(Table):
    """Computation of replicates; these entries are part of the identity of stored batches.

    "integrated" noise enters by its variance.  ``control``: an expansion of known mean is taken off each replicate,
    where such means are known; by default not in grids of which a cell has no closed forms or a population.
    ``population`` names what each batch draws anew, as a sample to average over; by default it is drawn once and fixed.
    A batch of these, one draw, has by default as many replicates as take the least time to one error; others 256.
    """

    seed: Seed = 0
    noise_treatment: Literal["integrated", "drawn"] = "integrated"
    control: Literal["none", "expansion"] = "expansion"
    dtype: Literal["float64", "float32"] = "float64"
    population: Population = Field((), exclude=True)
    batch_size: Annotated[int, Field(ge=4, le=2**20)] = 256
