"""Distributions of keys and noise, and regression functions."""

from typing import Annotated, Literal

from pydantic import Field

from simstudy.design.settings.code import OwnFunction
from simstudy.design.settings.records import (
    KINDS,
    LARGEST,
    Choice,
    Count,
    Line,
    NonNegative,
    Path,
    Positive,
    Real,
    Several,
    Share,
    Vector,
    Whole,
)  # fmt: skip

DegreesOfFreedom = Annotated[float, Field(gt=2, le=LARGEST, allow_inf_nan=False)]
"""Of a Student distribution that has a variance."""


class GaussianKeys(Choice):
    """X ~ N(0, Σ) of unit variances: identity, equicorrelated, or autoregressive with Σ_jk = correlation^|j−k|."""

    kind: Literal["gaussian"] = "gaussian"
    structure: Literal["identity", "equicorrelated", "autoregressive"] = "identity"
    correlation: Share = 0.0


class SphereKeys(Choice):
    """X uniform on the sphere |x| = radius: what a normalisation layer does to Gaussian keys."""

    kind: Literal["sphere"]
    radius: Positive = 1.0


class StudentKeys(Choice):
    """Multivariate Student-t keys, scaled to identity covariance."""

    kind: Literal["student_t"]
    df: DegreesOfFreedom


class MixtureKeys(Choice):
    """Equal mixture of unit-covariance Gaussians centred at separation·e_c, c ≤ n_components, recentred to mean 0."""

    kind: Literal["mixture"]
    n_components: Several = 2  # at most n_features
    separation: Positive = 2.0


class AutoregressiveKeys(Choice):
    """Keys in time: X_i = coefficient·X_{i−1} + √(1 − coefficient²)·Z_i in every feature, X_1 and all Z_i ~ N(0, I)."""

    kind: Literal["autoregressive"]
    coefficient: Annotated[float, Field(gt=-1, lt=1, allow_inf_nan=False)]


class FileKeys(Choice):
    """Keys are rows of the user's data, all equally likely; a column may be the response, all others are features.

    ``path`` is a .npy or .csv file, or a data set that scikit-learn ships ("sklearn:diabetes").
    ``held_out`` rows are set aside at random, under the seed, to be queries.
    """

    kind: Literal["file"]
    path: Path
    columns: Annotated[tuple[Line, ...], Field(strict=False, min_length=1)] | None = Field(None, exclude=True)
    response: Line | None = Field(None, exclude=True)
    sampling: Literal["with_replacement", "without"] = "with_replacement"
    standardise: bool = True  # features have mean 0 and variance 1
    held_out: Whole = 0


Keys = Annotated[GaussianKeys | SphereKeys | StudentKeys | MixtureKeys | AutoregressiveKeys | FileKeys, KINDS]


class GaussianNoise(Choice):
    """ε ~ N(0, σ²)."""

    kind: Literal["gaussian"]


class StudentNoise(Choice):
    """ε = σ·t/sd(t): heavy-tailed with variance σ²."""

    kind: Literal["student_t"]
    df: DegreesOfFreedom


class HeteroscedasticNoise(Choice):
    """ε | X ~ N(0, σ²(1 + strength·X₁²)/(1 + strength)): mean variance σ² when X₁ has unit variance."""

    kind: Literal["heteroscedastic"]
    strength: Positive = 1.0


class ResidualNoise(Choice):
    """ε = noise_sd · a residual of the fitted regression, each predicted by a fit to other rows; together of mean 0.

    ``paired``: the residual of the row of the key, and not that of any row.
    """

    kind: Literal["residuals"]
    paired: bool = False


Noise = Annotated[GaussianNoise | StudentNoise | HeteroscedasticNoise | ResidualNoise, KINDS]


class Zero(Choice):
    """m(x) = 0: pure noise."""

    kind: Literal["zero"]


class Linear(Choice):
    """m(x) = Σ_j coefficients_j x_j; coordinates beyond the list have coefficient 0."""

    kind: Literal["linear"]
    coefficients: Vector = (1.0,)


class Quadratic(Choice):
    """m(x) = Σ_j coefficients_j x_j²; a single coefficient holds for every coordinate: c·|x|²."""

    kind: Literal["quadratic"]
    coefficients: Vector = (0.25,)


class _Waves(Choice):
    wave: Literal["sin", "cos"] = "sin"
    amplitude: Real = 1.0
    frequency: Positive = 1.0  # angular


class Ridge(_Waves):
    """m(x) = amplitude · wave(frequency · u·x), u = direction/|direction|; missing coordinates are 0."""

    kind: Literal["ridge"]
    direction: Vector = (1.0,)


class Additive(_Waves):
    """m(x) = Σ_{j≤n_active} a_j wave(frequency·x_j), over all features by default.

    a_j = amplitude · exp(−rate(j−1)) for ``exponential`` decay, amplitude · j^(−rate) for ``power``,
    amplitude for ``none``.
    """

    kind: Literal["additive"]
    decay: Literal["none", "exponential", "power"] = "none"
    rate: NonNegative = 0.0
    n_active: Count | None = None


class Interaction(Choice):
    """m(x) = amplitude · Π_{j in coordinates} x_j, two distinct coordinates counted from 1."""

    kind: Literal["interaction"]
    amplitude: Real = 1.0
    coordinates: tuple[Count, Count] = Field((1, 2), strict=False)


_Terms = Zero | Linear | Quadratic | Ridge | Additive | Interaction | OwnFunction


class Sum(Choice):
    """m(x) = sum of the terms."""

    kind: Literal["sum"]
    terms: Annotated[tuple[Annotated[_Terms, KINDS], ...], Field(strict=False, min_length=1)]

    def described(self) -> str:
        """Return the label by default."""
        return " + ".join(term.label for term in self.terms)


class FileRegression(Choice):
    """m at a row of the user's data = its response; at other points m is unknown."""

    kind: Literal["file"]


class FittedRegression(Choice):
    """m = what scikit-learn fits to the rows of the user's data, at these and at those held out."""

    kind: Literal["fitted"]
    learner: Literal["linear", "nearest_neighbours", "random_forest", "gradient_boosting"] = "random_forest"


Regression = Annotated[_Terms | Sum | FileRegression | FittedRegression, KINDS]
