"""What a cell is made of: the settings that a design file may state, as immutable validated records.

Imports pydantic only.  Every field name is unique over all tables, so a factor is named by its field alone
(``bandwidth``, not ``estimator.bandwidth``) and becomes the coordinate of that name in the results.
Field descriptions are what a user reads when a value is refused.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

LARGEST, SMALLEST = 1e9, 1e-9
"""Bounds on the magnitude of a number, zero apart: the ratio of two squares, 1e36, still fits in float32."""
MAX_COUNT = 2**53
"""Largest count of anything: counts become coordinates, and float64 holds whole numbers up to here."""

Positive = Annotated[float, Field(ge=SMALLEST, le=LARGEST, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, le=LARGEST, allow_inf_nan=False)]
Real = Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
Degrees = Annotated[float, Field(ge=0, le=90, allow_inf_nan=False)]
# TOML arrays arrive as lists; the records hold tuples, so that nothing can change after validation.
Vector = Annotated[tuple[Real, ...], Field(strict=False, min_length=1)]
Points = Annotated[tuple[Vector, ...], Field(strict=False, min_length=1)]


class Record(BaseModel):
    """Immutable, strictly typed record that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Choice(Record):
    """One alternative of a setting, told apart by its kind; ``"kind"`` alone is short for a table that states no more.

    The optional ``label`` is what tables, figures and coordinates call it; it has no bearing on any number.
    """

    label: str = Field("", exclude=True, min_length=1, max_length=60, description="a short text")

    def model_post_init(self, _: Any) -> None:
        """Fill in the label: ``student_t(df=5)``, unless the design states one."""
        if not self.label:
            # The record is frozen for its users; this is still its making.
            object.__setattr__(self, "label", self._describe())

    def _describe(self) -> str:
        first = next(name for name in type(self).model_fields if name != "label")
        stated = {k: v for k, v in self.model_dump(exclude={first}).items() if k in self.model_fields_set}
        inside = ", ".join(f"{k}={_brief(v)}" for k, v in stated.items())
        name = str(getattr(self, first))
        return f"{name}({inside})" if inside else name


def _brief(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(_brief(v) for v in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}={_brief(v)}" for k, v in value.items()) + "}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _named(field: str) -> BeforeValidator:
    """Accept ``"name"`` for a table whose only stated key is ``field``."""
    return BeforeValidator(lambda value: {field: value} if isinstance(value, str) else value)


# ---------------------------------------------------------------- keys


class GaussianKeys(Choice):
    """X ~ N(0, Σ): identity, equicorrelated, or autoregressive with Σ_jk = correlation^|j−k|."""

    distribution: Literal["gaussian"] = Field("gaussian", description="distribution of the keys")
    structure: Literal["identity", "equicorrelated", "autoregressive"] = Field(
        "identity", description="shape of the covariance matrix, unit variances"
    )
    correlation: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = Field(
        0.0, description="a correlation in [0, 1)"
    )


class SphereKeys(Choice):
    """X uniform on the sphere |x| = radius: what a normalisation layer does to Gaussian keys."""

    distribution: Literal["sphere"]
    radius: Positive = Field(1.0, description="a positive radius")


class StudentKeys(Choice):
    """Multivariate Student-t keys, scaled to identity covariance."""

    distribution: Literal["student_t"]
    df: Annotated[float, Field(gt=2, le=LARGEST, allow_inf_nan=False)] = Field(
        description="degrees of freedom above 2, so that the covariance exists"
    )


class MixtureKeys(Choice):
    """Equal mixture of unit-covariance Gaussians centred at separation·e_c, c ≤ n_components, recentred to mean 0."""

    distribution: Literal["mixture"]
    n_components: Annotated[int, Field(ge=2, le=MAX_COUNT)] = Field(
        2, description="at least 2 components, at most n_features"
    )
    separation: Positive = Field(2.0, description="a positive distance of each centre along its own axis")


Keys = Annotated[
    Annotated[GaussianKeys | SphereKeys | StudentKeys | MixtureKeys, Field(discriminator="distribution")],
    _named("distribution"),
]

# ---------------------------------------------------------------- noise


class GaussianNoise(Choice):
    """ε ~ N(0, σ²)."""

    distribution: Literal["gaussian"]


class StudentNoise(Choice):
    """ε = σ·t/sd(t): heavy-tailed with variance σ²."""

    distribution: Literal["student_t"]
    df: Annotated[float, Field(gt=2, le=LARGEST, allow_inf_nan=False)] = Field(
        description="degrees of freedom above 2, so that the variance exists"
    )


