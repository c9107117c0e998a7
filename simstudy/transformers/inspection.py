"""Heads of a transformer on given states: how correlated they are, and whether theory would have told.

Index legend: l layer; h, g head; s sequence; d feature.
"""

import copy
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from scipy.stats import sem
from threadpoolctl import threadpool_limits

from simstudy.arguments import real_array
from simstudy.data.geometry import GEOMETRIC_INDICES
from simstudy.transformers.attention import (
    GAPS,
    Dimensions,
    Projected,
    attention_weights,
    contribution_overlap,
    dimensions,
    normalised,
    observe,
    placed,
    project,
    require_attention,
    unplaced,
    visible,
)  # fmt: skip
from simstudy.transformers.heads import TransformerHeads
from simstudy.transformers.predictions import SOURCES, agreement, predict_layer, set_constant
from simstudy.transformers.subspaces import geometry, haar_indices, key_groups

_THREADS = 2
"""A layer of 32 heads of 4096 by 128 fills 0.6 GB."""

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
"""Of each variable found its dimensions, what it is, and the formula."""


class Tokens(NamedTuple):
    """States (L, T, d) of the real tokens of one sequence, and the places (T,) at which they stand."""

    states: np.ndarray
    places: np.ndarray

    def stretched(self, length: int | None) -> np.ndarray:
        """Places as far apart as they are in a sequence of so many tokens; as they are by default."""
        if length is None:
            return self.places
        return self.places[0] + (self.places - self.places[0]) * (length - 1) / (self.places[-1] - self.places[0])


class Fixed(NamedTuple):
    """What follows from the weights of heads alone."""

    groups: np.ndarray  # (L, H)
    angles: np.ndarray  # (L, H, H) Correlations by the angles of key subspaces
    indices: np.ndarray  # (L, index) Diversity of key subspaces
    overlaps: list[np.ndarray | None]  # (H, H) Of contributions, if known


def of_weights(heads: TransformerHeads, each: Callable[..., Any] = map) -> Fixed:
    """Find what is fixed; ``each`` is `map`, or what does the same in several threads."""
    groups = key_groups(heads.key, heads.key_bias)
    writes = heads.value is not None and heads.output is not None
    overlaps = (
        each(functools.partial(contribution_overlap, heads), range(len(groups))) if writes else [None] * len(groups)
    )
    return Fixed(groups, *geometry(heads.key, groups, each), list(overlaps))


def inspect_heads(
    heads: TransformerHeads,
    states: ArrayLike | list[np.ndarray],
    mask: ArrayLike | None = None,
    *,
    attention: ArrayLike | list[np.ndarray] | None = None,
    judged: ArrayLike | None = None,
    length: int | None = None,
    queries: int = 2,
    seed: int = 0,
) -> xr.Dataset:
    """Measure how correlated the heads of every layer are, and what theory predicts from other sequences.

    Correlation of two heads is that of their outputs if values are noise, at a query: G_hg / (G_hh G_gg)^(1/2) with
    G_hg = sum_i w_hi w_gi over the tokens, averaged over queries.

    Parameters
    ----------
    heads : TransformerHeads
        From `read_heads`, or made of arrays.
    states : (layer, sequence, token, feature) array, or a list of (layer, token, feature) arrays
        What enters the attention of each layer: after the norm, in models that have one before attention.
    mask : (sequence, token) array of truth values, optional
        Which tokens are real; padding is left out.
    attention : (layer, sequence, head, token, token) array, or a list of (layer, head, token, token) arrays, optional
        Weights that the model itself computed, compared with those of heads and states.
    judged : (sequence,) array of truth values, optional
        Sequences that heads are observed on; theory is fitted on the others.  Every second one by default.
    length
        Tokens of the sequences that theory speaks of, whose tokens stand as much farther apart: those that are given by
        default.  Observations are of these as they are.
    queries
        Tokens of each judged sequence at which theory is evaluated; observations use all tokens.
    seed
        Seed for the choice of these tokens, for redrawn tokens and for Haar-random heads.

    Returns
    -------
    xarray.Dataset
        Along layer, head_i, head_j and ``source``, among others: ``observed``; ``half``, the same on the other
        sequences; ``constant``, the mean of that over all pairs; ``angles``, the closed form in the principal angles of
        the key subspaces; ``leading``, theory for many tokens with Gaussian logits; ``exact``, the same at the number
        of tokens that there are, with the token that looks and attention sinks at the ends of the sequence apart;
        ``redrawn``, tokens drawn from those of the other sequences.  ``prediction_rank``,
        ``prediction_error`` and ``prediction_gain`` compare each with what is observed.  Errors ``_mcse`` are over
        judged sequences.  ``inapplicable`` says where a theory is blank, and why.  Along
        ``pair`` lie all two heads of a layer, most alike first.  ``output_size`` is the mean square of what each head
        adds.  Nothing is said of what heads add whose values or outputs are not known.

    Raises
    ------
    ValueError
        If shapes do not fit, numbers are not finite, fewer than two sequences are left on either side, or heads and
        states do not give the attention of the model; then with the cause.
    """
    if queries < 1:
        raise ValueError(f"queries = {queries}; give at least 1")
    how: dict[str, Any] = {"mask": mask, "attention": attention, "judged": judged}
    return inspect_lengths(heads, states, (length,), queries=queries, seed=seed, **how)[0]


