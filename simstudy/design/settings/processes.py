"""What data may be made of: distributions of keys and noise, regression functions."""

from typing import Annotated, Literal

from pydantic import Field

from simstudy.design.settings.code import OwnFunction, OwnKeys
from simstudy.design.settings.records import (
    KINDS,
    LARGEST,
    Choice,
    Count,
    Line,
    NonNegative,
    Positive,
    Real,
    Several,
    Share,
    Vector,
    Whole,
)

DegreesOfFreedom = Annotated[float, Field(gt=2, le=LARGEST, allow_inf_nan=False)]
"""Of a Student distribution that has a variance."""

# ---------------------------------------------------------------- keys


class GaussianKeys(Choice):
    """X ~ N(0, Σ): identity, equicorrelated, or autoregressive with Σ_jk = correlation^|j−k|."""

    kind: Literal["gaussian"] = Field("gaussian", description="distribution of the keys")
    structure: Literal["identity", "equicorrelated", "autoregressive"] = Field(
        "identity", description="shape of the covariance matrix, unit variances"
    )
    correlation: Share = Field(0.0, description="a correlation in [0, 1)")


class SphereKeys(Choice):
    """X uniform on the sphere |x| = radius: what a normalisation layer does to Gaussian keys."""

    kind: Literal["sphere"]
    radius: Positive = Field(1.0, description="a positive radius")


class StudentKeys(Choice):
    """Multivariate Student-t keys, scaled to identity covariance."""

    kind: Literal["student_t"]
    df: DegreesOfFreedom = Field(description="degrees of freedom above 2, so that the covariance exists")


class MixtureKeys(Choice):
    """Equal mixture of unit-covariance Gaussians centred at separation·e_c, c ≤ n_components, recentred to mean 0."""

    kind: Literal["mixture"]
    n_components: Several = Field(2, description="at least 2 components, at most n_features")
    separation: Positive = Field(2.0, description="a positive distance of each centre along its own axis")


class AutoregressiveKeys(Choice):
    """Keys in time: X_i = coefficient·X_{i−1} + √(1 − coefficient²)·Z_i in every feature, X_1 and all Z_i ~ N(0, I)."""

    kind: Literal["autoregressive"]
    coefficient: Annotated[float, Field(gt=-1, lt=1, allow_inf_nan=False)] = Field(
        description="correlation of a key with the next one, between -1 and 1; 0 is white noise"
    )


class FileKeys(Choice):
    """Keys are rows of the user's data, all equally likely; a column of it may be the response."""

    kind: Literal["file"]
    path: Line = Field(
        description="a .npy, .npz, .csv or .parquet file, relative to the design, or a data set that scikit-learn "
        'ships, such as "sklearn:diabetes"'
    )
    columns: Annotated[tuple[Line, ...], Field(strict=False, min_length=1)] | None = Field(
        None, description="names of the columns that are features; all but the response by default"
    )
    response: Line | None = Field(None, description="name of the column of responses")
    sampling: Literal["with_replacement", "without"] = Field(
        "with_replacement", description='"with_replacement", or "without": no row twice in one data set'
    )
    standardise: bool = Field(True, description="true: features have mean 0 and variance 1; false: as in the file")
    held_out: Whole = Field(0, description="number of rows set aside at random, under the seed, to be queries")


Keys = Annotated[GaussianKeys | SphereKeys | StudentKeys | MixtureKeys | AutoregressiveKeys | FileKeys | OwnKeys, KINDS]

# ---------------------------------------------------------------- noise


class GaussianNoise(Choice):
    """ε ~ N(0, σ²)."""

    kind: Literal["gaussian"]


class StudentNoise(Choice):
    """ε = σ·t/sd(t): heavy-tailed with variance σ²."""

    kind: Literal["student_t"]
    df: DegreesOfFreedom = Field(description="degrees of freedom above 2, so that the variance exists")


class HeteroscedasticNoise(Choice):
    """ε | X ~ N(0, σ²(1 + strength·X₁²)/(1 + strength)): mean variance σ² when X₁ has unit variance."""

    kind: Literal["heteroscedastic"]
    strength: Positive = Field(1.0, description="a positive weight of X₁² in the variance")


class ResidualNoise(Choice):
    """ε = noise_sd · a residual of the fitted regression, each predicted by a fit to other rows; together of mean 0."""

    kind: Literal["residuals"]
    paired: bool = Field(False, description="true: the residual of the row of the key; false: that of any row")


Noise = Annotated[GaussianNoise | StudentNoise | HeteroscedasticNoise | ResidualNoise, KINDS]

# ---------------------------------------------------------------- regression functions


class Zero(Choice):
    """m(x) = 0: pure noise."""

    kind: Literal["zero"]


class Linear(Choice):
    """m(x) = Σ_j coefficients_j x_j; coordinates beyond the list have coefficient 0."""

    kind: Literal["linear"]
    coefficients: Vector = Field((1.0,), description="at most n_features coefficients")


class Quadratic(Choice):
    """m(x) = Σ_j coefficients_j x_j²; a single coefficient holds for every coordinate: c·|x|²."""

    kind: Literal["quadratic"]
    coefficients: Vector = Field((0.25,), description="one coefficient for |x|², or at most n_features of them")


class _Waves(Choice):
    wave: Literal["sin", "cos"] = "sin"
    amplitude: Real = Field(1.0, description="a finite amplitude")
    frequency: Positive = Field(1.0, description="a positive angular frequency")


class Ridge(_Waves):
    """m(x) = amplitude · wave(frequency · u·x), u = direction/|direction|; missing coordinates are 0."""

    kind: Literal["ridge"]
    direction: Vector = Field((1.0,), description="a nonzero vector of at most n_features numbers")


class Additive(_Waves):
    """m(x) = Σ_{j≤n_active} a_j wave(frequency·x_j).

    a_j = amplitude · exp(−rate(j−1)) for ``exponential`` decay, amplitude · j^(−rate) for ``power``,
    amplitude for ``none``.
    """

    kind: Literal["additive"]
    decay: Literal["none", "exponential", "power"] = Field("none", description="how amplitudes fall along coordinates")
    rate: NonNegative = Field(0.0, description="a decay rate of at least 0")
    n_active: Count | None = Field(None, description="number of coordinates used; all n_features by default")


class Interaction(Choice):
    """m(x) = amplitude · Π_{j in coordinates} x_j, two distinct coordinates counted from 1."""

    kind: Literal["interaction"]
    amplitude: Real = Field(1.0, description="a finite amplitude")
    coordinates: tuple[Count, Count] = Field(
        (1, 2), strict=False, description="two distinct coordinates, counted from 1, at most n_features"
    )


_Terms = Zero | Linear | Quadratic | Ridge | Additive | Interaction | OwnFunction
Term = Annotated[_Terms, KINDS]


class Sum(Choice):
    """m(x) = sum of the terms."""

    kind: Literal["sum"]
    terms: Annotated[tuple[Term, ...], Field(strict=False, min_length=1)] = Field(
        description="a list of regression functions"
    )

    def _describe(self) -> str:
        return " + ".join(term.label for term in self.terms)


class FileRegression(Choice):
    """m at a row of the user's data = its response; at other points m is unknown."""

    kind: Literal["file"]


class FittedRegression(Choice):
    """m = what scikit-learn fits to the rows of the user's data, at these and at those held out."""

    kind: Literal["fitted"]
    learner: Literal["linear", "nearest_neighbours", "random_forest", "gradient_boosting"] = "random_forest"


Regression = Annotated[_Terms | Sum | FileRegression | FittedRegression, KINDS]