class HeteroscedasticNoise(Choice):
    """ε | X ~ N(0, σ²(1 + strength·X₁²)/(1 + strength)): mean variance σ² when X₁ has unit variance."""

    distribution: Literal["heteroscedastic"]
    strength: Positive = Field(1.0, description="a positive weight of X₁² in the variance")


Noise = Annotated[
    Annotated[GaussianNoise | StudentNoise | HeteroscedasticNoise, Field(discriminator="distribution")],
    _named("distribution"),
]

# ---------------------------------------------------------------- regression functions

Wave = Literal["sin", "cos"]


class Zero(Choice):
    """m(x) = 0: pure noise."""

    function: Literal["zero"]


class Linear(Choice):
    """m(x) = Σ_j coefficients_j x_j; coordinates beyond the list have coefficient 0."""

    function: Literal["linear"]
    coefficients: Vector = Field((1.0,), description="at most n_features coefficients")


class Quadratic(Choice):
    """m(x) = Σ_j coefficients_j x_j²; a single coefficient holds for every coordinate: c·|x|²."""

    function: Literal["quadratic"]
    coefficients: Vector = Field((0.25,), description="one coefficient for |x|², or at most n_features of them")


class Ridge(Choice):
    """m(x) = amplitude · wave(frequency · u·x), u = direction/|direction|; missing coordinates are 0."""

    function: Literal["ridge"]
    wave: Wave = Field("sin", description='"sin" or "cos"')
    amplitude: Real = Field(1.0, description="a finite amplitude")
    frequency: Positive = Field(1.0, description="a positive angular frequency")
    direction: Vector = Field((1.0,), description="a nonzero vector of at most n_features numbers")


class Additive(Choice):
    """m(x) = Σ_{j≤n_active} a_j wave(frequency·x_j).

    a_j = amplitude · exp(−rate(j−1)) for ``exponential`` decay, amplitude · j^(−rate) for ``power``,
    amplitude for ``none``.
    """

    function: Literal["additive"]
    wave: Wave = Field("sin", description='"sin" or "cos"')
    amplitude: Real = Field(1.0, description="a finite amplitude")
    frequency: Positive = Field(1.0, description="a positive angular frequency")
    decay: Literal["none", "exponential", "power"] = Field("none", description="how amplitudes fall along coordinates")
    rate: NonNegative = Field(0.0, description="a decay rate of at least 0")
    n_active: Count | None = Field(None, description="number of coordinates used; all n_features by default")


class Interaction(Choice):
    """m(x) = amplitude · Π_{j in coordinates} x_j, two distinct coordinates counted from 1."""

    function: Literal["interaction"]
    amplitude: Real = Field(1.0, description="a finite amplitude")
    coordinates: tuple[Count, Count] = Field(
        (1, 2), strict=False, description="two distinct coordinates, counted from 1, at most n_features"
    )


class Bumps(Choice):
    """m(x) = Σ_c amplitudes_c exp(−|x − centres_c|²/(2·width²)); missing centre coordinates are 0."""

    function: Literal["bumps"]
    centres: Points = Field(((0.0,),), description="centres, each of at most n_features numbers")
    amplitudes: Vector = Field((1.0,), description="one amplitude for each centre")
    width: Positive = Field(1.0, description="a positive width")


Term = Annotated[
    Annotated[
        Zero | Linear | Quadratic | Ridge | Additive | Interaction | Bumps,
        Field(discriminator="function"),
    ],
    _named("function"),
]


class Sum(Choice):
    """m(x) = sum of the terms."""

    function: Literal["sum"]
    terms: Annotated[tuple[Term, ...], Field(strict=False, min_length=1)] = Field(
        description="a list of regression functions"
    )

    def _describe(self) -> str:
        return " + ".join(term.label for term in self.terms)


Regression = Annotated[
    Annotated[
        Zero | Linear | Quadratic | Ridge | Additive | Interaction | Bumps | Sum,
        Field(discriminator="function"),
    ],
    _named("function"),
]

# ---------------------------------------------------------------- the tables of a design file


class Data(Record):
    """Data-generating process: n pairs (X_i, Y_i), Y = m(X) + ε."""

    n_keys: Count = Field(description="number of training pairs n, at least 1 and at most 2³²")
    n_features: Annotated[int, Field(ge=1, le=2**20)] = Field(
        description="dimension d of the key space, at least 1 and at most 2²⁰"
    )
    key_distribution: Keys = Field(GaussianKeys(), description="gaussian, sphere, student_t or mixture")
    regression: Regression = Field(
        Zero(function="zero"),
        description="zero, linear, quadratic, ridge, additive, interaction, bumps or sum",
    )
    noise: Noise = Field(GaussianNoise(distribution="gaussian"), description="gaussian, student_t or heteroscedastic")
    noise_sd: NonNegative = Field(1.0, description="noise standard deviation σ of at least 0")


