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
from simstudy.transformers.labels import described
from simstudy.transformers.predictions import SOURCES, agreement, predict_layer, set_constant
from simstudy.transformers.subspaces import geometry, key_groups, null_indices

_CAPPED = ("", "", "", "", *["theory knows no caps on logits"] * 3)
_THREADS = 2
"""A layer of 32 heads of 4096 by 128 fills 0.6 GB."""


class Tokens(NamedTuple):
    """States (L, T, d) of the real tokens of one sequence, and the places (T,) at which they stand."""

    states: np.ndarray
    places: np.ndarray


class _Layer(NamedTuple):
    """Of one layer: Grams (S, source, H, H) of judged sequences, numbers of each by name (S, ...), and others."""

    gram: np.ndarray
    by_sequence: dict[str, np.ndarray]
    whole: dict[str, Any]


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
    sequences = _sequences(heads, states, mask)
    if attention is not None:
        _require_own(heads, sequences, attention)
    chosen = _judged(judged, len(sequences))
    if queries < 1:
        raise ValueError(f"queries = {queries}; give at least 1")
    if length is not None and length < (longest := max(len(tokens.places) for tokens in sequences)):
        raise ValueError(f"length = {length}; give {longest} or more, as the longest sequence has")
    return _inspected(heads, sequences, chosen, (length,), queries, seed)[0]


def inspect_lengths(
    heads: TransformerHeads, states: list[np.ndarray], lengths: tuple[int | None, ...], *, queries: int, seed: int,
    fixed: Fixed | None = None,
) -> list[xr.Dataset]:  # fmt: skip
    """Return what `inspect_heads` says at each of several lengths, from one observation of the states.

    Who inspects the same heads again and again finds once what is ``fixed``, and is told no scores of predictions and
    no convergence of quadrature, of which numerical errors were below 1e-5 in four models; 1e-4 is the limit.
    """
    sequences = _sequences(heads, states, None)
    return _inspected(heads, sequences, _judged(None, len(sequences)), lengths, queries, seed, fixed)


