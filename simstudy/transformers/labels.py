"""Names, dimensions, units and meanings of the numbers of the heads of a transformer."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

_PAIRS = ("layer", "source", "head_i", "head_j")
_HEAD = ("layer", "head")

MEANINGS = {
    "weight_correlation": (
        _PAIRS, "correlation of the outputs of two heads if values are noise, averaged over queries",
        "mean_t G_ij / (G_ii G_jj)^(1/2), G_ij = sum_s w_its w_jts",
    ),
    "layer_correlation": (("layer", "source"), "mean weight_correlation of two heads of a layer", "mean"),
    "mean_correlation": (("source",), "mean of layer_correlation over all layers", "mean"),
    "contribution_correlation": (
        _PAIRS, "correlation of what two heads add to the residual stream if states are white noise where values read",
        "weight_correlation O_ij / (O_ii O_jj)^(1/2), O the contribution overlap",
    ),
    "contribution_overlap": (
        ("layer", "head_i", "head_j"), "covariance of what two heads add if they look at one token of white noise",
        "O_ij = tr(OV_i' OV_j), OV = W_o W_v'",
    ),
    "effective_heads": (
        ("layer", "source"), "heads that the average of heads is worth in variance", "H tr(G) / sum_ij G_ij",
    ),
    "effective_contributions": (
        ("layer", "source"), "the same for the sum of contributions to the residual stream",
        "H sum_i G_ii O_ii / sum_ij G_ij O_ij",
    ),
    "prediction_rank": (
        ("source",), "rank correlation with the observed correlation over pairs of heads; key groups count once",
        "Spearman",
    ),
    "prediction_error": (
        ("source",), "root mean squared error over pairs of heads that the source speaks of; key groups count once",
        "(mean of (c_ij - c_ij observed)^2)^(1/2)",
    ),
    "prediction_gain": (
        ("source",), "error of the constant less the error of the source, over the same pairs of heads",
        "prediction_error(constant) - prediction_error(source)",
    ),
    "pair_layer": (("pair",), "layer of two heads, most alike first", "rank of pair_correlation"),
    "pair_head_i": (("pair",), "the first of the two heads", "from 0"),
    "pair_head_j": (("pair",), "the second of the two heads", "from 0"),
    "pair_correlation": (
        ("pair",), "weight_correlation of the two heads as observed, in falling order", "see weight_correlation",
    ),
    "key_group": (_HEAD, "the first head of the layer that has the same key", "from 0"),
    "hdi": (
        ("layer", "index"), "diversity index of the key subspaces; heads of one key group count once",
        "see simstudy.data.geometry.diversity_indices",
    ),
    "hdi_haar_mean": (("index",), "mean of the index of as many Haar-random subspaces", "mean over draws"),
    "hdi_haar_deviation": (("index",), "standard deviation of the same", "deviation over draws"),
    "logit_rank": (
        _HEAD, "effective rank of the form that gives logits, between whitened tokens", "(sum s^2)^2 / sum s^4",
    ),
    "logit_variance": (
        _HEAD, "variance of logits over tokens, averaged over queries", "mean_t k_t' S k_t, k pulled-back query",
    ),
    "sink_share": (
        _HEAD, "largest part of a head's weight that one token gets", "max_s mean_t w_ts, averaged over sequences",
    ),
    "output_size": (
        _HEAD, "mean square of what a head adds to the residual stream", "mean_t |W_o sum_s w_ts v_s|^2 / d",
    ),
    "apparent_dimension": (
        _HEAD, "dimension by how fast fewer keys count as logits grow; a lower limit beyond about 10",
        "-2 d ln n_eff / d ln beta = 4 (E_w^2 logit - E_w logit), averaged over queries",
    ),
    "gap_dimension": (
        (*_HEAD, "gaps"), "dimension by gaps below the largest logit; a lower limit beyond about 3, NaN of few tokens",
        "2 / mean_(j < k) ln(gap_k / gap_j)",
    ),
    "key_length_variation": (
        _HEAD, "deviation over mean of lengths of keys about their mean: 0 on a sphere, 1/(2p)^(1/2) of Gaussian keys",
        "sd |k| / mean |k|",
    ),
    "inapplicable": (("layer", "source"), "where the prediction is blank, and why", "text"),
}  # fmt: skip
"""Of each variable its dimensions, what it is, and the formula."""


def described(
    found: Mapping[str, np.ndarray], coordinates: Mapping[str, list[Any]], counts: Mapping[str, int]
) -> xr.Dataset:
    """Label the variables found; each ``_mcse`` has the dimensions of what it is the error of."""
    variables = {}
    for name, values in found.items():
        dims, meaning, formula = MEANINGS[name.removesuffix("_mcse")]
        said = f"Monte Carlo standard error over sequences: {meaning}" if name.endswith("_mcse") else meaning
        variables[name] = (dims, values, {"long_name": said, "units": "1", "formula": formula})
    return xr.Dataset(variables, dict(coordinates), dict(counts))
