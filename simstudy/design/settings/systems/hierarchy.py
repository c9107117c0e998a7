"""Hierarchies of resolutions: what is stated, and which numbers are measured."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from simstudy.design.settings.records import Choice, Count, Quantity

Levels = Annotated[int, Field(ge=1, le=30, description="number of levels L, at least 1; 2^(L−1) is at most n_keys")]


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


QUANTITIES: dict[str, dict[str, Quantity]] = {
    "hierarchy": {
        "attention_gap": Quantity(
            "Y", "largest difference of an output from that of ordinary causal attention", "max |f - f_ordinary|"
        ),
        "future_effect": Quantity(
            "Y", "largest change of an output when later tokens are replaced by others", "max |f_i(x') - f_i(x)|, "
            "x'_j = x_j for j <= i",
        ),
    },
    "score_kernel": {
        "positive_eigenvalues": Quantity("1", "number of positive eigenvalues of the symmetrised mixed scores"),
        "negative_eigenvalues": Quantity("1", "number of negative eigenvalues of the symmetrised mixed scores"),
        "symmetric_share": Quantity(
            "1", "share of the symmetric part in the bilinear form M of the scores", "|(M + M')/2|^2 / |M|^2"
        ),
    },
    "resolution": {
        "level_error": Quantity(
            "Y^2", "squared difference of m at each key from the mean of its chunk", "mean_i (m(X_i) - mean_chunk m)^2"
        ),
        "level_noise": Quantity("Y^2", "squared mean of the noise of a chunk", "mean_chunks (mean_chunk noise)^2"),
    },
}  # fmt: skip
