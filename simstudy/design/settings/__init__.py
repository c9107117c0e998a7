"""What a cell is made of: the settings that a design file may state, as immutable validated records.

`tables` holds the tables of a design file, `processes` and `ensembles` the alternatives of single settings,
`mechanisms` the pieces of attention, `instances` what replicates may measure in place of estimates, `records` what they
are built on.
"""

from simstudy.design.settings.ensembles import (
    AttentionBandwidth,
    Bandwidth,
    FixedBandwidth,
    GaussianQueries,
    GivenQueries,
    OriginQuery,
    ProductCombination,
    RateBandwidth,
)
from simstudy.design.settings.instances import (
    DepthInstance,
    HeadRecoveryInstance,
    HierarchyInstance,
    HopfieldNoiseInstance,
    HopfieldTowerInstance,
    Instance,
    KqSvdInstance,
    LatentCacheInstance,
    LayerNormInstance,
    MaskedHeadInstance,
    NormaliserInstance,
    PerturbedLogitsInstance,
    RandomHeadsInstance,
    ResolutionInstance,
    ScoreKernelInstance,
)
from simstudy.design.settings.mechanisms import (
    CompactNormaliser,
    LowRankTransformation,
    MergeTransformation,
    MixtureTransformation,
    Normaliser,
    Transformation,
)
from simstudy.design.settings.processes import (
    Additive,
    AutoregressiveKeys,
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
from simstudy.design.settings.records import (
    LARGEST,
    SMALLEST,
    Count,
    Line,
    NonNegative,
    Paragraphs,
    Positive,
    Real,
    Record,
)
from simstudy.design.settings.tables import TABLE_OF, TABLES, Data, Estimator, Heads, Queries, Simulation

__all__ = [
    "LARGEST", "SMALLEST", "TABLES", "TABLE_OF", "Additive", "AttentionBandwidth", "AutoregressiveKeys",
    "Bandwidth", "Bumps", "CompactNormaliser", "Count", "Data", "DepthInstance", "Estimator", "FixedBandwidth",
    "GaussianKeys", "GaussianNoise", "GaussianQueries", "GivenQueries", "HeadRecoveryInstance", "Heads",
    "HeteroscedasticNoise", "HierarchyInstance", "HopfieldNoiseInstance", "HopfieldTowerInstance", "Instance",
    "Interaction", "Keys", "KqSvdInstance", "LatentCacheInstance", "LayerNormInstance", "Line", "Linear",
    "LowRankTransformation", "MaskedHeadInstance", "MergeTransformation", "MixtureKeys", "MixtureTransformation",
    "Noise", "NonNegative", "Normaliser", "NormaliserInstance", "OriginQuery", "Paragraphs", "PerturbedLogitsInstance",
    "Positive", "ProductCombination", "Quadratic", "Queries", "RandomHeadsInstance", "RateBandwidth", "Real",
    "Record", "Regression", "ResolutionInstance", "Ridge", "ScoreKernelInstance", "Simulation", "SphereKeys",
    "StudentKeys", "StudentNoise", "Sum", "Term", "Transformation", "Wave", "Zero",
]  # fmt: skip
