"""Heads of trained transformers on random sequences: predicted from other sequences, observed, and taken away.

The only system that looks at theory: how well it predicts is what is measured here.
"""

import copy
import functools
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from simstudy.attention.members import Array, Rows, quantities
from simstudy.data.geometry import principal_angles
from simstudy.data.shared import SharedData
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.systems import real_heads as settings
from simstudy.transformers.attention import by_group, correlations_by_query, mean_correlation
from simstudy.transformers.heads import TransformerHeads
from simstudy.transformers.interventions import Edit, averaging, donor_map, intervene, reduced, sharing, zeroing
from simstudy.transformers.sequences import draw_tokens
from simstudy.transformers.trained import Encoder, Encoding, load_trained, restored_probabilities

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


class _Group:
    """The sequences of one replicate, for a model and a number of judged sequences.

    ``found`` is what `inspect_heads` makes of them; ``edited`` are tokens of further sequences, to see the damage of
    edits.
    """

    def __init__(self, model: str, count: int, key: Key) -> None:
        self.key, rng = key, np.random.default_rng(key)
        self.encoder, vocabulary = load_trained(model)
        tokens = [tuple(draw_tokens(model, vocabulary, rng)) for _ in range(2 * count + _EDITED)]
        (self.found,) = _inspected(model, self.encoder.states(tokens[: 2 * count]), (None,), rng)
        self.edited = tokens[2 * count :]

    @property
    def rng(self) -> np.random.Generator:
        """Random numbers for whatever else is random: the same for every cell."""
        return np.random.default_rng([*self.key, 1])

    def correlation(self, source: str) -> Array:
        """Correlation (L, H, H) of weights, observed or predicted."""
        return self.found.weight_correlation.sel(source=source).values

    def damage(self, edits: list[Edit], first: int = 0) -> Array:
        """Mean damage of each edit, none of which changes a layer before the first."""

        def output(tokens: tuple[int, ...], edit: Edit | None) -> np.ndarray:
            found, states = _unedited(self.encoder, tokens)
            return found if edit is None else _probabilities(self.encoder(tokens, edit, (first, states[first])))

        named = {str(number): edit for number, edit in enumerate(edits)}
        return intervene(output, self.edited, named).mean_damage.values


