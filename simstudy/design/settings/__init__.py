"""What a cell is made of: the settings that a design file may state, as immutable validated records.

`tables` holds the tables of a design file, `processes` and `ensembles` the alternatives of single settings,
`mechanisms` the pieces of attention, `systems` what replicates may measure in place of estimates, `records` what they
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
from simstudy.design.settings.systems import Instance
from simstudy.design.settings.systems.compact_kernels import NormaliserInstance
from simstudy.design.settings.systems.hierarchy import HierarchyInstance, ResolutionInstance, ScoreKernelInstance
from simstudy.design.settings.systems.hopfield import HopfieldNoiseInstance, HopfieldTowerInstance
from simstudy.design.settings.systems.identifiability import DepthInstance, HeadRecoveryInstance, LayerNormInstance
from simstudy.design.settings.systems.kq_svd import KqSvdInstance
from simstudy.design.settings.systems.latent_cache import LatentCacheInstance
from simstudy.design.settings.systems.masks import MaskedHeadInstance, PerturbedLogitsInstance, RandomHeadsInstance
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