def inspect_lengths(
    heads: TransformerHeads, states: ArrayLike | list[np.ndarray], lengths: tuple[int | None, ...], *, queries: int,
    seed: int, fixed: Fixed | None = None, mask: Any = None, attention: Any = None, judged: Any = None,
) -> list[xr.Dataset]:  # fmt: skip
    """Return what `inspect_heads` says at each of several lengths, from one observation of the states.

    Who inspects the same heads again and again finds once what is ``fixed``, and is told no scores of predictions and
    no convergence of quadrature, of which numerical errors were below 1e-5 in four models; 1e-4 is the limit.
    """
    sequences = _sequences(heads, states, mask)
    if attention is not None:
        _require_own(heads, sequences, attention)
    judged = _judged(judged, len(sequences))
    longest = max(len(tokens.places) for tokens in sequences)
    if short := [length for length in lengths if length is not None and length < longest]:
        raise ValueError(f"length = {short[0]}; give {longest} or more, as the longest sequence has")
    rng, (n_layers, _, n_features, head_dim) = np.random.default_rng(seed), heads.query.shape
    with threadpool_limits(1), ThreadPoolExecutor(_THREADS) as pool:
        known = of_weights(heads, pool.map) if fixed is None else fixed
        n_keys = max(len(np.unique(group)) for group in known.groups)
        null = haar_indices(n_keys, n_features, min(n_features, head_dim), head_dim**0.25, rng)
        of_layer = functools.partial(_layer, heads, sequences, judged, lengths, queries, fixed is None)
        layers = list(pool.map(of_layer, range(n_layers), known.angles, rng.spawn(n_layers)))
    return [_labelled(of_length, known, null, judged, fixed is None) for of_length in zip(*layers, strict=True)]


def _sequences(heads: TransformerHeads, states: ArrayLike | list[np.ndarray], mask: ArrayLike | None) -> list[Tokens]:
    """The real tokens of every sequence."""
    n_layers, _, n_features, _ = heads.query.shape
    wanted = f"(layer = {n_layers}, token, feature = {n_features})"
    if isinstance(states, (list, tuple)):
        if mask is not None:
            raise ValueError("mask beside a list of sequences; leave padding out of the list")
        given = [real_array(f"states[{s}]", one, wanted) for s, one in enumerate(states)]
        kept = [np.ones(one.shape[1] if one.ndim == 3 else 0, bool) for one in given]
    else:
        array = real_array("states", states, "(layer, sequence, token, feature)")
        if array.ndim != 4:
            raise ValueError(f"states have shape {array.shape}; give (layer, sequence, token, feature)")
        kept = list(np.ones(array.shape[1:3], bool) if mask is None else np.asarray(mask, bool))
        if np.shape(kept) != array.shape[1:3]:
            raise ValueError(f"mask has shape {np.shape(kept)}; give (sequence, token) = {array.shape[1:3]}")
        given = list(array.swapaxes(0, 1))
    found = []
    for s, (one, real) in enumerate(zip(given, kept, strict=True)):
        if one.ndim != 3 or (one.shape[0], one.shape[2]) != (n_layers, n_features) or real.sum() < 2:
            raise ValueError(
                f"states of sequence {s}: shape {one.shape}, {real.sum()} tokens; give {wanted}, 2 or more, "
                f"as query weights (layer, head, feature, dimension) have shape {heads.query.shape}; no last output"
            )
        if not np.isfinite(one[:, real]).all():
            raise ValueError(f"states of sequence {s} hold NaN or infinity; mask such tokens")
        found.append(Tokens(one if real.all() else one[:, real], np.flatnonzero(real)))
    return found


