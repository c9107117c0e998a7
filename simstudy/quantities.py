"""Numbers of random instances: what each is, by kind of instance.

Imports the standard library only.  Names are unique over all kinds: each becomes a measure that claims and figures may
name, with its Monte Carlo error, in the results of the studies that have such an instance.
"""

from __future__ import annotations

from typing import NamedTuple


class Quantity(NamedTuple):
    """Description of one number: unit, meaning and formula, as they stand in the results."""

    unit: str
    meaning: str
    formula: str = ""


QUANTITIES: dict[str, dict[str, Quantity]] = {
    "normaliser": {
        "kernel_gap": Quantity(
            "1", "largest difference between a weight of entmax and that of the compact kernel of adaptive bandwidth "
            "that its threshold gives", "max_i |w_i - w'_i|, w' of (1 - |q - k|^2/h^2)_+^r, "
            "h^2 = |q|^2 + mean |k|^2 - 2 r g tau",
        ),
        "softmax_distance": Quantity(
            "1", "total variation between the weights of entmax and of softmax", "sum_i |w_i - v_i| / 2"
        ),
        "support_share": Quantity("1", "share of keys to which entmax gives any weight", "#{i: w_i > 0} / n"),
    },
    "kq_svd": {
        "score_error": Quantity(
            "1", "error of the compressed scores relative to the scores, in the Frobenius norm",
            "|K A B'Q' - K Q'| / |K Q'|",
        ),
        "eckart_young_gap": Quantity(
            "1", "squared error of the compressed scores above the least at this rank, relative to squared scores",
            "(|K A B'Q' - K Q'|^2 - sum_{i>R} s_i^2) / |K Q'|^2, s_i the singular values of K Q'",
        ),
        "output_error": Quantity(
            "1", "root mean square error of the output of softmax attention to noise values, relative to the output",
            "|softmax(compressed) y - softmax(scores) y| / |softmax(scores) y|",
        ),
        "beats_scores": Quantity(
            "1", "share of heads whose output error is smaller than under the compression that is best for scores",
            "mean of 1{output error < output error of method = scores}",
        ),
    },
}  # fmt: skip

NAMES = tuple(name for kind in QUANTITIES.values() for name in kind)
"""Names of all quantities, in the order in which moments keep them."""
