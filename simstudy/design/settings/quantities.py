"""Numbers of random instances: what each is, by kind of instance.

Names are unique over all kinds: each becomes a measure that claims and figures may name, with its Monte Carlo error, in
the results of the studies that have such an instance.
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
    "hopfield_noise": {
        "noise_factor": Quantity(
            "1", "variance of the noise in the hidden state of the last layer over that in the logits of one layer",
            "mean_i h_i^2, h_l = a h_{l-1} + (1 - a) s_l, h_1 = s_1",
        ),
    },
    "hopfield_tower": {
        "token_cosine": Quantity(
            "1", "mean cosine of two different tokens after the last layer", "mean_{i!=j} x_i'x_j / |x_i||x_j|"
        ),
        "token_rank": Quantity(
            "1", "effective rank of the tokens after the last layer (Roy and Vetterli 2007)",
            "exp(-sum_k p_k ln p_k), p_k = s_k^2 / sum s^2 of singular values s_k",
        ),
        "ordinary_gap": Quantity(
            "1", "largest difference of a token from that of ordinary attention with the same projections, relative "
            "to the largest entry", "max |x - x'| / max |x'|",
        ),
        "pool_gap": Quantity(
            "1", "largest difference of a weight of the last layer from that of the product of the kernels of all "
            "layers, each to its power", "max |w - w'|, w' proportional to prod_l exp(s_l)^{pi_l}",
        ),
    },
    "masked_head": {
        "log_entry_error": Quantity(
            "1", "logarithm of the distance of an entry of the target from the nearest subset sum, mean over entries",
            "mean_ij ln min_S |sum_{k in S} u_ik v_kj - W_ij|",
        ),
        "log_logit_error": Quantity("1", "logarithm of the largest error of a logit", "ln max |z' - z|"),
        "log_output_error": Quantity(
            "1", "logarithm of the largest error of the output of the masked head", "ln max |f' - f|"
        ),
        "mask_bound_share": Quantity(
            "1", "largest total variation between weights of target and masked head, relative to the bound for the "
            "largest error e of a logit of that query", "max_q TV_q / tanh(e_q / 2)",
        ),
    },
    "perturbed_logits": {
        "bound_share": Quantity(
            "1", "total variation between the weights before and after, relative to its bound", "TV / tanh(e / 2)"
        ),
        "output_share": Quantity(
            "1", "change of the output relative to its bound", "|f' - f| / (tanh(e / 2) (max Y - min Y))"
        ),
        "bound_excess": Quantity(
            "1", "by how much total variation or change of output exceed their bounds",
            "max(bound_share, output_share, 1) - 1",
        ),
    },
    "random_heads": {
        "log_average_error": Quantity(
            "1", "logarithm of the error of the average of all heads, root mean square over outputs",
            "ln rms_j mean_h e_hj",
        ),
        "log_mask_error": Quantity(
            "1", "logarithm of the error of the average of the best subset of heads",
            "min_S ln rms_j mean_{h in S} e_hj",
        ),
    },
    "latent_cache": {
        "decoding_gap": Quantity(
            "1", "largest difference between outputs from all prefixes at once and token by token, relative to the "
            "largest output", "max |f - f'| / max |f'|",
        ),
    },
}  # fmt: skip

NAMES = tuple(name for kind in QUANTITIES.values() for name in kind)
"""Names of all quantities, in the order in which moments keep them."""
