"""Heads of trained transformers on random sequences: predicted from other sequences, observed, and taken away.

The only system that looks at theory: how well it predicts is what is measured here.
"""

import copy
import functools
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, get_type_hints

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from simstudy.attention.members import Array, measure
from simstudy.data.geometry import principal_angles
from simstudy.data.shared import SharedData
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.systems import real_heads as settings
from simstudy.transformers.attention import by_group, correlations_by_query, mean_correlation
from simstudy.transformers.forward import Encoder, Encoding, restored_probabilities
from simstudy.transformers.heads import TransformerHeads
from simstudy.transformers.interventions import Edit, averaging, donor_map, intervene, reduced, sharing, zeroing
from simstudy.transformers.sequences import draw_tokens
from simstudy.transformers.trained import load_trained

# Index legend: l layer; h, g head; t token; d feature; p dimension of a head.

_GROUPS = 64
"""Groups of sequences that are kept for the cells that share them: those that the threads of a machine are at."""
_PAIRS = 8
"""Pairs of heads of which one takes the pattern of the other, in each replicate."""
_EDITED = 2
"""Further sequences in each replicate, on which the damage of edits is measured."""
_LENGTHS = (64, 256, 512)
"""Tokens of texts of a causal model, of which the first are all that is seen; the first tokens of a text are a text."""


Key = tuple[int, ...]
"""Words that all random numbers of a replicate follow from."""


class _Group(NamedTuple):
    """The sequences of one replicate.

    ``found`` is what `inspect_heads` makes of them; ``edited`` are tokens of further sequences, to see the damage of
    edits. ``address`` is what the group follows from: model, number of judged sequences, words of the random numbers.
    """

    encoder: Encoder
    found: xr.Dataset
    edited: list[tuple[int, ...]]
    address: tuple[str, int, Key]

    @property
    def rng(self) -> np.random.Generator:
        """Random numbers for whatever else is random: the same for every cell."""
        return np.random.default_rng([*self.address[2], 1])

    def correlation(self, source: str) -> Array:
        """Correlation (L, H, H) of weights, observed or predicted."""
        return self.found.weight_correlation.sel(source=source).values

    def damage(self, edits: list[Edit], first: int = 0) -> Array:
        """Mean damage of each edit, none of which changes a layer before the first."""
        named = {str(number): edit for number, edit in enumerate(edits)}
        return intervene(functools.partial(_output, self.encoder, first), self.edited, named).mean_damage.values


def _output(encoder: Encoder, first: int, tokens: tuple[int, ...], edit: Edit | None) -> np.ndarray:
    output, states = _unedited(encoder, tokens)
    return output if edit is None else _probabilities(encoder(tokens, edit, (first, states[first])))


