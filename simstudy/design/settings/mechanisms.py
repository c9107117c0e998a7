"""What an attention mechanism is made of beside logits: transformations and normalisers.

`simstudy.attention.mechanism` computes what is stated here, and says how to add a piece.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from simstudy.design.settings.records import KINDS, Choice, Count, Positive, Real

Power = Annotated[int, Field(ge=1, le=10_000)]

# ---------------------------------------------------------------- normalisers


class SoftmaxNormaliser(Choice):
    """w ∝ exp(z)."""

    kind: Literal["softmax"]


class EntmaxNormaliser(Choice):
    """w = (z/r − τ)_+^r with τ such that Σ w = 1: α-entmax with α = 1 + 1/r (Peters, Niculae and Martins 2019)."""

    kind: Literal["entmax"]
    power: Power = Field(description="power r, a whole number of at least 1; 1 is sparsemax")


class SparsemaxNormaliser(Choice):
    """w = (z − τ)_+ with Σ w = 1: the projection on the simplex, entmax with r = 1 (Martins and Astudillo 2016)."""

    kind: Literal["sparsemax"]

    @property
    def power(self) -> int:
        """The power r of entmax."""
        return 1


class TopKNormaliser(Choice):
    """w ∝ exp(z) of the k keys with the largest logits and of those that tie with the last of them, 0 of the others."""

    kind: Literal["top_k"]
    k: Count = Field(description="number of keys that keep their weight, at least 1; all do if there are no more")


class ReluNormaliser(Choice):
    """w ∝ (z − threshold)_+: normalised ReLU.  With distance logits Epanechnikov's kernel, h² = −2 threshold b²."""

    kind: Literal["relu"]
    threshold: Real = Field(description="the logit below which a key has no weight; below 0 for distance logits")


class CompactNormaliser(Choice):
    """w ∝ (1 − |u|²)_+^r, u = (k_q − k_i)/(window·b): compact kernels of fixed bandwidth, from distance logits."""

    kind: Literal["compact"]
    power: Power = Field(description="power r, a whole number of at least 1; 1 is Epanechnikov's kernel")
    window: Positive = Field(1.0, description="radius of the window in bandwidths, a positive number")


Normaliser = Annotated[
    SoftmaxNormaliser | EntmaxNormaliser | SparsemaxNormaliser | TopKNormaliser | ReluNormaliser | CompactNormaliser,
    KINDS,
]

# ---------------------------------------------------------------- transformations of keys, values and queries


class NoTransformation(Choice):
    """Keys, values and queries as the heads project them."""

    kind: Literal["none"]


class MergeTransformation(Choice):
    """Chunks of consecutive keys, and their values, are replaced by their means; a last shorter chunk is one, too."""

    kind: Literal["merge"]
    stride: Count = Field(description="keys in one chunk, at least 1")


class MixtureTransformation(Choice):
    """Logits Σ_l c_l s(q, k̄_l): level l sees the mean of each chunk of 2^l keys in place of every key of the chunk."""

    kind: Literal["mixture"]
    levels: Annotated[int, Field(ge=1, le=30)] = Field(description="number of levels L, at least 1")
    decay: Positive = Field(1.0, description="ratio of the coefficients of two levels, c_l ∝ decay^l, Σ c_l = 1")

    @property
    def idle(self) -> dict[str, str]:
        """What a single level does not have."""
        return {"decay": "levels = 1"} if self.levels == 1 else {}


class LowRankTransformation(Choice):
    """Keys and queries of each head compressed to fewer dimensions, fitted to keys and query points (arXiv 2512.05916).

    ``scores``: the best approximation of the matrix of their products; ``keys``: of the keys; ``stacked``: of keys and
    queries one below the other.
    """

    kind: Literal["low_rank"]
    rank: Count = Field(description="dimensions that are kept, at least 1 and at most head_dim")
    method: Literal["scores", "keys", "stacked"] = Field("scores", description='"scores", "keys" or "stacked"')


Transformation = Annotated[
    NoTransformation | MergeTransformation | MixtureTransformation | LowRankTransformation, KINDS
]
