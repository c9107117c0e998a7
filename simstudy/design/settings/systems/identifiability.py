"""Single heads behind an output projection, ranks and depth: what is stated, and which numbers are measured."""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from simstudy.design.settings.records import LARGEST, Count, Impossibility, Quantity, Setting, Whole
from simstudy.design.settings.tables import Data, Heads, Instance


class HeadRecoveryInstance(Instance):
    """Single heads of a layer from what its output projection W_O makes of all of them (arXiv 2604.23681).

    At n_keys positions, n_heads outputs of head_dim random numbers each become n_features, to which noise is added.
    """

    kind: Literal["head_recovery"]
    output: Literal["generic", "shared"] = Field(
        "generic", description='W_O: "generic", or "shared" (all heads write to one subspace: the plain average)'
    )
    rank_deficit: Whole = Field(
        0, description="how far the rank of a generic W_O is below the largest possible, at least 0"
    )
    condition: Annotated[float, Field(ge=1, le=LARGEST, allow_inf_nan=False)] = Field(
        1.0, description="ratio, at least 1, of the largest singular value of a generic W_O, which is 1, to the least"
    )
    gates: Literal["none", "position"] = Field(
        "none", description='"none" or "position" (a sigmoid of each position\'s token multiplies each head)'
    )
    held: Count = Field(1, description="consecutive positions at which heads have the same outputs; divides n_keys")

    uses = ("n_keys", "n_features", "n_heads", "head_dim", "noise_sd")
    quantities: ClassVar[dict[str, Quantity]] = {
        "nullity": Quantity("number of directions in which the outputs of heads may change without any change of the "
            "layer's", "dimension of the null space of (O_1, ..., O_H) -> Z"),
        "recovery_error": Quantity("mean squared error of the outputs of single heads, of unit variance, recovered "
            "from the noisy output of the layer; 1 is that of guessing 0",
            "mean (O - O')^2, O' of least squares and least norm"),
    }  # fmt: skip
    words: ClassVar[dict[str, Setting]] = {
        "output": Setting("output projection"),
        "rank_deficit": Setting("rank missing in W_O"),
        "condition": Setting("condition number of W_O"),
        "held": Setting("positions that share outputs of heads"),
    }

    def impossibilities(self, data: Data, heads: Heads) -> Iterator[Impossibility]:
        """Groups of positions are whole, and W_O has a rank."""
        n, inside = data.n_keys, min(heads.n_heads * heads.head_dim, data.n_features)
        if n % self.held or self.rank_deficit >= inside:
            remedy = f"needs held to divide n_keys = {n}, and rank_deficit below min(n_heads·head_dim, n_features)"
            yield "instance", f"{remedy} = {inside}"


class LayerNormInstance(Instance):
    """Ranks of n_keys tokens before and after layer normalisation (arXiv 2604.23681)."""

    kind: Literal["layer_norm"]
    rank: Count = Field(description="affine rank of the tokens, at most n_features and below n_keys")
    offset: Literal["none", "random", "uniform"] = Field(
        "random", description='"none" (their affine hull holds 0), "random", or "uniform" (one number in every feature)'
    )

    uses = ("n_keys", "n_features")
    quantities: ClassVar[dict[str, Quantity]] = {
        "normalised_affine_rank": Quantity("dimension of the affine hull of the tokens after layer normalisation",
            "rank(x_i - mean_i x_i)"),
        "affine_rank_gain": Quantity("affine rank after layer normalisation less that before it"),
        "centred_rank_gain": Quantity("rank of the row-centred matrix (each token less the mean of its features) after "
            "layer normalisation less that before it", "rank(LN(X) P) - rank(X P), P = I - 11'/d"),
    }  # fmt: skip
    words: ClassVar[dict[str, Setting]] = {"rank": Setting("rank", "R"), "offset": Setting("offset of the affine hull")}

    def impossibilities(self, data: Data, heads: Heads) -> Iterator[Impossibility]:
        """There are as many tokens and features as the rank needs."""
        n, d = data.n_keys, data.n_features
        if self.rank > d or self.rank >= n or d < 2:
            yield "instance", f"needs rank ≤ n_features, rank < n_keys, n_features ≥ 2, not {self.rank}, {d}, {n}"


class DepthInstance(Instance):
    """n_keys tokens after layers of random softmax attention without feed-forward blocks (arXiv 2604.23681)."""

    kind: Literal["depth"]
    depth: Count = Field(description="number of layers, at least 1")
    residual: Literal["none", "plain", "scaled"] = Field(
        "none", description='residual connections: "none", "plain" or "scaled" (attention times 1/√depth)'
    )
    normalisation: Literal["none", "layer_norm"] = Field("none", description="of the inputs of each layer:")

    uses = ("n_keys", "n_features", "n_heads", "head_dim", "total_dim")
    quantities: ClassVar[dict[str, Quantity]] = {
        "token_spread": Quantity("size of the differences between tokens, relative to the tokens",
            "|X - 1 mean(x)'| / |X|"),
        "log_token_spread": Quantity("logarithm of token_spread, of which some draws keep far more than most",
            "ln |X - 1 mean(x)'| / |X|"),
        "visible_rank": Quantity("number of dimensions in which tokens differ by more than a millionth of their size",
            "#{i: s_i(X - 1 mean(x)') > 1e-6 |X|}", counted=True),
    }  # fmt: skip
    words: ClassVar[dict[str, Setting]] = {
        "depth": Setting("depth", "L"),
        "residual": Setting("residual connections"),
        "normalisation": Setting("normalisation of inputs"),
    }
