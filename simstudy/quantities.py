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
    "head_recovery": {
        "nullity": Quantity(
            "1", "number of directions in which the outputs of heads may change without any change of the layer's",
            "dimension of the null space of (O_1, ..., O_H) -> Z",
        ),
        "recovery_error": Quantity(
            "1", "mean squared error of the outputs of single heads, of unit variance, recovered from the noisy output "
            "of the layer; 1 is that of guessing 0", "mean (O - O')^2, O' of least squares and least norm",
        ),
        "gate_overhead": Quantity(
            "1", "parameters of the gates relative to those of the output projection", "H d / (H p d)"
        ),
    },
    "layer_norm": {
        "normalised_affine_rank": Quantity(
            "1", "dimension of the affine hull of the tokens after layer normalisation", "rank(x_i - mean_i x_i)"
        ),
        "affine_rank_gain": Quantity("1", "affine rank after layer normalisation less that before it"),
        "centred_rank_gain": Quantity(
            "1", "rank of the row-centred matrix (each token less the mean of its features) after layer normalisation "
            "less that before it", "rank(LN(X) P) - rank(X P), P = I - 11'/d",
        ),
    },
    "depth": {
        "token_spread": Quantity(
            "1", "size of the differences between tokens, relative to the tokens", "|X - 1 mean(x)'| / |X|"
        ),
        "visible_rank": Quantity(
            "1", "number of dimensions in which tokens differ by more than a millionth of their size",
            "#{i: s_i(X - 1 mean(x)') > 1e-6 |X|}",
        ),
    },
    "hierarchy": {
        "score_cost": Quantity(
            "1", "multiplications performed in products of queries and keys, relative to a single level"
        ),
        "layer_cost": Quantity(
            "1", "multiplications performed in the whole layer (scores, their mixing, means over positions, output), "
            "relative to a single level",
        ),
        "attention_gap": Quantity(
            "Y", "largest difference of an output from that of ordinary causal attention", "max |f - f_ordinary|"
        ),
        "future_effect": Quantity(
            "Y", "largest change of an output when later tokens are replaced by others", "max |f_i(x') - f_i(x)|, "
            "x'_j = x_j for j <= i",
        ),
    },
    "score_kernel": {
        "positive_eigenvalues": Quantity("1", "number of positive eigenvalues of the symmetrised mixed scores"),
        "negative_eigenvalues": Quantity("1", "number of negative eigenvalues of the symmetrised mixed scores"),
        "symmetric_share": Quantity(
            "1", "share of the symmetric part in the bilinear form M of the scores", "|(M + M')/2|^2 / |M|^2"
        ),
    },
    "resolution": {
        "level_error": Quantity(
            "Y^2", "squared difference of m at each key from the mean of its chunk", "mean_i (m(X_i) - mean_chunk m)^2"
        ),
        "level_noise": Quantity("Y^2", "squared mean of the noise of a chunk", "mean_chunks (mean_chunk noise)^2"),
    },
}  # fmt: skip

NAMES = tuple(name for kind in QUANTITIES.values() for name in kind)
"""Names of all quantities, in the order in which moments keep them."""
