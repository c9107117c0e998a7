"""What a cell is made of: the settings that a design file may state, as immutable validated records.

Import pydantic only.  `tables` holds the tables of a design file, `processes` and `rules` the alternatives of single
settings, `records` what they are built on.
"""

from simstudy.settings.processes import (
    Additive,
    Bumps,
    GaussianKeys,
    GaussianNoise,
    HeteroscedasticNoise,
    Interaction,
    Keys,
    Linear,
    MixtureKeys,
    Noise,
    Quadratic,
    Regression,
    Ridge,
    SphereKeys,
    StudentKeys,
    StudentNoise,
    Sum,
    Term,
    Wave,
    Zero,
)
from simstudy.settings.records import LARGEST, SMALLEST, Count, NonNegative, Positive, Real, Record
from simstudy.settings.rules import (
    AttentionBandwidth,
    Bandwidth,
    FixedBandwidth,
    GaussianQueries,
    GivenQueries,
    OriginQuery,
    RateBandwidth,
)
from simstudy.settings.tables import TABLE_OF, TABLES, Data, Estimator, Heads, Queries, Simulation

__all__ = [
    "LARGEST", "SMALLEST", "TABLES", "TABLE_OF", "Additive", "AttentionBandwidth", "Bandwidth", "Bumps", "Count",
    "Data", "Estimator", "FixedBandwidth", "GaussianKeys", "GaussianNoise", "GaussianQueries", "GivenQueries",
    "Heads",
    "HeteroscedasticNoise", "Interaction", "Keys", "Linear", "MixtureKeys", "Noise", "NonNegative", "OriginQuery",
    "Positive", "Quadratic", "Queries", "RateBandwidth", "Real", "Record", "Regression", "Ridge", "Simulation",
    "SphereKeys", "StudentKeys", "StudentNoise", "Sum", "Term", "Wave", "Zero",
]  # fmt: skip
