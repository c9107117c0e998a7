"""Masks of random heads and perturbed logits: what is stated, and which numbers are measured."""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from simstudy.design.settings.records import Count, Impossibility, Positive, Quantity, Setting, Share
from simstudy.design.settings.tables import Data, Heads, Instance

MAX_MASKED_HEADS = 16
"""Most heads of which every subset is looked at."""
MAX_UNITS = 32
"""Most hidden units for each input feature of which every subset is looked at."""

_Scale = Annotated[
    Positive, Field(description="bound on the entries of the target, those of the source being at most 1")
]


def _units(width: int, data: Data) -> Iterator[Impossibility]:
    units, left = divmod(width, data.n_features)
    if left or not 2 <= units <= MAX_UNITS:
        remedy = f"must be 2 to {MAX_UNITS} times n_features = {data.n_features}, a whole number"
        yield "instance", f"width = {width} {remedy}"


class MaskedHeadInstance(Instance):
    """A target head, approximated by the best mask of a random source head (arXiv 2511.04217), on n_keys tokens."""

    kind: Literal["masked_head"]
    width: Count = Field(description="hidden units of the source, 2 to 32 times n_features and a multiple of it")
    scale: _Scale = 0.5

    uses = ("n_keys", "n_features", "bandwidth")
    quantities: ClassVar[dict[str, Quantity]] = {
        "log_entry_error": Quantity("logarithm of the distance of an entry of the target from the nearest subset sum, "
            "mean over entries", "mean_ij ln min_S |sum_{k in S} u_ik v_kj - W_ij|"),
        "log_logit_error": Quantity("logarithm of the largest error of a logit", "ln max |z' - z|"),
        "log_output_error": Quantity("logarithm of the largest error of the output of the masked head",
            "ln max |f' - f|"),
        "mask_bound_share": Quantity("largest total variation between weights of target and masked head, relative to "
            "the bound for the largest error e of a logit of that query", "max_q TV_q / tanh(e_q / 2)"),
    }  # fmt: skip
    words: ClassVar[dict[str, Setting]] = {"width": Setting("hidden units of the source")}

    def impossibilities(self, data: Data, heads: Heads) -> Iterator[Impossibility]:
        """Subsets can be looked at."""
        yield from _units(self.width, data)


class PerturbedLogitsInstance(Instance):
    """Softmax weights of n_keys keys whose logits change by at most ``error``.

    ``random``: uniformly; ``adverse``: by ±error, the signs such that half of all weight moves as far as it can;
    ``extreme``: the same for logits at which the bound is attained.
    """

    kind: Literal["perturbed_logits"]
    error: Positive = Field(description="largest change of a logit")
    direction: Literal["random", "adverse", "extreme"] = "random"

    uses = ("n_keys",)
    quantities: ClassVar[dict[str, Quantity]] = {
        "bound_share": Quantity("total variation between the weights before and after, relative to its bound",
            "TV / tanh(e / 2)"),
        "output_share": Quantity("change of the output relative to its bound",
            "|f' - f| / (tanh(e / 2) (max Y - min Y))"),
        "bound_excess": Quantity("by how much total variation or change of output exceed their bounds",
            "max(bound_share, output_share, 1) - 1"),
    }  # fmt: skip
    words: ClassVar[dict[str, Setting]] = {"error": Setting("error of a logit", "e")}
    least: ClassVar[dict[str, tuple[int, str]]] = {"n_keys": (2, "a single key has all weight")}


class RandomHeadsInstance(Instance):
    """Gaussian errors of up to 16 heads at some outputs: their average, and that of the best subset of heads."""

    kind: Literal["random_heads"]
    outputs: Annotated[int, Field(ge=1, le=16)] = Field(1, description="numbers that one subset fits at once, up to 16")
    correlation: Share = Field(0.0, description="correlation in [0, 1) of the errors of any two heads")

    uses = ("n_heads",)
    quantities: ClassVar[dict[str, Quantity]] = {
        "log_average_error": Quantity("logarithm of the error of the average of all heads, root mean square over "
            "outputs", "ln rms_j mean_h e_hj"),
        "log_mask_error": Quantity("logarithm of the error of the average of the best subset of heads",
            "min_S ln rms_j mean_{h in S} e_hj"),
    }  # fmt: skip

    def impossibilities(self, data: Data, heads: Heads) -> Iterator[Impossibility]:
        """Every subset of heads can be looked at."""
        if heads.n_heads > MAX_MASKED_HEADS:
            yield "n_heads", f"every one of 2^{heads.n_heads} subsets is looked at; use at most {MAX_MASKED_HEADS}"


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

    uses = ("n_features",)
    quantities: ClassVar[dict[str, Quantity]] = {
        "log_largest_error": Quantity("logarithm of the largest error of an entry over all heads",
            "max_h,ij ln |W'_hij - W_hij|"),
        "needed_width": Quantity(f"fewest hidden units of each source with which no entry of any head errs by more "
            f"than the tolerance, 2 to {MAX_UNITS} for each input feature",
            "min {width: max_h,ij |W'_hij - W_hij| <= tolerance}"),
    }  # fmt: skip
    words: ClassVar[dict[str, Setting]] = {"heads": Setting("heads of the target", "H")}

    def impossibilities(self, data: Data, heads: Heads) -> Iterator[Impossibility]:
        """Subsets can be looked at."""
        yield from _units(self.width, data)


class MaskedStackInstance(Instance):
    """Layers of one attention head each with residual connections, each approximated by masks of a random layer."""

    kind: Literal["masked_stack"]
    layers: Count = Field(description="layers of target and source")
    width: Count = Field(description="hidden units of each layer of the source, a multiple of n_features")
    scale: _Scale = 0.1
    normalisation: Literal["none", "layer_norm"] = Field("none", description="of hidden states after each layer:")

    uses = ("n_keys", "n_features", "bandwidth")
    quantities: ClassVar[dict[str, Quantity]] = {
        "log_stack_error": Quantity("logarithm of the largest error of the last hidden states", "ln max |X' - X|"),
    }  # fmt: skip

    def impossibilities(self, data: Data, heads: Heads) -> Iterator[Impossibility]:
        """Subsets can be looked at, and normalisation leaves more than the order of two features."""
        yield from _units(self.width, data)
        if self.normalisation == "layer_norm" and data.n_features < 3:
            yield "n_features", f"layer normalisation leaves no more than signs of {data.n_features}; use at least 3"