@functools.lru_cache(maxsize=_GROUPS * _EDITED)
def _unedited(encoder: Encoder, tokens: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Output of the model as it is, and what enters each of its layers."""
    encoding = encoder(tokens)
    return _probabilities(encoding), encoding.states


def _probabilities(encoding: Encoding) -> np.ndarray:
    return encoding.output if encoding.scores is None else restored_probabilities(encoding)


_ONE_AT_A_TIME = threading.Lock()


def _group(*address: Any) -> _Group:
    """The group of an address: threads that ask for one at the same time wait for one another."""
    with _ONE_AT_A_TIME:
        return _made(*address)


@functools.lru_cache(maxsize=_GROUPS)
def _made(model: str, count: int, key: Key) -> _Group:
    encoder, vocabulary = load_trained(model)
    rng = np.random.default_rng(key)
    tokens = [tuple(draw_tokens(model, vocabulary, rng)) for _ in range(2 * count + _EDITED)]
    (found,) = _inspected(model, encoder.states(tokens[: 2 * count]), (None,), rng)
    return _Group(encoder, found, tokens[2 * count :], (model, count, key))


def _inspected(
    model: str, states: list[np.ndarray], lengths: tuple[int | None, ...], rng: np.random.Generator
) -> list[xr.Dataset]:
    # Here, as with theory and statistics it takes half of the time that any run takes to begin.
    from simstudy.transformers.inspection import inspect_lengths

    heads, seed = load_trained(model).encoder.heads, int(rng.integers(2**32))
    return inspect_lengths(heads, states, lengths, queries=1, seed=seed, fixed=_fixed(model))


@functools.cache
def _fixed(model: str) -> Any:
    from simstudy.transformers.inspection import of_weights

    return of_weights(load_trained(model).encoder.heads)


@functools.lru_cache(maxsize=_GROUPS)
def _by_length(
    model: str, count: int, key: Key
) -> tuple[dict[int, dict[str, Array]], Array, tuple[list[Array], list[list[int]]]]:
    """Correlations at each length, by predictor and as "observed"; those, outputs and tokens that `_alike` wants."""
    (encoder, vocabulary), rng = load_trained(model), np.random.default_rng(key)
    texts = [draw_tokens(model, vocabulary, rng, _LENGTHS[0]) for _ in range(2 * count)]
    encodings, second = encoder.together(texts), slice(count // 2, count)
    short = [each.states for each in encodings]
    others = [each.output for each in encodings[second]], texts[second]
    (by_query,) = correlations_by_query(encoder, [draw_tokens(model, vocabulary, rng, _LENGTHS[-1])])
    found: dict[int, dict[str, Array]] = {}
    for length, said in zip(_LENGTHS, _inspected(model, short, _LENGTHS, rng), strict=True):
        by = {source: _pairs(said, source) for source in ("observed", "constant", "angles", "exact", "redrawn", "half")}
        if found:
            by["observed"] = by_group(by_query[:, :length].mean(axis=1), said.key_group.values)
        change = np.nanmean(by["exact"] - found.get(_LENGTHS[0], by)["exact"])
        found[length] = by | {"measured": by["half"], "moved": np.clip(by["half"] + change, 0, 1)}
    return found, mean_correlation(encoder.heads, short[: count // 2]), others


def _of_each(numbers: Callable[[Any, Key], dict[str, float]]) -> Callable[[Any, Key], dict[str, float]]:
    """Measure instances of the type of the first argument, replicate by replicate, from words that are its own."""

    def measured(instance: Any, cell: Cell, shared: SharedData) -> dict[str, Array]:
        words = np.ascontiguousarray(shared.normals(4, 1)[:, 0]).view(np.uint64)
        rows = [numbers(instance, tuple(map(int, key))) for key in words]
        return {name: np.array([row[name] for row in rows]) for name in rows[0]}

    measure.register(get_type_hints(numbers)["instance"], measured)
    return numbers


def _pairs(found: xr.Dataset, source: str, variable: str = "weight_correlation") -> Array:
    """Entries of all two heads of a layer, from (L, H, H) of a source; heads of one key group count once."""
    return by_group(found[variable].sel(source=source).values, found.key_group.values)


def _rank(scores: Array, values: Array) -> float:
    """Spearman's correlation where both are known; 0 with what is always the same."""
    from scipy.stats import spearmanr

    from simstudy.transformers.predictions import ROUNDING

    known = np.isfinite(scores)
    scores, values = scores[known], values[known]
    return float(spearmanr(scores, values)[0]) if min(np.ptp(scores), np.ptp(values)) > ROUNDING else 0.0


@_of_each
def predict_heads(instance: settings.HeadPredictionInstance, key: Key) -> dict[str, float]:
    """Predicted beside observed correlations of heads' attention weights."""
    group = _group(instance.model, instance.sequences, key)
    shuffled = instance.predictor == "shuffled"
    predicted = _pairs(group.found, "exact" if shuffled else instance.predictor)
    predicted = group.rng.permutation(predicted) if shuffled else predicted
    return _compared(predicted, _pairs(group.found, "observed"))


def _compared(predicted: Array, observed: Array) -> dict[str, float]:
    error = float(np.sqrt(np.nanmean((predicted - observed) ** 2)))
    return {"prediction_rank": _rank(predicted, observed), "prediction_error": error}


@_of_each
def predict_elsewhere(
    instance: settings.LengthPredictionInstance | settings.KindPredictionInstance | settings.EditedHeadsInstance,
    key: Key,
) -> dict[str, float]:
    """Correlations predicted from some texts beside those of longer texts, of another kind, or after an edit."""
    with _ONE_AT_A_TIME:
        if isinstance(instance, settings.LengthPredictionInstance):
            found = _by_length(instance.model, instance.sequences, key)[0][instance.tokens]
        elif isinstance(instance, settings.KindPredictionInstance):
            found = _by_kind(instance.model, instance.sequences, key)
        else:
            found = _by_edit(instance.model, instance.sequences, instance.rank, key)
    return _compared(found[instance.predictor], found["observed"])


@functools.lru_cache(maxsize=_GROUPS)
def _by_kind(model: str, count: int, key: Key) -> dict[str, Array]:
    """Correlations of pairs of heads on texts of another kind, by predictor and as "observed"."""
    (encoder, vocabulary), rng = load_trained(model), np.random.default_rng([*key, 2])
    texts = [draw_tokens(model, vocabulary, rng, _LENGTHS[0], other=True) for _ in range(2 * count)]
    if model == "smollm2":
        first = _by_length(model, count, key)[0][_LENGTHS[0]]
        each = np.array([by_query.mean(axis=1) for by_query in correlations_by_query(encoder, texts)])
    else:
        each = np.array([mean_correlation(encoder.heads, [states]) for states in encoder.states(texts)])
        found = _made(model, count, key).found
        first = {source: _pairs(found, source) for source in ("constant", "angles", "exact")}
        first["measured"] = _pairs(found, "half")
    seen, observed = by_group(each.reshape(2, count, *each.shape[1:]).mean(axis=1), _fixed(model).groups)
    return first | {"seen": seen, "observed": observed}


@functools.cache
def _reduced(model: str, rank: int) -> Encoder:
    edited: Encoder = copy.copy(load_trained(model).encoder)
    edited.heads = reduced(edited.heads, rank)
    return edited


@functools.lru_cache(maxsize=_GROUPS)
def _by_edit(model: str, count: int, rank: int, key: Key) -> dict[str, Array]:
    """Correlations of pairs of heads by predictor, and as "observed"."""
    (encoder, vocabulary), rng = load_trained(model), np.random.default_rng(key)
    edited = _reduced(model, rank)
    texts = [draw_tokens(model, vocabulary, rng) for _ in range(2 * count)]
    old, new = encoder.states(texts[:count]), edited.states(texts)
    first, second = np.triu_indices(edited.heads.query.shape[1], 1)

    def pairs(heads: TransformerHeads, states: list[np.ndarray]) -> Array:
        return mean_correlation(heads, states)[:, first, second].ravel()

    before = pairs(encoder.heads, old)
    return {
        "before": before,
        "constant": np.full_like(before, before.mean()),
        "states": pairs(edited.heads, old),
        "after": pairs(edited.heads, new[:count]),
        "observed": pairs(edited.heads, new[count:]),
    }


@_of_each
def order_layers(instance: settings.LayerOrderInstance, key: Key) -> dict[str, float]:
    """Concordance of layers by a score and by their effective heads."""
    group = _group(instance.model, instance.sequences, key)
    effective = group.found.effective_heads.sel(source=["exact", "observed"]).values.T
    score = group.found.hdi.sel(index="chordal").values if instance.predictor == "diversity" else effective[0]
    first, second = np.triu_indices(len(score), 1)
    agreed = np.sign(score[first] - score[second]) * np.sign(effective[1][first] - effective[1][second])
    return {"layer_concordance": float((1 + agreed.mean()) / 2)}


@_of_each
def overlap_heads(instance: settings.HeadOverlapInstance, key: Key) -> dict[str, float]:
    """Mean correlations of weights and contributions, and the diversity of key subspaces."""
    group = _group(instance.model, instance.sequences, key)
    found = group.found.sel(index="chordal")
    return {
        "weight_overlap": float(_pairs(found, "observed").mean()),
        "contribution_overlap": float(np.abs(_pairs(found, "observed", "contribution_correlation")).mean()),
        "haar_excess": float(found.hdi_haar_mean - found.hdi.max()),
    }


@_of_each
def count_dimensions(instance: settings.HeadDimensionsInstance, key: Key) -> dict[str, float]:
    """Dimensions and lengths of the keys of the median head."""
    group = _group(instance.model, instance.sequences, key)
    apparent, gaps = group.found.apparent_dimension.values.ravel(), group.found.gap_dimension.values[..., 0].ravel()
    gaussian = 1.0 / np.sqrt(2.0 * group.encoder.heads.key.shape[3])
    return {
        "apparent_dimension": float(np.median(apparent)),
        "gap_dimension": float(np.median(gaps)),
        "length_variation": float(np.median(group.found.key_length_variation)) / gaussian,
        "dimension_rank": _rank(apparent, gaps),
    }


@_of_each
def share_patterns(instance: settings.PatternSharingInstance, key: Key) -> dict[str, float]:
    """Damage of sharing the patterns of the pairs that something puts first."""
    group = _group(instance.model, instance.sequences, key)
    at_random = instance.chosen_by == "random"
    similarity = group.correlation("observed" if at_random else instance.chosen_by)
    similarity = group.rng.random(similarity.shape) if at_random else similarity
    return {"sharing_damage": float(group.damage([sharing(donor_map(similarity, instance.share))])[0])}


@_of_each
def raise_losses(instance: settings.HeadLossInstance, key: Key) -> dict[str, float]:
    """Rise of the loss on other texts than those that chose the heads that are edited."""
    with _ONE_AT_A_TIME:
        alike, judged = _alike(instance.model, instance.sequences, key)
    at_random = instance.chosen_by == "random"
    donors = donor_map(np.random.default_rng([*key, 1]).random(alike.shape) if at_random else alike, instance.share)
    if instance.edit == "average":
        edit = averaging(*donors, causal=load_trained(instance.model).encoder.heads.causal)
    else:
        edit = sharing(donors) if instance.edit == "share" else zeroing(*donors)
    texts, own = zip(*judged, strict=True)
    edited = load_trained(instance.model).encoder.losses(texts, edit)
    return {"loss_rise": float(np.mean(np.subtract(edited, own)))}


@functools.lru_cache(maxsize=_GROUPS)
def _alike(model: str, count: int, key: Key) -> tuple[Array, list[tuple[list[int], float]]]:
    """Correlations (L, H, H) of heads on some texts; the tokens of as many others, with the loss of each."""
    if model == "smollm2":  # the same texts, passed once
        _, alike, others = _by_length(model, 2 * count, key)
        return alike, list(
            zip(others[1], load_trained(model).encoder.losses(others[1], outputs=others[0]), strict=True)
        )
    (encoder, vocabulary), rng = load_trained(model), np.random.default_rng(key)
    texts = [draw_tokens(model, vocabulary, rng) for _ in range(2 * count)]
    alike = mean_correlation(encoder.heads, encoder.states(texts[:count]))
    return alike, list(zip(texts[count:], encoder.losses(texts[count:]), strict=True))


@_of_each
def share_pairs(instance: settings.PairSharingInstance, key: Key) -> dict[str, float]:
    """Rank correlation of the distance of two heads with the damage if one takes the pattern of the other."""
    group = _group(instance.model, instance.sequences, key)
    layer, pairs, damage = _shared_pairs(*group.address)
    return {"sharing_rank": _rank(1 - group.correlation(instance.predictor)[layer][tuple(pairs.T)], damage)}


@functools.lru_cache(maxsize=_GROUPS)
def _shared_pairs(*address: Any) -> tuple[int, NDArray[np.intp], Array]:
    """A random layer, random pairs (pair, 2) of a head and its donor, and the damage (pair,)."""
    group = _group(*address)
    n_layers, n_heads = group.found.key_group.shape
    rng = group.rng
    layer = int(rng.integers(n_layers))
    pairs = rng.permutation(np.argwhere(~np.eye(n_heads, dtype=bool)))[:_PAIRS]
    return layer, pairs, group.damage([sharing({(layer, int(head)): int(donor)}) for head, donor in pairs], layer)


@_of_each
def prune_heads(instance: settings.HeadPruningInstance, key: Key) -> dict[str, float]:
    """Rank correlation of a score of heads with the damage of setting one to zero, in one layer."""
    group = _group(instance.model, instance.sequences, key)
    layer, damage = _pruned(*group.address)
    score = group.found.output_size.values[layer] if instance.score == "norm" else _distances(instance.model, layer)
    return {"pruning_rank": _rank(score, damage)}


@functools.lru_cache(maxsize=_GROUPS)
def _pruned(*address: Any) -> tuple[int, Array]:
    """A random layer, and the damage (H,) of setting each of its heads to zero."""
    group = _group(*address)
    n_layers, n_heads = group.found.key_group.shape
    layer = int(group.rng.integers(n_layers))
    return layer, group.damage([zeroing((layer, head)) for head in range(n_heads)], layer)


@functools.cache
def _distances(model: str, layer: int) -> Array:
    """Mean squared sine of the angles of each head's key subspace to those of the others: (H,)."""
    squares = np.sin(principal_angles(load_trained(model).encoder.heads.key[layer])) ** 2
    return squares.mean(axis=2).sum(axis=1) / (len(squares) - 1)
