"""Scores of low rank, compressed or drawn: what is stated, and which numbers are measured."""

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from simstudy.design.settings.records import Count, Degrees, Impossibility, Positive, Quantity, Setting
from simstudy.design.settings.tables import Data, Heads, Instance


class KqSvdInstance(Instance):
    """Scores K Qᵀ of n_keys keys and queries of dimension head_dim compressed to a rank (arXiv 2512.05916).

    Both have standard deviations from 1 to ``smallest`` along orthonormal directions; the leading half of those of the
    queries is turned by ``angle`` out of the leading half of those of the keys.
    """

    kind: Literal["kq_svd"]
    rank: Count = Field(description="dimensions that are kept, at least 1 and at most head_dim")
    method: Literal["scores", "keys", "stacked"] = "scores"
    angle: Degrees = Field(0.0, description="degrees from the leading directions of keys to those of queries, up to 90")
    scale: Positive = Field(1.0, description="a positive factor c: keys times c, queries divided by c")
    smallest: Positive = Field(0.1, description="smallest standard deviation, the largest being 1")

    uses = ("n_keys", "head_dim", "bandwidth")
    quantities: ClassVar[dict[str, Quantity]] = {
        "score_error": Quantity("error of the compressed scores relative to the scores, in the Frobenius norm",
            "|K A B'Q' - K Q'| / |K Q'|"),
        "eckart_young_gap": Quantity("squared error of the compressed scores above the least at this rank, relative to "
            "squared scores", "(|K A B'Q' - K Q'|^2 - sum_{i>R} s_i^2) / |K Q'|^2, s_i the singular values of K Q'"),
        "output_error": Quantity("root mean square error of the output of softmax attention to noise values, relative "
            "to the output", "|softmax(compressed) y - softmax(scores) y| / |softmax(scores) y|"),
        "beats_scores": Quantity("share of heads whose output error is smaller than under the compression that is best "
            "for scores", "mean of 1{output error < output error of method = scores}", counted=True),
    }  # fmt: skip
    words: ClassVar[dict[str, Setting]] = {"angle": Setting("angle", "", "degrees")}

    def impossibilities(self, data: Data, heads: Heads) -> Iterator[Impossibility]:
        """The rank fits the head, and the head the keys."""
        if not self.rank <= heads.head_dim <= data.n_keys:
            yield "instance", f"needs rank ≤ head_dim ≤ n_keys, not {self.rank} ≤ {heads.head_dim} ≤ {data.n_keys}"


class PatternInstance(Instance):
    """A random pattern of attention among n_keys tokens, drawn by the best head of head_dim (Bhojanapalli et al. 2020).

    The logarithms of its weights are normal, up to a constant for each query; tokens are normal, of n_features.
    """

    kind: Literal["pattern"]

    uses = ("n_keys", "n_features", "head_dim")
    quantities: ClassVar[dict[str, Quantity]] = {
        "pattern_error": Quantity("squared error, least over all heads, of the logits of a pattern, relative to their "
            "squares; of each query's logits their mean is taken off, as no weight depends on it",
            "min_M |(X M X' - L) J|^2 / |L J|^2, rank M <= p, J = I - 11'/n"),
        "pattern_distance": Quantity("total variation between the weights of the pattern and those of ordinary "
            "attention by that head, averaged over queries", "mean_i sum_j |w_ij - w'_ij| / 2"),
    }  # fmt: skip
    least: ClassVar[dict[str, tuple[int, str]]] = {"n_keys": (2, "one token has but one pattern of attention")}