@functools.lru_cache(maxsize=_GROUPS * _EDITED)
def _unedited(encoder: Encoder, tokens: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Output of the model as it is, and what enters each of its layers."""
    encoding = encoder(tokens)
    return _probabilities(encoding), encoding.states


def _probabilities(encoding: Encoding) -> np.ndarray:
    return encoding.output if encoding.scores is None else restored_probabilities(encoding)


_ONE_AT_A_TIME = threading.Lock()
"""Threads that ask for one thing at the same time wait for one another."""
_made = functools.lru_cache(maxsize=_GROUPS)(_Group)


def _keys(shared: SharedData) -> Iterator[Key]:
    words = np.ascontiguousarray(shared.normals(4, 1)[:, 0]).view(np.uint64)
    return (tuple(map(int, key)) for key in words)


def _groups(instance: Any, shared: SharedData) -> Iterator[_Group]:
    for key in _keys(shared):
        with _ONE_AT_A_TIME:
            group = _made(instance.model, instance.sequences, key)
        yield group


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


@quantities.register
def predict_heads(instance: settings.HeadPredictionInstance, cell: Cell, shared: SharedData) -> Rows:
    """Predicted beside observed correlations of heads' attention weights."""
    shuffled = instance.predictor == "shuffled"
    for group in _groups(instance, shared):
        predicted = _pairs(group.found, "exact" if shuffled else instance.predictor)
        predicted = group.rng.permutation(predicted) if shuffled else predicted
        yield _compared(predicted, _pairs(group.found, "observed"))


def _compared(predicted: Array, observed: Array) -> tuple[float, float]:
    return _rank(predicted, observed), float(np.sqrt(np.nanmean((predicted - observed) ** 2)))


@quantities.register
def predict_elsewhere(
    instance: settings.LengthPredictionInstance | settings.KindPredictionInstance | settings.EditedHeadsInstance,
    cell: Cell,
    shared: SharedData,
) -> Rows:
    """Correlations predicted from some texts beside those of longer texts, of another kind, or after an edit."""
    for key in _keys(shared):
        with _ONE_AT_A_TIME:
            if isinstance(instance, settings.LengthPredictionInstance):
                found = _by_length(instance.model, instance.sequences, key)[0][instance.tokens]
            elif isinstance(instance, settings.KindPredictionInstance):
                found = _by_kind(instance.model, instance.sequences, key)
            else:
                found = _by_edit(instance.model, instance.sequences, instance.rank, key)
        yield _compared(found[instance.predictor], found["observed"])


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


@quantities.register
def order_layers(instance: settings.LayerOrderInstance, cell: Cell, shared: SharedData) -> Rows:
    """Concordance of layers by a score and by their effective heads."""
    for group in _groups(instance, shared):
        effective = group.found.effective_heads.sel(source=["exact", "observed"]).values.T
        score = group.found.hdi.sel(index="chordal").values if instance.predictor == "diversity" else effective[0]
        first, second = np.triu_indices(len(score), 1)
        agreed = np.sign(score[first] - score[second]) * np.sign(effective[1][first] - effective[1][second])
        yield ((1 + agreed.mean()) / 2,)


@quantities.register
def overlap_heads(instance: settings.HeadOverlapInstance, cell: Cell, shared: SharedData) -> Rows:
    """Mean correlations of weights and contributions, and the diversity of key subspaces."""
    for group in _groups(instance, shared):
        found = group.found.sel(index="chordal")
        added = _pairs(found, "observed", "contribution_correlation")
        yield _pairs(found, "observed").mean(), np.abs(added).mean(), found.hdi_haar_mean - found.hdi.max()


@quantities.register
def count_dimensions(instance: settings.HeadDimensionsInstance, cell: Cell, shared: SharedData) -> Rows:
    """Dimensions and lengths of the keys of the median head."""
    for group in _groups(instance, shared):
        found, gaussian = group.found, 1.0 / np.sqrt(2.0 * group.encoder.heads.key.shape[3])
        apparent, gaps = found.apparent_dimension.values.ravel(), found.gap_dimension.values[..., 0].ravel()
        variation = float(np.median(found.key_length_variation)) / gaussian
        yield np.median(apparent), np.median(gaps), variation, _rank(apparent, gaps)


@quantities.register
def share_patterns(instance: settings.PatternSharingInstance, cell: Cell, shared: SharedData) -> Rows:
    """Damage of sharing the patterns of the pairs that something puts first."""
    at_random = instance.chosen_by == "random"
    for group in _groups(instance, shared):
        similarity = group.correlation("observed" if at_random else instance.chosen_by)
        similarity = group.rng.random(similarity.shape) if at_random else similarity
        yield tuple(group.damage([sharing(donor_map(similarity, instance.share))]))


@quantities.register
def raise_losses(instance: settings.HeadLossInstance, cell: Cell, shared: SharedData) -> Rows:
    """Rise of the loss on other texts than those that chose the heads that are edited."""
    encoder, _ = load_trained(instance.model)
    for key in _keys(shared):
        with _ONE_AT_A_TIME:
            alike, judged = _alike(instance.model, instance.sequences, key)
        at_random = instance.chosen_by == "random"
        donors = donor_map(np.random.default_rng([*key, 1]).random(alike.shape) if at_random else alike, instance.share)
        if instance.edit == "average":
            edit = averaging(*donors, causal=encoder.heads.causal)
        else:
            edit = sharing(donors) if instance.edit == "share" else zeroing(*donors)
        texts, own = zip(*judged, strict=True)
        yield (np.mean(np.subtract(encoder.losses(texts, edit), own)),)


@functools.lru_cache(maxsize=_GROUPS)
def _alike(model: str, count: int, key: Key) -> tuple[Array, list[tuple[list[int], float]]]:
    """Correlations (L, H, H) of heads on some texts; the tokens of as many others, with the loss of each."""
    if model == "smollm2":  # the same texts, passed once
        _, alike, (outputs, texts) = _by_length(model, 2 * count, key)
        return alike, list(zip(texts, load_trained(model).encoder.losses(texts, outputs=outputs), strict=True))
    (encoder, vocabulary), rng = load_trained(model), np.random.default_rng(key)
    texts = [draw_tokens(model, vocabulary, rng) for _ in range(2 * count)]
    alike = mean_correlation(encoder.heads, encoder.states(texts[:count]))
    return alike, list(zip(texts[count:], encoder.losses(texts[count:]), strict=True))


@quantities.register
def share_pairs(instance: settings.PairSharingInstance, cell: Cell, shared: SharedData) -> Rows:
    """Rank correlation of the distance of two heads with the damage if one takes the pattern of the other."""
    for group in _groups(instance, shared):
        layer, pairs, damage = _shared_pairs(group)
        yield (_rank(1 - group.correlation(instance.predictor)[layer][tuple(pairs.T)], damage),)


@functools.lru_cache(maxsize=_GROUPS)
def _shared_pairs(group: _Group) -> tuple[int, NDArray[np.intp], Array]:
    """A random layer, random pairs (pair, 2) of a head and its donor, and the damage (pair,)."""
    n_layers, n_heads = group.found.key_group.shape
    rng = group.rng
    layer = int(rng.integers(n_layers))
    pairs = rng.permutation(np.argwhere(~np.eye(n_heads, dtype=bool)))[:_PAIRS]
    return layer, pairs, group.damage([sharing({(layer, int(head)): int(donor)}) for head, donor in pairs], layer)


@quantities.register
def prune_heads(instance: settings.HeadPruningInstance, cell: Cell, shared: SharedData) -> Rows:
    """Rank correlation of a score of heads with the damage of setting one to zero, in one layer."""
    for group in _groups(instance, shared):
        layer, damage = _pruned(group)
        score = group.found.output_size.values[layer] if instance.score == "norm" else _distances(instance.model, layer)
        yield (_rank(score, damage),)


@functools.lru_cache(maxsize=_GROUPS)
def _pruned(group: _Group) -> tuple[int, Array]:
    """A random layer, and the damage (H,) of setting each of its heads to zero."""
    n_layers, n_heads = group.found.key_group.shape
    layer = int(group.rng.integers(n_layers))
    return layer, group.damage([zeroing((layer, head)) for head in range(n_heads)], layer)


@functools.cache
def _distances(model: str, layer: int) -> Array:
    """Mean squared sine of the angles of each head's key subspace to those of the others: (H,)."""
    squares = np.sin(principal_angles(load_trained(model).encoder.heads.key[layer])) ** 2
    return squares.mean(axis=2).sum(axis=1) / (len(squares) - 1)
