"""Parts of attention beside logits: transformations, normalisers, masks, projections of values."""

from functools import lru_cache
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from simstudy.design.settings.records import KINDS, Choice, Count, NonNegative, Path, Positive, Real

Power = Annotated[int, Field(ge=1, le=10_000)]


class SoftmaxNormaliser(Choice):
    """w ∝ exp(z)."""

    kind: Literal["softmax"]


class EntmaxNormaliser(Choice):
    """w = (z/r − τ)_+^r with τ such that Σ w = 1: α-entmax with α = 1 + 1/r (Peters, Niculae and Martins 2019)."""

    kind: Literal["entmax"]
    power: Power  # r, of which 1 is sparsemax


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
    k: Count


class ReluNormaliser(Choice):
    """w ∝ (z − threshold)_+: normalised ReLU.  With distance logits Epanechnikov's kernel, h² = −2 threshold b²."""

    kind: Literal["relu"]
    threshold: Real


class CompactNormaliser(Choice):
    """w ∝ (1 − |u|²)_+^r, u = (k_q − k_i)/(window·b): compact kernels of fixed bandwidth, from distance logits."""

    kind: Literal["compact"]
    power: Power  # r, of which 1 is Epanechnikov's kernel
    window: Positive = 1.0


class LocalLinearNormaliser(Choice):
    """Weights of the intercept of a line fitted under softmax weights: local linear attention (arXiv 2510.01450).

    They sum to 1 and may be negative.  The squared slope is penalised: without a penalty it is local linear regression,
    with a large one softmax attention.
    """

    kind: Literal["local_linear"]
    ridge: NonNegative = 0.0  # in squared bandwidths


_OfLogits = SoftmaxNormaliser | EntmaxNormaliser | SparsemaxNormaliser | TopKNormaliser | ReluNormaliser
Normaliser = Annotated[_OfLogits | CompactNormaliser | LocalLinearNormaliser, KINDS]


class NoTransformation(Choice):
    """Keys, values and queries as the heads project them."""

    kind: Literal["none"]


class MergeTransformation(Choice):
    """Chunks of consecutive keys, and their values, are replaced by their means; a last shorter chunk is one, too."""

    kind: Literal["merge"]
    stride: Count


class LowRankTransformation(Choice):
    """Keys and queries of each head compressed to fewer dimensions, fitted to keys and query points (arXiv 2512.05916).

    ``scores``: the best approximation of the matrix of their products; ``keys``: of the keys; ``stacked``: of keys and
    queries one below the other.
    """

    kind: Literal["low_rank"]
    rank: Count
    method: Literal["scores", "keys", "stacked"] = "scores"


Transformation = Annotated[NoTransformation | MergeTransformation | LowRankTransformation, KINDS]

Visible = NDArray[np.bool_]  # (query, key): true where a query may attend to a key


class WholeMask(Choice):
    """Every query sees all keys ("none"), or all up to its place: query q of Q the first ⌈q n/Q⌉, as in a decoder."""

    kind: Literal["none", "causal"]


class BandedMask(Choice):
    """Of the keys that a causal mask lets a query see, the last ones: attention in a sliding window."""

    kind: Literal["banded"]
    width: Count


class FileMask(Choice):
    """Visible keys of each query, at least one: a .npy file of booleans (queries, keys), relative to the design."""

    kind: Literal["file"]
    path: Path


Mask = Annotated[WholeMask | BandedMask | FileMask, KINDS]


@lru_cache(maxsize=4)
def visible_keys(mask: Mask, n_queries: int, n_keys: int, of_file: tuple[str, ...]) -> Visible | None:
    """Return which of the keys each query sees, (query, key), of a file as told by 0 and 1; None without a mask."""
    if mask.kind == "none":
        return None
    if isinstance(mask, FileMask):
        return np.array([[letter == "1" for letter in row] for row in of_file], order="F")
    width = mask.width if isinstance(mask, BandedMask) else n_keys
    # In whole numbers: a rounded quotient could be a key too many.
    gaps = np.arange(n_keys)[:, None] + -np.arange(1, n_queries + 1) * n_keys // n_queries
    return ((gaps < 0) & (gaps >= -width)).T


# Values may be vectors: that of a key is y = m(X) s + ε, the regression function in a direction s, any with the same
# probability (E ss' = I), and noise of variance σ² in every component.  Head h returns A_h'Σ_i w_hi y_i, A_h = W_V W_O
# of its own, and the ensemble their sum.  Errors are squared distances from what the same projections make of m(x) s.


class PlainValueProjections(Choice):
    """Values are numbers, or all heads make the same of them; or heads have components of their own: concatenation."""

    kind: Literal["none", "disjoint"]


class RandomValueProjections(Choice):
    """W_V of orthonormal columns and W_O of orthonormal rows, uniform draws of ``head_seed`` for each head.

    A value has ``n_components``, of which a head averages ``value_dim``.
    """

    kind: Literal["random"]
    n_components: Annotated[int, Field(ge=2, le=2**20)]
    value_dim: Count
    output: Literal["own", "transposed"] = "own"  # W_O: another draw, or W_V transposed


ValueProjections = Annotated[PlainValueProjections | RandomValueProjections, KINDS]
