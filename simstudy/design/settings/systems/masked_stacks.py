"""Masks of many random heads and of layers of them: what is stated, and which numbers are measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from simstudy.design.settings.instance import Instance
from simstudy.design.settings.records import Count, Impossibility, Positive, Quantity, Setting
from simstudy.design.settings.systems.masks import MaskedHeadInstance
from simstudy.design.settings.tables import Data, Heads

MAX_UNITS = 32
"""Most hidden units for each input feature of which every subset is looked at."""

_Scale = Annotated[
    Positive, Field(description="bound on the entries of the target, those of the source being at most 1")
]


class MaskedHeadsInstance(Instance):
    """Many target heads, each approximated by masks of a random source head of its own (arXiv 2511.04217).

    What a target has of all: matrices of logits and of values, n_features squared each, so 2 n_features² entries.
    """

    kind: Literal["masked_heads"]
    heads: Count = Field(description="target heads, all of which must be approximated at once")
    width: Count = Field(
        description="hidden units of each source at which errors are measured, a multiple of n_features"
    )
    tolerance: Positive = Field(description="error of an entry up to which it counts as approximated")
    scale: _Scale = 0.1

    uses: ClassVar[tuple[str, ...]] = ("n_features",)
    rests_on: ClassVar[tuple[str, ...]] = ("attention/systems/masks.py",)
    quantities: ClassVar[dict[str, Quantity]] = {
        "log_largest_error": Quantity(
            "1", "logarithm of the largest error of an entry over all heads", "max_h,ij ln |W'_hij - W_hij|"
        ),
        "needed_width": Quantity(
            "1", "fewest hidden units of each source with which no entry of any head errs by more than the tolerance, "
            f"2 to {MAX_UNITS} for each input feature", "min {width: max_h,ij |W'_hij - W_hij| <= tolerance}",
        ),
    }  # fmt: skip
    words: ClassVar[dict[str, Setting]] = {
        "heads": Setting("heads of the target", "H"),
        "width": Setting("hidden units of the source"),
    }

    def impossibilities(self, data: Data, heads: Heads) -> Iterator[Impossibility]:
        """Every input feature has as many hidden units, few enough to look at every subset."""
        yield from _units(self.width, data, heads)


class MaskedStackInstance(Instance):
    """Layers of one attention head each with residual connections, each approximated by masks of a random layer."""

    kind: Literal["masked_stack"]
    layers: Count = Field(description="layers of target and source")
    width: Count = Field(description="hidden units of each layer of the source, a multiple of n_features")
    scale: _Scale = 0.1
    normalisation: Literal["none", "layer_norm"] = Field(
        "none", description='of hidden states after each layer: "none" or "layer_norm"'
    )

    uses: ClassVar[tuple[str, ...]] = ("n_keys", "n_features", "bandwidth")
    rests_on: ClassVar[tuple[str, ...]] = ("attention/systems/masks.py", "attention/systems/identifiability.py")
    quantities: ClassVar[dict[str, Quantity]] = {
        "log_stack_error": Quantity("1", "logarithm of the largest error of the last hidden states", "ln max |X' - X|"),
    }
    words: ClassVar[dict[str, Setting]] = {"width": Setting("hidden units of the source")}

    def impossibilities(self, data: Data, heads: Heads) -> Iterator[Impossibility]:
        """Subsets can be looked at, and normalisation leaves more than the order of two features."""
        yield from _units(self.width, data, heads)
        if self.normalisation == "layer_norm" and data.n_features < 3:
            yield "n_features", f"layer normalisation leaves no more than signs of {data.n_features}; use at least 3"


def _units(width: int, data: Data, heads: Heads) -> Iterator[Impossibility]:
    """Refuse what one masked head of this width refuses."""
    return MaskedHeadInstance(kind="masked_head", width=width).impossibilities(data, heads)
