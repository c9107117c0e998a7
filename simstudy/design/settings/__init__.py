"""What a cell is made of: the settings that a design file may state, as immutable validated records."""

from simstudy.design.settings.cell import TABLE_OF, TABLES
from simstudy.design.settings.code import OwnFunction, OwnKeys
from simstudy.design.settings.ensembles import (
    FixedBandwidth,
    GaussianQueries,
    GivenQueries,
    HeldOutQueries,
    ProductCombination,
)
from simstudy.design.settings.instance import Instance
from simstudy.design.settings.mechanisms import (
    CompactNormaliser,
    LowRankTransformation,
    MergeTransformation,
    Normaliser,
)
from simstudy.design.settings.processes import (
    Additive,
    AutoregressiveKeys,
    FileKeys,
    FileRegression,
    FittedRegression,
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
    ResidualNoise,
    Ridge,
    SphereKeys,
    StudentKeys,
    StudentNoise,
    Sum,
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
from simstudy.design.settings.rows import Rows
from simstudy.design.settings.systems import System
from simstudy.design.settings.tables import Data, Estimator, Heads, Queries, Simulation