class Heads(Record):
    """H projections W_h of shape (d, p), and how they lie to one another."""

    n_heads: Count = Field(description="number of heads H, at least 1")
    head_dim: Count = Field(description="dimension p of one head, at least 1 and at most n_features")
    arrangement: Literal["aligned", "orthogonal", "rotated", "principal_angles", "haar", "haar_redrawn", "file"] = (
        Field(description="aligned, orthogonal, rotated, principal_angles, haar, haar_redrawn (each replicate) or file")
    )
    angle: Degrees | None = Field(
        None, description='degrees in [0, 90] between any two heads; for arrangement = "rotated" only'
    )
    principal_angles: Annotated[tuple[Degrees, ...], Field(strict=False)] | None = Field(
        None, description='head_dim angles in degrees; for arrangement = "principal_angles" only'
    )
    file: str | None = Field(
        None, description='path of a .npy array (H, d, p), relative to the design; for arrangement = "file" only'
    )
    query_projections: Literal["same", "opposite", "haar"] = Field(
        "same", description='"same" as the key projections, "opposite" sign in every second head, or "haar"'
    )

    @property
    def redrawn(self) -> bool:
        """Whether every replicate has heads of its own."""
        return self.arrangement == "haar_redrawn"


class RateBandwidth(Choice):
    """b = constant · n^(−1/(2·smoothness + p)), the rate-optimal order for smoothness β."""

    rule: Literal["rate"]
    smoothness: Positive = Field(2.0, description="a positive smoothness β")
    constant: Positive = Field(1.0, description="a positive constant")


class AttentionBandwidth(Choice):
    """Standard attention scaling τ = √p, that is b = p^(1/4)."""

    rule: Literal["attention"]


class FixedBandwidth(Choice):
    """A bandwidth that depends on nothing."""

    rule: Literal["fixed"]
    value: Positive = Field(description="a positive bandwidth")


def _bandwidth(value: Any) -> Any:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return {"rule": "fixed", "value": value}
    return {"rule": value} if isinstance(value, str) else value


Bandwidth = Annotated[
    Annotated[FixedBandwidth | AttentionBandwidth | RateBandwidth, Field(discriminator="rule")],
    BeforeValidator(_bandwidth),
]


class Estimator(Record):
    """The NW ensemble: logits, bandwidth b (temperature τ = b²) and combination of heads."""

    logits: Literal["distance", "dot_product"] = Field("distance", description='"distance" or "dot_product"')
    bandwidth: Bandwidth = Field(
        description='a positive number, "attention" (τ = √p), or { rule = "rate", smoothness = 2, constant = 1 }'
    )
    combination: Literal["uniform", "sum"] | Vector = Field(
        "uniform", description='"uniform" (1/H), "sum" (1), or n_heads weights'
    )


class GaussianQueries(Choice):
    """Query points drawn once from N(0, scale²·I_d) and then fixed for the whole study."""

    kind: Literal["gaussian"]
    count: Count = Field(16, description="number of query points, at least 1")
    scale: Positive = Field(1.0, description="a positive standard deviation")


class OriginQuery(Choice):
    """The single query x = 0."""

    kind: Literal["origin"]


class GivenQueries(Choice):
    """Query points stated in the design; missing coordinates are 0."""

    kind: Literal["points"]
    points: Points = Field(description="query points, each of at most n_features numbers")


class Queries(Record):
    """Where the estimators are evaluated; the points are fixed over replicates."""

    queries: Annotated[
        Annotated[GaussianQueries | OriginQuery | GivenQueries, Field(discriminator="kind")], _named("kind")
    ] = Field(OriginQuery(kind="origin"), description='"origin", { kind = "gaussian" } or { kind = "points" }')


class Simulation(Record):
    """How replicates are computed: part of the identity of a cell's numbers."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(0, description="an integer in [0, 2⁶³)")
    batch_size: Annotated[int, Field(ge=16, le=2**20, multiple_of=16)] = Field(
        256, description="replicates in one batch, a multiple of 16 up to 2²⁰"
    )
    noise_treatment: Literal["integrated", "drawn"] = Field(
        "integrated", description='"integrated" (Rao–Blackwell: noise enters by its variance) or "drawn"'
    )
    dtype: Literal["float64", "float32"] = Field("float64", description='"float64" or "float32"')


TABLES: dict[str, type[Record]] = {
    "data": Data,
    "heads": Heads,
    "estimator": Estimator,
    "queries": Queries,
    "simulation": Simulation,
}
TABLE_OF: dict[str, str] = {field: table for table, model in TABLES.items() for field in model.model_fields}
