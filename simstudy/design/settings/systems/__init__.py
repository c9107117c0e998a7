"""Random instances whose numbers are measured: for each system a record of parameters, and what its numbers mean.

`simstudy.attention.systems` measures what is stated here, and says how to add a kind.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from simstudy.design.settings.records import Choice, Quantity, named
from simstudy.design.settings.systems import (
    compact_kernels,
    hierarchy,
    hopfield,
    identifiability,
    kq_svd,
    latent_cache,
    masks,
)
from simstudy.design.settings.systems.compact_kernels import NormaliserInstance
from simstudy.design.settings.systems.hierarchy import HierarchyInstance, ResolutionInstance, ScoreKernelInstance
from simstudy.design.settings.systems.hopfield import HopfieldNoiseInstance, HopfieldTowerInstance
from simstudy.design.settings.systems.identifiability import DepthInstance, HeadRecoveryInstance, LayerNormInstance
from simstudy.design.settings.systems.kq_svd import KqSvdInstance
from simstudy.design.settings.systems.latent_cache import LatentCacheInstance
from simstudy.design.settings.systems.masks import MaskedHeadInstance, PerturbedLogitsInstance, RandomHeadsInstance


class NoInstance(Choice):
    """The estimates of an ensemble are evaluated."""

    kind: Literal["none"]


Instance = Annotated[
    Annotated[
        NoInstance
        | NormaliserInstance
        | KqSvdInstance
        | HeadRecoveryInstance
        | LayerNormInstance
        | DepthInstance
        | HierarchyInstance
        | ScoreKernelInstance
        | ResolutionInstance
        | HopfieldNoiseInstance
        | HopfieldTowerInstance
        | MaskedHeadInstance
        | PerturbedLogitsInstance
        | RandomHeadsInstance
        | LatentCacheInstance,
        Field(discriminator="kind"),
    ],
    named("kind"),
]


QUANTITIES: dict[str, dict[str, Quantity]] = {
    **compact_kernels.QUANTITIES,
    **kq_svd.QUANTITIES,
    **identifiability.QUANTITIES,
    **hierarchy.QUANTITIES,
    **hopfield.QUANTITIES,
    **masks.QUANTITIES,
    **latent_cache.QUANTITIES,
}
"""Numbers of each kind of instance; names are unique over all kinds, as each becomes a measure."""

NAMES = tuple(name for kind in QUANTITIES.values() for name in kind)
"""Names of all quantities, in the order in which moments keep them."""
