"""Attention over merged latents: what is stated, and which numbers are measured."""

from typing import ClassVar, Literal

from pydantic import Field

from simstudy.design.settings.records import Count, Quantity, Setting
from simstudy.design.settings.tables import Instance


class LatentCacheInstance(Instance):
    """Attention over latents of n_keys tokens, merged in chunks: all prefixes at once, and token by token.

    Tokens have n_features, latents head_dim dimensions (arXiv 2505.13544).  ``stride``: a token sees complete chunks
    and its own as far as it goes; ``causal``: it sees what every former token had of its chunk, too.
    """

    kind: Literal["latent_cache"]
    stride: Count = Field(description="tokens in one chunk, at least 1")
    mask: Literal["stride", "causal"] = "stride"

    uses = ("n_keys", "n_features", "head_dim", "bandwidth")
    quantities: ClassVar[dict[str, Quantity]] = {
        "decoding_gap": Quantity("largest difference between outputs from all prefixes at once and token by token, "
            "relative to the largest output", "max |f - f'| / max |f'|"),
    }  # fmt: skip
    words: ClassVar[dict[str, Setting]] = {"stride": Setting("stride", "s")}
    least: ClassVar[dict[str, tuple[int, str]]] = {"head_dim": (2, "latents are normalised over their dimensions")}
