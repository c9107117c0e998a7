"""Random instances whose numbers are measured: a record of parameters for each kind.

Imports pydantic and records only.  `simstudy.instances` measures what is stated here, and says how to add a kind.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from simstudy.settings.records import Choice, Count, Degrees, Positive, named

Share = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]


class NoInstance(Choice):
    """The estimates of an ensemble are evaluated."""

    kind: Literal["none"]


class NormaliserInstance(Choice):
    """Entmax weights of n_keys random logits beside those of the compact kernel that they should be, and softmax."""

    kind: Literal["normaliser"]
    power: Count = Field(description="power r of entmax, a whole number of at least 1")
    keys: Literal["unit", "raw"] = Field("unit", description='"unit" (queries and keys of length 1) or "raw"')


class KqSvdInstance(Choice):
    """Scores K Qᵀ of n_keys keys and queries of dimension head_dim compressed to a rank (arXiv 2512.05916).

    Both have standard deviations from 1 to ``smallest`` along orthonormal directions; the leading half of those of the
    queries is turned by ``angle`` out of the leading half of those of the keys.
    """

    kind: Literal["kq_svd"]
    rank: Count = Field(description="dimensions that are kept, at least 1 and at most head_dim")
    method: Literal["scores", "keys", "stacked"] = Field("scores", description='"scores", "keys" or "stacked"')
    angle: Degrees = Field(
        0.0, description="degrees in [0, 90] from the leading directions of keys to those of queries"
    )
    scale: Positive = Field(1.0, description="a positive factor c: keys times c, queries divided by c")
    smallest: Positive = Field(0.1, description="smallest standard deviation, the largest being 1")


class HopfieldNoiseInstance(Choice):
    """Hidden states of n_keys logits that are noise alone, of unit variance, after some layers (arXiv 2511.20698)."""

    kind: Literal["hopfield_noise"]
    memory: Share = Field(0.0, description="share α' in [0, 1) of the former hidden state")
    layers: Count = Field(64, description="number of layers, at least 1")
    persistence: Share = Field(0.0, description="correlation in [0, 1) of the noise of any two layers")


class HopfieldTowerInstance(Choice):
    """Layers of attention with a hidden state of logits, on n_keys Gaussian tokens of n_features (arXiv 2511.20698)."""

    kind: Literal["hopfield_tower"]
    memory: Share = Field(0.0, description="share α' in [0, 1) of the former hidden state")
    skip: Share = Field(0.5, description="share α in [0, 1) of the former tokens: the residual connection")
    layers: Count = Field(8, description="number of layers, at least 1")
    projections: Literal["tied", "drawn"] = Field("tied", description='"tied" over layers, or "drawn" for each')


class MaskedHeadInstance(Choice):
    """A target head, approximated by the best mask of a random source head (arXiv 2511.04217), on n_keys tokens."""

    kind: Literal["masked_head"]
    width: Count = Field(description="hidden units of the source, 2 to 32 times n_features and a multiple of it")
    scale: Positive = Field(0.5, description="bound on the entries of the target, those of the source being at most 1")


class PerturbedLogitsInstance(Choice):
    """Softmax weights of n_keys keys whose logits change by at most ``error``.

    ``random``: uniformly; ``adverse``: by ±error, the signs such that half of all weight moves as far as it can;
    ``extreme``: the same for logits at which the bound is attained.
    """

    kind: Literal["perturbed_logits"]
    error: Positive = Field(description="largest change of a logit")
    direction: Literal["random", "adverse", "extreme"] = Field("random", description='"random", "adverse" or "extreme"')


class RandomHeadsInstance(Choice):
    """Gaussian errors of up to 16 heads at some outputs: their average, and that of the best subset of heads."""

    kind: Literal["random_heads"]
    outputs: Annotated[int, Field(ge=1, le=16)] = Field(1, description="numbers that one subset fits at once, up to 16")
    correlation: Share = Field(0.0, description="correlation in [0, 1) of the errors of any two heads")


class LatentCacheInstance(Choice):
    """Attention over latents of n_keys tokens, merged in chunks: all prefixes at once, and token by token.

    Tokens have n_features, latents head_dim dimensions (arXiv 2505.13544).  ``stride``: a token sees complete chunks
    and its own as far as it goes; ``causal``: it sees what every former token had of its chunk, too.
    """

    kind: Literal["latent_cache"]
    stride: Count = Field(description="tokens in one chunk, at least 1")
    mask: Literal["stride", "causal"] = Field("stride", description='"stride" or "causal"')


Instance = Annotated[
    Annotated[
        NoInstance
        | NormaliserInstance
        | KqSvdInstance
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
