"""Random instances whose numbers are measured: a record of parameters for each kind.

`simstudy.attention.systems` measures what is stated here, and says how to add a kind.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from simstudy.design.settings.records import LARGEST, Choice, Count, Degrees, Positive, named

Levels = Annotated[int, Field(ge=1, le=30, description="number of levels L, at least 1; 2^(L−1) is at most n_keys")]

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


class HeadRecoveryInstance(Choice):
    """Single heads of a layer from what its output projection W_O makes of all of them (arXiv 2604.23681).

    At n_keys positions, n_heads outputs of head_dim random numbers each become n_features, to which noise is added.
    """

    kind: Literal["head_recovery"]
    output: Literal["generic", "shared"] = Field(
        "generic", description='W_O: "generic", or "shared" (all heads write to one subspace: the plain average)'
    )
    rank_deficit: Annotated[int, Field(ge=0)] = Field(
        0, description="how far the rank of a generic W_O is below the largest possible, at least 0"
    )
    condition: Annotated[float, Field(ge=1, le=LARGEST, allow_inf_nan=False)] = Field(
        1.0, description="ratio, at least 1, of the largest singular value of a generic W_O, which is 1, to the least"
    )
    gates: Literal["none", "position"] = Field(
        "none", description='"none" or "position" (a sigmoid of each position\'s token multiplies each head)'
    )
    held: Count = Field(1, description="consecutive positions at which heads have the same outputs; divides n_keys")


class LayerNormInstance(Choice):
    """Ranks of n_keys tokens before and after layer normalisation (arXiv 2604.23681)."""

    kind: Literal["layer_norm"]
    rank: Count = Field(description="affine rank of the tokens, at most n_features and below n_keys")
    offset: Literal["none", "random", "uniform"] = Field(
        "random", description='"none" (their affine hull holds 0), "random", or "uniform" (one number in every feature)'
    )


class DepthInstance(Choice):
    """n_keys tokens after layers of random softmax attention without feed-forward blocks (arXiv 2604.23681)."""

    kind: Literal["depth"]
    depth: Count = Field(description="number of layers, at least 1")
    residual: Literal["none", "plain", "scaled"] = Field(
        "none", description='residual connections: "none", "plain" or "scaled" (attention times 1/√depth)'
    )
    normalisation: Literal["none", "layer_norm"] = Field(
        "none", description='of the inputs of each layer: "none" or "layer_norm"'
    )


class HierarchyInstance(Choice):
    """Causal attention whose scores are mixed over levels of halved resolution (arXiv 2604.08829)."""

    kind: Literal["hierarchy"]
    levels: Levels
    downsampling: Literal["causal", "chunk"] = Field(
        "causal", description='"causal" (means end at a position) or "chunk" (means begin there)'
    )


class ScoreKernelInstance(Choice):
    """Scores of a random head, mixed over levels, as a kernel on n_keys tokens (arXiv 2604.08829)."""

    kind: Literal["score_kernel"]
    levels: Levels
    projections: Literal["untied", "tied"] = Field(
        "untied", description='"untied", or "tied" (one projection of queries and keys)'
    )


class ResolutionInstance(Choice):
    """Outcomes along n_keys keys, told by the means of chunks (arXiv 2604.08829).

    ``band_limited`` puts stationary Gaussian processes of at most ``band`` periods in the place of the keys.
    """

    kind: Literal["resolution"]
    chunk: Count = Field(description="keys in one chunk, a divisor of n_keys")
    signal: Literal["keys", "band_limited"] = Field("keys", description='"keys" or "band_limited"')
    band: Count = Field(4, description="largest number of periods of a band-limited process in n_keys")


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
