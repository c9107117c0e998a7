"""Attention over merged latents: what is stated, and which numbers are measured."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from simstudy.design.settings.records import Choice, Count, Quantity


class LatentCacheInstance(Choice):
    """Attention over latents of n_keys tokens, merged in chunks: all prefixes at once, and token by token.

    Tokens have n_features, latents head_dim dimensions (arXiv 2505.13544).  ``stride``: a token sees complete chunks
    and its own as far as it goes; ``causal``: it sees what every former token had of its chunk, too.
    """

    kind: Literal["latent_cache"]
    stride: Count = Field(description="tokens in one chunk, at least 1")
    mask: Literal["stride", "causal"] = Field("stride", description='"stride" or "causal"')


QUANTITIES: dict[str, dict[str, Quantity]] = {
    "latent_cache": {
        "decoding_gap": Quantity(
            "1", "largest difference between outputs from all prefixes at once and token by token, relative to the "
            "largest output", "max |f - f'| / max |f'|",
        ),
    },
}  # fmt: skip
