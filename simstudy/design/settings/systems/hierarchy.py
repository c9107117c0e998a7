"""Hierarchies of resolutions: what is stated, and which numbers are measured."""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from simstudy.design.settings.records import Count, Impossibility, Quantity, Setting
from simstudy.design.settings.tables import Data, Heads, Instance


class _OnLevels(Instance):
    levels: Annotated[int, Field(ge=1, le=30)] = Field(
        description="number of levels L, at least 1; 2^(L−1) is at most n_keys"
    )

    def impossibilities(self, data: Data, heads: Heads) -> Iterator[Impossibility]:
        """Keys can be halved so often."""
        if 2 ** (self.levels - 1) > data.n_keys:
            yield "instance", f"levels = {self.levels} halve n_keys = {data.n_keys} too often; use fewer"


class _InChunks(Instance):
    chunk: Count = Field(description="keys in one chunk, a divisor of n_keys")

    def impossibilities(self, data: Data, heads: Heads) -> Iterator[Impossibility]:
        """Chunks are whole."""
        if data.n_keys % self.chunk:
            yield "instance", f"chunk = {self.chunk} must divide n_keys = {data.n_keys}"


class HierarchyInstance(_OnLevels):
    """Causal attention whose scores are mixed over levels of halved resolution (arXiv 2604.08829)."""

    kind: Literal["hierarchy"]
    downsampling: Literal["causal", "chunk"] = Field(
        "causal", description='"causal" (means end at a position) or "chunk" (means begin there)'
    )

    uses = ("n_keys", "n_features", "key_distribution", "dtype", "head_dim", "bandwidth")
    quantities: ClassVar[dict[str, Quantity]] = {
        "attention_gap": Quantity("largest difference of an output from that of ordinary causal attention",
            "max |f - f_ordinary|", unit="Y"),
        "future_effect": Quantity("largest change of an output when later tokens are replaced by others",
            "max |f_i(x') - f_i(x)|, x'_j = x_j for j <= i", unit="Y"),
    }  # fmt: skip
    words: ClassVar[dict[str, Setting]] = {"levels": Setting("levels", "L")}


class ScoreKernelInstance(_OnLevels):
    """Scores of a random head, mixed over levels, as a kernel on n_keys tokens (arXiv 2604.08829)."""

    kind: Literal["score_kernel"]
    projections: Literal["untied", "tied"] = Field(
        "untied", description='"untied", or "tied" (one projection of queries and keys)'
    )

    uses = ("n_keys", "n_features", "key_distribution", "dtype", "head_dim")
    quantities: ClassVar[dict[str, Quantity]] = {
        "positive_eigenvalues": Quantity("number of positive eigenvalues of the symmetrised mixed scores",
            counted=True),
        "negative_eigenvalues": Quantity("number of negative eigenvalues of the symmetrised mixed scores",
            counted=True),
        "symmetric_share": Quantity("share of the symmetric part in the bilinear form M of the scores",
            "|(M + M')/2|^2 / |M|^2"),
    }  # fmt: skip


class ResolutionInstance(_InChunks):
    """Outcomes along n_keys keys, told by the means of chunks (arXiv 2604.08829).

    ``band_limited`` puts stationary Gaussian processes of at most ``band`` periods in the place of the keys.
    """

    kind: Literal["resolution"]
    signal: Literal["keys", "band_limited"] = "keys"
    band: Count = Field(4, description="largest number of periods of a band-limited process in n_keys")

    uses = ("n_keys", "n_features", "key_distribution", "regression", "noise", "noise_sd", "dtype")
    quantities: ClassVar[dict[str, Quantity]] = {
        "level_error": Quantity("squared difference of m at each key from the mean of its chunk",
            "mean_i (m(X_i) - mean_chunk m)^2", unit="Y^2"),
        "level_noise": Quantity("squared mean of the noise of a chunk", "mean_chunks (mean_chunk noise)^2", unit="Y^2"),
    }  # fmt: skip
    words: ClassVar[dict[str, Setting]] = {"chunk": Setting("keys in a chunk"), "band": Setting("periods, at most")}


class CoarseMassInstance(_InChunks):
    """Mass that attention of one query gives to n_keys keys, and to the means of chunks of them in their place.

    The query is the unit vector of the first feature.  The Gaussian part and the correction follow from cumulants of
    the scores of single keys, taken as independent.
    """

    kind: Literal["coarse_mass"]

    uses = ("n_keys", "n_features", "key_distribution", "dtype")
    quantities: ClassVar[dict[str, Quantity]] = {
        "mass_error": Quantity("logarithm of the mean weight of single keys over that of chunk means",
            "ln mean_i exp(s_i) - ln mean_chunks exp(mean_chunk s)"),
        "gaussian_gap": Quantity("the same less what Gaussian scores of the same variance would have",
            "mass_error - k_2 (1 - 1/w) / 2"),
        "corrected_gap": Quantity("and less the correction by the third and fourth cumulants of the scores",
            "gaussian_gap - k_3 (1 - 1/w^2) / 6 - k_4 (1 - 1/w^3) / 24"),
    }  # fmt: skip