def _require_own(heads: TransformerHeads, sequences: list[Tokens], attention: ArrayLike | list[np.ndarray]) -> None:
    """Compare what heads and states give with the attention of the model."""
    given = list(attention) if isinstance(attention, (list, tuple)) else list(np.asarray(attention).swapaxes(0, 1))
    if len(given) != len(sequences):
        raise ValueError(f"attention of {len(given)} sequences; give {len(sequences)}, as of states")
    for s, (tokens, one) in enumerate(zip(sequences, given, strict=True)):
        for layer, weights in enumerate(np.asarray(one)):
            seen = project(heads, layer, tokens.states[layer], tokens.places)
            may_see = visible(heads, layer, tokens.places)
            own = attention_weights(seen.query, seen.key, heads.scale, may_see, heads.cap)
            real = weights[:, tokens.places][:, :, tokens.places] if weights.shape != own.shape else weights
            require_attention(own, real, heads.causal, may_see, f"sequence {s}, layer {layer}")


def _judged(given: ArrayLike | None, n_sequences: int) -> np.ndarray:
    chosen = np.arange(n_sequences) % 2 == 1 if given is None else np.asarray(given, bool)
    if chosen.shape != (n_sequences,):
        raise ValueError(f"judged has shape {chosen.shape}; give one truth value for each of {n_sequences} sequences")
    if min(chosen.sum(), (~chosen).sum()) < 2:
        shares = f"{chosen.sum()} of them judged; give at least 4 sequences, of which 2 are judged and 2 are not"
        raise ValueError(f"{n_sequences} sequences, {shares}")
    return chosen


def _layer(
    heads: TransformerHeads, sequences: list[Tokens], judged: np.ndarray, lengths: tuple[int | None, ...], queries: int,
    error: bool, layer: int, closed: np.ndarray, rng: np.random.Generator,
) -> list[tuple[dict[str, np.ndarray], dict[str, Any]]]:  # fmt: skip
    """Numbers of each judged sequence by name (S, ...), and those of the layer, at each length."""
    whole = unplaced(heads, layer, np.concatenate([tokens.states[layer] for tokens in sequences]))
    projected = _placed(heads, layer, whole, [tokens.places for tokens in sequences])
    visibles = [visible(heads, layer, tokens.places) for tokens in sequences]
    writes = heads.value is not None and heads.output is not None
    every = [
        observe(
            heads, layer, each, seen, heads.linear("value", layer, tokens.states[layer]) if chosen and writes else None
        )
        for each, seen, tokens, chosen in zip(projected, visibles, sequences, judged, strict=True)
    ]
    fitted, chosen = np.flatnonzero(~judged), np.flatnonzero(judged)
    half = np.mean([(every[s].correlation, every[s].gram) for s in fitted], axis=0)
    shares = np.mean([every[s].end_share for s in fitted], axis=(0, 1)) * [1, not heads.causal]
    known = np.array([[(every[s].correlation, every[s].gram), half, half, (closed, closed)] for s in chosen])
    counted = [dimensions(projected[s], heads.scale, visibles[s], heads.cap) for s in chosen]
    seen = {name: np.array(values) for name, values in zip(Dimensions._fields, zip(*counted, strict=True), strict=True)}
    seen |= {name: np.array([getattr(every[s], name) for s in chosen]) for name in ("sink_share", "output_size")}
    found = []
    for length in lengths:
        moved = _placed(heads, layer, whole, [tokens.stretched(length) for tokens in sequences])
        own = copy.deepcopy(rng)
        moments, logits, reason = predict_layer(heads, layer, moved, judged, length, queries, shares, own, error)
        correlation, gram = np.moveaxis(np.concatenate([known, moments], axis=1), 2, 0)
        void = np.isnan(np.diagonal(gram[:, 4], axis1=1, axis2=2)).any(axis=0)
        many = (
            f"the variance of logits of {void.sum()} of {len(void)} heads exceeds half of the logarithm of the tokens"
        )
        why = [many if void.any() else "", reason, ""] if heads.cap is None else ["theory knows no caps on logits"] * 3
        numbers = {"weight_correlation": correlation, "gram": gram}
        found.append((seen | numbers, logits | {"inapplicable": ["", "", "", "", *why]}))
    return found