def _inspected(
    heads: TransformerHeads, sequences: list[Tokens], judged: np.ndarray, lengths: tuple[int | None, ...], queries: int,
    seed: int, fixed: Fixed | None = None,
) -> list[xr.Dataset]:  # fmt: skip
    rng, n_layers = np.random.default_rng(seed), len(heads.query)
    with threadpool_limits(1), ThreadPoolExecutor(_THREADS) as pool:
        known = of_weights(heads, pool.map) if fixed is None else fixed
        null = null_indices(heads.key, known.groups, rng)
        of_layer = functools.partial(_layer, heads, sequences, judged, lengths, queries, fixed is None)
        layers = list(pool.map(of_layer, range(n_layers), known.angles, rng.spawn(n_layers)))
    found = []
    for of_length in map(list, zip(*layers, strict=True)):
        set_constant(
            [each for one in of_length for each in (one.by_sequence["weight_correlation"], one.gram)], known.groups
        )
        found.append(_labelled(of_length, known, null, judged, fixed is None))
    return found


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
) -> list[_Layer]:  # fmt: skip
    whole = unplaced(heads, layer, np.concatenate([tokens.states[layer] for tokens in sequences]))
    projected = _placed(heads, layer, whole, [tokens.places for tokens in sequences])
    visibles = [visible(heads, layer, tokens.places) for tokens in sequences]
    writes = heads.value is not None and heads.output is not None
    every = [
        observe(each, heads.scale, seen, heads.cap, *(_written(heads, layer, tokens) if chosen and writes else ()))
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
        stretched = [tokens.places if length is None else _stretched(tokens.places, length) for tokens in sequences]
        moved = projected if length is None else _placed(heads, layer, whole, stretched)
        own = copy.deepcopy(rng)
        moments, logits, reason = predict_layer(heads, layer, moved, judged, length, queries, shares, own, error)
        correlation, gram = np.moveaxis(np.concatenate([known, moments], axis=1), 2, 0)
        why = ("", "", "", "", _void(gram[:, 4]), reason, "") if heads.cap is None else _CAPPED
        found.append(_Layer(gram, seen | {"weight_correlation": correlation}, logits | {"inapplicable": why}))
    return found


def _stretched(places: np.ndarray, length: int) -> np.ndarray:
    """The places of tokens that are as far apart as they are in a sequence of so many."""
    return places[0] + (places - places[0]) * (length - 1) / (places[-1] - places[0])


def _placed(heads: TransformerHeads, layer: int, whole: Projected, places: list[np.ndarray]) -> list[Projected]:
    """Queries and keys of every sequence; of all at once, which takes a third of the time."""
    ends = np.cumsum([len(each) for each in places])[:-1]
    parts = placed(heads, layer, whole, np.concatenate(places))
    return [Projected(*each) for each in zip(*(np.split(array, ends, axis=1) for array in parts), strict=True)]


def _written(heads: TransformerHeads, layer: int, tokens: Tokens) -> tuple[np.ndarray, np.ndarray]:
    """Values of one sequence, and the matrix by which heads write their means."""
    values = heads.shared_product(tokens.states[layer], heads.value[layer])
    return values + heads.value_bias[layer][:, None], heads.output[layer]


def _void(leading: np.ndarray) -> str:
    """Why leading order is blank, from its Grams (S, H, H)."""
    blank = np.isnan(np.diagonal(leading, axis1=1, axis2=2)).any(axis=0)
    if not blank.any():
        return ""
    return f"the variance of logits of {blank.sum()} of {len(blank)} heads exceeds half of the logarithm of the tokens"


def _effective_heads(grams: list[np.ndarray], name: str) -> dict[str, np.ndarray]:
    """H times the sum of variances over the variance of the sum, of Grams (S, ..., H, H) by layer, with its error."""
    found = []
    for gram in grams:
        own, whole, n_heads = np.trace(gram, axis1=-2, axis2=-1), gram.sum(axis=(-2, -1)), gram.shape[-1]
        ratio = own.mean(axis=0) / whole.mean(axis=0)
        found.append((n_heads * ratio, n_heads * sem(own - ratio * whole) / np.abs(whole.mean(axis=0))))
    values, errors = map(np.array, zip(*found, strict=True))
    return {name: values, f"{name}_mcse": errors}


def _labelled(layers: list[_Layer], fixed: Fixed, null: np.ndarray, judged: np.ndarray, scored: bool) -> xr.Dataset:
    numbers = {name: np.stack([layer.by_sequence[name] for layer in layers]) for name in layers[0].by_sequence}
    found = {name: np.array([layer.whole[name] for layer in layers]) for name in layers[0].whole}
    found |= _effective_heads([layer.gram for layer in layers], "effective_heads")
    weights, gaps = numbers["weight_correlation"], numbers.pop("log_gaps")
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
        added = [layer.gram * overlap for layer, overlap in zip(layers, overlaps, strict=True)]
        found |= _effective_heads(added, "effective_contributions") | {"contribution_overlap": overlaps}
    for name, values in numbers.items():
        found |= {name: values.mean(axis=1), f"{name}_mcse": sem(values, axis=1)}
    whole = numbers["layer_correlation"].mean(axis=0)
    found |= {"mean_correlation": whole.mean(axis=0), "mean_correlation_mcse": sem(whole)}
    slope = gaps.mean(axis=1)
    found |= {"gap_dimension": 2.0 / slope, "gap_dimension_mcse": 2.0 / slope**2 * sem(gaps, axis=1)}
    found |= _ranked(found["weight_correlation"][:, 0], found["weight_correlation_mcse"][:, 0])
    found |= {"key_group": fixed.groups, "hdi": fixed.indices}
    found |= {"hdi_haar_mean": null.mean(axis=0), "hdi_haar_deviation": null.std(axis=0, ddof=1)}
    coordinates: dict[str, list[Any]] = {"source": list(SOURCES), "index": list(GEOMETRIC_INDICES), "gaps": list(GAPS)}
    counts = {"n_judged": int(judged.sum()), "n_fitted": int((~judged).sum())}
    return described(found, coordinates, counts).set_coords(["pair_layer", "pair_head_i", "pair_head_j"])


def _ranked(correlation: np.ndarray, error: np.ndarray) -> dict[str, np.ndarray]:
    """All two heads of one layer, most alike first, from what is observed (L, H, H)."""
    first, second = np.triu_indices(correlation.shape[1], 1)
    order = np.argsort(-correlation[:, first, second], axis=None, kind="stable")
    layer, pair = np.divmod(order, max(len(first), 1))
    places = layer, first[pair], second[pair]
    return {
        "pair_layer": layer, "pair_head_i": places[1], "pair_head_j": places[2],
        "pair_correlation": correlation[places], "pair_correlation_mcse": error[places],
    }  # fmt: skip
