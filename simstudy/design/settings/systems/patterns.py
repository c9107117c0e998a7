"""Patterns of attention and the heads that draw them: what is stated, and which numbers are measured."""

from __future__ import annotations

from typing import ClassVar, Literal

from simstudy.design.settings.instance import Instance
from simstudy.design.settings.records import Quantity


class PatternInstance(Instance):
    """A random pattern of attention among n_keys tokens, drawn by the best head of head_dim (Bhojanapalli et al. 2020).

    The logarithms of its weights are normal, up to a constant for each query; tokens are normal, of n_features.
    """

    kind: Literal["pattern"]

    uses = ("n_keys", "n_features", "head_dim")
    quantities: ClassVar[dict[str, Quantity]] = {
        "pattern_error": Quantity(
            "1", "squared error, least over all heads, of the logits of a pattern, relative to their squares; of each "
            "query's logits their mean is taken off, as no weight depends on it",
            "min_M |(X M X' - L) J|^2 / |L J|^2, rank M <= p, J = I - 11'/n",
        ),
        "pattern_distance": Quantity(
            "1", "total variation between the weights of the pattern and those of ordinary attention by that head, "
            "averaged over queries", "mean_i sum_j |w_ij - w'_ij| / 2",
        ),
    }  # fmt: skip
    least: ClassVar[dict[str, tuple[int, str]]] = {"n_keys": (2, "one token has but one pattern of attention")}
