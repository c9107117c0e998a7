"""Hidden states of logits: what is stated, and which numbers are measured."""

from typing import ClassVar, Literal

from pydantic import Field

from simstudy.design.settings.records import Count, Quantity, Setting, Share
from simstudy.design.settings.tables import Instance


class HopfieldNoiseInstance(Instance):
    """Hidden states of n_keys logits that are noise alone, of unit variance, after some layers (arXiv 2511.20698)."""

    kind: Literal["hopfield_noise"]
    memory: Share = Field(0.0, description="share α' in [0, 1) of the former hidden state")
    layers: Count = Field(64, description="number of layers, at least 1")
    persistence: Share = Field(0.0, description="correlation in [0, 1) of the noise of any two layers")

    uses = ("n_keys",)
    quantities: ClassVar[dict[str, Quantity]] = {
        "noise_factor": Quantity("variance of the noise in the hidden state of the last layer over that in the logits "
            "of one layer", "mean_i h_i^2, h_l = a h_{l-1} + (1 - a) s_l, h_1 = s_1"),
    }  # fmt: skip
    words: ClassVar[dict[str, Setting]] = {
        "memory": Setting("memory", "α′"),
        "layers": Setting("layers", "L"),
        "persistence": Setting("correlation of noise between layers"),
    }


class HopfieldTowerInstance(Instance):
    """Layers of attention with a hidden state of logits, on n_keys Gaussian tokens of n_features (arXiv 2511.20698)."""

    kind: Literal["hopfield_tower"]
    memory: Share = Field(0.0, description="share α' in [0, 1) of the former hidden state")
    skip: Share = Field(0.5, description="share α in [0, 1) of the former tokens: the residual connection")
    layers: Count = Field(8, description="number of layers, at least 1")
    projections: Literal["tied", "drawn"] = Field("tied", description='"tied" over layers, or "drawn" for each')

    uses = ("n_keys", "n_features", "head_dim", "bandwidth", "key_scale")
    quantities: ClassVar[dict[str, Quantity]] = {
        "token_cosine": Quantity("mean cosine of two different tokens after the last layer",
            "mean_{i!=j} x_i'x_j / |x_i||x_j|"),
        "token_rank": Quantity("effective rank of the tokens after the last layer (Roy and Vetterli 2007)",
            "exp(-sum_k p_k ln p_k), p_k = s_k^2 / sum s^2 of singular values s_k"),
        "path_cosine": Quantity("mean cosine of two different tokens, averaged over all layers"),
        "path_rank": Quantity("effective rank of the tokens, averaged over all layers"),
        "ordinary_gap": Quantity("largest difference of a token from that of ordinary attention with the same "
            "projections, relative to the largest entry", "max |x - x'| / max |x'|"),
        "pool_gap": Quantity("largest difference of a weight of the last layer from that of the product of the kernels "
            "of all layers, each to its power", "max |w - w'|, w' proportional to prod_l exp(s_l)^{pi_l}"),
    }  # fmt: skip
    least: ClassVar[dict[str, tuple[int, str]]] = {"n_keys": (2, "a single token has no other to differ from")}