def _placed(heads: TransformerHeads, layer: int, whole: Projected, places: list[np.ndarray]) -> list[Projected]:
    """Queries and keys of every sequence; of all at once, which takes a third of the time."""
    ends = np.cumsum([len(each) for each in places])[:-1]
    parts = placed(heads, layer, whole, np.concatenate(places))
    return [Projected(*each) for each in zip(*(np.split(array, ends, axis=1) for array in parts), strict=True)]


def _effective_heads(gram: np.ndarray, name: str) -> dict[str, np.ndarray]:
    """H times the sum of variances over the variance of the sum, of Grams (L, S, ..., H, H), with its error."""
    own, whole, n_heads = np.trace(gram, axis1=-2, axis2=-1), gram.sum(axis=(-2, -1)), gram.shape[-1]
    ratio = own.mean(axis=1) / whole.mean(axis=1)
    error = n_heads * sem(own - ratio[:, None] * whole, axis=1) / np.abs(whole.mean(axis=1))
    return {name: n_heads * ratio, f"{name}_mcse": error}


def _labelled(layers: tuple[Any, ...], fixed: Fixed, null: np.ndarray, judged: np.ndarray, scored: bool) -> xr.Dataset:
    numbers, found = ({name: np.array([layer[k][name] for layer in layers]) for name in layers[0][k]} for k in range(2))
    weights, gram, gaps = (numbers[name] for name in ("weight_correlation", "gram", "log_gaps"))
    del numbers["gram"], numbers["log_gaps"]
    set_constant(weights, gram, fixed.groups)
    found |= _effective_heads(gram, "effective_heads")
    if scored:
        found |= agreement(weights.swapaxes(0, 1).swapaxes(1, 2), fixed.groups)
    first, second = np.triu_indices(weights.shape[-1], 1)
    with np.errstate(invalid="ignore"):  # NaN of single heads
        numbers["layer_correlation"] = weights[..., first, second].sum(axis=-1) / np.float64(len(first))
    if fixed.overlaps[0] is None:
        del numbers["output_size"]
    else:
        overlaps = np.array(fixed.overlaps)
        numbers["contribution_correlation"] = weights * normalised(overlaps)[:, None, None]
        found |= _effective_heads(gram * overlaps[:, None, None], "effective_contributions")
        found["contribution_overlap"] = overlaps
    for name, values in numbers.items():
        found |= {name: values.mean(axis=1), f"{name}_mcse": sem(values, axis=1)}
    whole = numbers["layer_correlation"].mean(axis=0)
    found |= {"mean_correlation": whole.mean(axis=0), "mean_correlation_mcse": sem(whole)}
    slope = gaps.mean(axis=1)
    found |= {"gap_dimension": 2.0 / slope, "gap_dimension_mcse": 2.0 / slope**2 * sem(gaps, axis=1)}
    # All two heads of one layer, most alike first.
    correlation, error = (found[f"weight_correlation{name}"][:, 0][:, first, second] for name in ("", "_mcse"))
    order = np.argsort(-correlation, axis=None, kind="stable")
    layer, pair = np.divmod(order, max(len(first), 1))
    found |= {"pair_layer": layer, "pair_head_i": first[pair], "pair_head_j": second[pair]}
    found |= {"pair_correlation": correlation.ravel()[order], "pair_correlation_mcse": error.ravel()[order]}
    found |= {"key_group": fixed.groups, "hdi": fixed.indices}
    found |= {"hdi_haar_mean": null.mean(axis=0), "hdi_haar_deviation": null.std(axis=0, ddof=1)}
    variables = {}
    for name, values in found.items():
        dims, meaning, formula = MEANINGS[name.removesuffix("_mcse")]  # an error has the dimensions of its number
        said = f"Monte Carlo standard error over sequences: {meaning}" if name.endswith("_mcse") else meaning
        variables[name] = (dims, values, {"long_name": said, "units": "1", "formula": formula})
    coordinates = {"source": list(SOURCES), "index": list(GEOMETRIC_INDICES), "gaps": list(GAPS)}
    counts = {"n_judged": int(judged.sum()), "n_fitted": int((~judged).sum())}
    return xr.Dataset(variables, coordinates, counts).set_coords(["pair_layer", "pair_head_i", "pair_head_j"])
