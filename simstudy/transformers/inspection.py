"""Correlations of the heads of a model on given texts, numbers of effective heads, and theoretical predictions.

Index legend: h, g head; t query; s key; b text; d dimension of a head.
"""

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.linalg import get_blas_funcs
from scipy.special import softmax
from scipy.stats import rankdata

from simstudy.arguments import real_array, real_number
from simstudy.errors import UserError, require_extra
from simstudy.theory import logit_moments
from simstudy.transformers.capture import capture

Array = NDArray[np.float64]
SOURCES = ("observed", "half", "constant", "exact")
"""Odd texts; even texts; their mean correlation; exact theory for Gaussian logits with the keys of even texts."""
QUERIES = 4
"""Most queries of one attention at which theory is evaluated."""
_OF_TOKENIZERS = {"input_ids", "attention_mask", "token_type_ids"}
_PAIRS, _HEAD = ("layer", "source", "head_i", "head_j"), ("layer", "head")

MEANINGS = {
    "weight_correlation": (
        _PAIRS, "correlation of the outputs of two heads at a query if values are noise, mean of queries and texts",
        "mean_t G_ij / (G_ii G_jj)^(1/2), G_ij = sum_s w_its w_jts",
    ),
    "layer_correlation": (("layer", "source"), "mean weight_correlation of two heads of a layer", "mean"),
    "mean_correlation": (("source",), "mean of layer_correlation over all layers", "mean"),
    "effective_heads": (
        ("layer", "source"), "number of uncorrelated heads whose average has the same variance",
        "H tr(G) / sum_ij G_ij, G averaged over queries",
    ),
    "prediction_rank": (("source",), "rank correlation with the observed correlation over pairs of heads", "Spearman"),
    "prediction_error": (
        ("source",), "root mean squared difference from the observed correlation over pairs of heads",
        "(mean of (c_ij - c_ij observed)^2)^(1/2)",
    ),
    "logit_variance": (_HEAD, "variance of logits over keys, averaged over queries", "mean_t q_t' S q_t"),
    "sink_share": (
        _HEAD, "largest share of the weight of a head on one token", "max_s mean_t w_ts, averaged over texts",
    ),
    "pair_correlation": (("pair",), "observed weight_correlation of two heads, in descending order", "see there"),
    "pair_layer": (("pair",), "layer of two heads, in descending order of correlation", "rank of pair_correlation"),
    "pair_head_i": (("pair",), "the first of the two heads", "from 0"),
    "pair_head_j": (("pair",), "the second of the two heads", "from 0"),
    "inapplicable": (("layer",), "why theory is NaN; empty where it is not", "text"),
}  # fmt: skip
"""Dimensions, meaning and formula of each variable."""


def inspect_heads(model: Any, inputs: Any = None, *, seed: int = 0) -> xr.Dataset:
    """Measure correlations of the heads of each attention of a model, and predict them by theory from other texts.

    The correlation of two heads is that of their outputs if values are noise: G_hg / (G_hh G_gg)^(1/2) with
    G_hg = sum_s w_hs w_gs over tokens s, averaged over queries that see a key and are not padding.

    Parameters
    ----------
    model : torch.nn.Module or mapping of arrays
        A model in evaluation mode; or arrays, without torch: ``{"W_Q": ..., "W_K": ...}`` of shape
        (layer, head, feature, dimension), with ``"scale"`` (1/√dimension by default) and ``"causal"`` (False);
        or ``{"weights": ...}`` of shape (layer, text, head, query, key).
    inputs
        Input of the model: a mapping of keyword arguments (of a tokenizer, then texts are run one by one), a tensor, a
        function without arguments that runs the model, or an iterable of these.  For W_Q and W_K, the states (layer,
        text, token, feature) on which attention acts.  At least four texts.
    seed
        Seed of the random choice of queries at which theory is evaluated.

    Returns
    -------
    xarray.Dataset
        Along ``layer`` (with names of modules), ``head``, ``head_i``, ``head_j`` and ``source``.  Sources: ``observed``
        on every second text; ``half``, the same on the other texts; ``constant``, the mean of ``half`` over all pairs;
        ``exact``, theory for the number of keys that a query sees and Gaussian logits with the keys of the other texts,
        averaged over a few queries.  Errors ``_mcse`` are over texts; for ``exact`` and ``logit_variance``, over these
        queries; for ``prediction_rank`` and ``prediction_error`` over observed texts.  Along ``pair`` are all
        pairs of heads of a layer, in descending order of correlation.  ``inapplicable`` says why theory is NaN.

    Raises
    ------
    UserError, ValueError
        If attention cannot be captured (see `simstudy.transformers.capture.capture`), shapes do not fit, numbers
        are not real and finite, or there are fewer than four texts.
    """
    layers: dict[str, Layer] = {}
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise UserError(f"seed = {seed!r}: must be a whole number, at least 0")

    def layer(name: str) -> Layer:  # each has a generator, so that results do not depend on batches of texts
        return layers.setdefault(name, Layer(np.random.default_rng([seed, len(layers)])))

    if isinstance(model, Mapping):
        _observe_arrays(model, inputs, layer)
    else:
        for run in _runs(model, inputs):
            _observe_model(model, run, layer)
    if (n := min((len(each.means) for each in layers.values()), default=0)) < 4:
        raise UserError(f"{n or 'no'} text{'s' * (n != 1)}; give at least 4, of which every second one is judged")
    for name, each in layers.items():
        each.gather(n, name)
    return _labelled(layers)


def _runs(model: Any, inputs: Any) -> Iterator[Callable[[], Any]]:
    """Yield functions, each of which runs the model on one batch of texts."""
    require_extra("a model", "torch", "models")
    import torch

    if inputs is None:
        raise UserError("inputs: give what the model takes, such as the output of its tokenizer")
    if callable(inputs):
        yield inputs
    elif isinstance(inputs, Mapping) and inputs.keys() <= _OF_TOKENIZERS:
        sizes = {len(each) if torch.is_tensor(each) else 0 for each in inputs.values()}
        if len(sizes) > 1 or 0 in sizes:
            remedy = "call the tokenizer with return_tensors='pt' and padding=True"
            raise UserError(f"inputs {', '.join(inputs)}: no tensors of the same texts; {remedy}")
        for texts in zip(*(each.split(1) for each in inputs.values()), strict=True):  # a model holds one at a time
            yield functools.partial(model, **dict(zip(inputs, texts, strict=True)))
    elif isinstance(inputs, Mapping):
        yield lambda: model(**inputs)
    elif torch.is_tensor(inputs):
        yield lambda: model(inputs)
    elif isinstance(inputs, Iterable) and not isinstance(inputs, str | bytes):
        for each in inputs:
            yield from _runs(model, each)
    else:
        said = f"inputs of type {type(inputs).__name__}"
        raise UserError(f"{said}; give mappings such as a tokenizer returns, tensors, or a function")


def _observe_model(model: Any, run: Callable[[], Any], layer: Callable[[str], "Layer"]) -> None:
    import torch

    counts: dict[str, int] = defaultdict(int)

    def visit(call: Any) -> None:
        with torch._C.DisableTorchFunction():  # not watched: nothing here is attention of the model
            means, counted = call.means(), call.counted.cpu().numpy()
            visible = call.visible[:, 0].expand(len(counted), *call.shape[2:]).cpu().numpy()
        reason = "" if call.plain else "theory is not known for logits with a cap, sinks or a bias"
        reason = "queries and keys were not captured, weights alone" if call.query is None else reason
        counts[call.name] += 1
        name = f"{call.name} ({counts[call.name]})" if counts[call.name] > 1 else call.name
        layer(name).add(means, call, counted, reason, visible)

    with torch.no_grad(), capture(model, visit):
        run()


def _of_weights(weights: Array) -> tuple[Array, ...]:
    """Return `Call.means` of an array of weights (b, h, t, s)."""
    grams, kept = np.einsum("bhts,bgts->bthg", weights, weights), np.expand_dims(weights.any(axis=(1, 3)), (2, 3))
    return tuple(np.mean(each, axis=1, where=kept) for each in (grams, _correlation(grams), weights.swapaxes(1, 2)))


def _observe_arrays(arrays: Mapping[str, Any], states: Any, layer: Callable[[str], "Layer"]) -> None:
    """Add heads that are given as arrays to layers."""
    if set(arrays) == {"weights"}:
        given = _numbers(real_array("weights", arrays["weights"], "(layer, text, head, query, key)"))
        sums: Any = np.abs(given.sum(axis=-1, dtype=float)) if given.ndim == 5 else np.inf
        if not (np.all(sums <= 1.01) and sums.any(axis=(2, 3)).all()):
            wanted = "finite numbers (layer, text, head, query, key), for each query of sum 1 at most, in no text all 0"
            raise UserError(f"weights have shape {given.shape}; give {wanted}")
        for number, texts in enumerate(given):
            layer(str(number)).add(_of_weights(texts), None, None, "queries and keys were not given, weights alone")
        return
    if not {"W_Q", "W_K"} <= arrays.keys() <= {"W_Q", "W_K", "scale", "causal"}:
        raise UserError(f"arrays {', '.join(map(str, arrays)) or 'none'}; give W_Q and W_K (scale, causal), or weights")
    heads = (real_array(name, arrays[name], "(layer, head, feature, dimension)") for name in ("W_Q", "W_K"))
    query, key, tokens = map(_numbers, (*heads, real_array("states", states, "(layer, text, token, feature)")))
    if query.ndim != 4 or query.shape != key.shape or tokens.ndim != 4 or len(tokens) != len(query) or not tokens.size:
        shapes = f"W_Q {query.shape}, W_K {key.shape}, states {tokens.shape}"
        raise UserError(f"{shapes}; give (layer, head, feature, dimension) twice and (layer, text, token, feature)")
    if tokens.shape[-1] != query.shape[2]:
        raise UserError(f"states of {tokens.shape[-1]} features, heads of {query.shape[2]}; give the same number")
    if not all(np.isfinite(each).all() for each in (query, key, tokens)):
        raise UserError("W_Q, W_K or states hold NaN or infinity; give finite numbers")
    scale = real_number("scale", arrays.get("scale", query.shape[-1] ** -0.5))
    ahead = np.triu(np.ones(tokens.shape[2:3] * 2, bool), 1) if arrays.get("causal", False) else None
    for number, (w_q, w_k, texts) in enumerate(zip(query, key, tokens, strict=True)):
        q, k = (np.einsum("btf,hfd->bhtd", texts, w) for w in (w_q, w_k))
        logits = scale * q @ k.swapaxes(-1, -2)
        weights = softmax(logits if ahead is None else np.where(ahead, -np.inf, logits), axis=-1)
        seen = np.broadcast_to(True if ahead is None else ~ahead, weights[:, 0].shape)
        call = SimpleNamespace(query=q, key=k, scale=scale)
        layer(str(number)).add(_of_weights(weights), call, seen.any(-1), "", seen)


class Layer:
    """Means of weights for each text of one attention, moments of keys, and a sample of queries."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self.means: list[Array] = []  # for each text (h, 2 h + 1): Gram matrix, correlations, sink share
        self.reason = ""
        self.scale, self._n_seen, self._freedom = 0.0, 0, 0
        self._queries: dict[int, tuple[Array, int]] = {}  # query (h, d) of odd texts, and number of visible keys
        self._products: Any = None  # upper triangle (h d, h d) of sums of products of centred keys of even texts

    def add(self, means: tuple[Array, ...], call: Any, valid: Any, reason: str, seen: Any = None) -> None:
        """Add the texts of one call: its means, and its keys or a sample of its queries."""
        gram, correlation, share = means
        if not np.isfinite(gram).all():
            raise UserError("weights of attention are not finite; give other texts, or the model in float32")
        if not (seeing := gram.any(axis=(1, 2))).all():
            number = len(self.means) + int(np.argmin(seeing))
            raise UserError(f"text {number} (counted from 0): no token sees another, or all are padding; leave it out")
        self.reason = self.reason or reason
        for text in range(len(gram)):
            self.means.append(np.column_stack([gram[text], correlation[text], share[text].max(axis=-1)]))
            if call is None or self.reason:
                continue
            self.scale = call.scale
            if len(self.means) % 2:
                key, known = call.key[text], seen[text].any(axis=0)
                rows = _numbers(key if known.all() else key[:, np.flatnonzero(known)])
                rows = rows.swapaxes(0, 1).reshape(known.sum(), -1)
                rows = rows - rows.mean(axis=0)  # softmax does not depend on the mean of the keys
                (syrk,) = get_blas_funcs(("syrk",), (rows,))
                self._freedom += len(rows) - 1
                sums = np.zeros(2 * rows.shape[1:], rows.dtype, "F") if self._products is None else self._products
                self._products = syrk(1.0, rows.T, beta=1.0, c=sums, overwrite_c=1)
                continue
            # Reservoir sampling of queries.
            places = np.flatnonzero(valid[text])
            kept = self._n_seen + np.arange(len(places))
            late = kept >= QUERIES
            kept[late] = self._rng.integers(kept[late] + 1)
            self._n_seen += len(places)
            for number, place in dict(zip(kept.tolist(), places, strict=True)).items():
                if number < QUERIES:
                    query = _numbers(call.query[text][:, place]).astype(float)
                    self._queries[number] = query, int(seen[text][place].sum())

    def gather(self, n_texts: int, name: str) -> None:
        """Average means over the windows of each text, and store them by kind."""
        windows, rest = divmod(len(self.means), n_texts)
        if rest:
            raise UserError(f"{name}: attention of {len(self.means)} sequences beside {n_texts}; inspect it alone")
        if windows > 1:
            self.reason = self.reason or "theory is not known for attention that is computed in windows"
        n_heads = len(self.means[0])
        means = np.reshape(self.means, (n_texts, windows, n_heads, -1)).mean(axis=1)
        self.gram, self.correlation, self.sink = np.split(means, [n_heads, 2 * n_heads], axis=-1)

    def theory(self) -> tuple[Array, Array]:
        """Return Gram matrices (t, h, h) by exact theory at sampled queries, and variances of logits (t, h), or NaN."""
        n_heads = len(self.means[0])
        if self.reason or not self._queries or self._freedom < 1:
            self.reason = self.reason or "no queries and keys on either half of the texts"
            return np.full((1, n_heads, n_heads), np.nan), np.full((1, n_heads), np.nan)
        queries, counts = (np.array(each) for each in zip(*self._queries.values(), strict=True))
        dimension, n_groups = queries.shape[-1], len(self._products) // queries.shape[-1]
        group = np.arange(n_heads) * n_groups // n_heads
        lower = self._products.T.astype(float) * (self.scale**2 / self._freedom)
        np.einsum("ii->i", lower)[:] /= 2.0  # so that adding the transpose counts each product once
        pulled = queries.swapaxes(0, 1) @ lower.reshape(n_groups, dimension, -1)[group]
        logits = np.einsum("htge,tge->thg", pulled.reshape(n_heads, -1, n_groups, dimension)[:, :, group], queries)
        logits += logits.mT
        below = np.linalg.eigvalsh(logits)[:, :1, None].clip(max=0.0)  # rounding, with fewer keys than heads
        logits -= 2.0 * below * np.eye(n_heads)
        found = [logit_moments(each, max(int(n), 1), error=False) for each, n in zip(logits, counts, strict=True)]
        self.reason = next((each.reason for each in found if each.reason), "")
        return np.array([each.gram for each in found]), np.diagonal(logits, axis1=1, axis2=2)


def _numbers(tensor: Any) -> Array:
    """Return an array of at least float32, as sums of small integers would overflow."""
    if isinstance(tensor, np.ndarray):
        return tensor.astype(np.result_type(tensor, np.float32), copy=False)
    return np.asarray((tensor if tensor.itemsize > 4 else tensor.float()).cpu())


def _labelled(layers: Mapping[str, Layer]) -> xr.Dataset:
    found = {name: _of_layer(each) for name, each in layers.items()}
    averages = [each.pop("averages") for each in found.values()]
    columns: dict[str, Any] = {}
    for name in next(iter(found.values())):  # padded with NaN if attentions differ in heads
        parts = [each[name] for each in found.values()]
        columns[name] = np.full((len(parts), *np.max([each.shape for each in parts], axis=0)), np.nan)
        for whole, each in zip(columns[name], parts, strict=True):
            whole[tuple(map(slice, each.shape))] = each
    correlation, observed = columns["weight_correlation"], columns.pop("per_text")
    columns["layer_correlation"] = np.array([_average(each["weight_correlation"]) for each in found.values()])
    columns["layer_correlation_mcse"] = np.array([[_error(units) for units in layer] for layer in averages])
    columns["mean_correlation"] = columns["layer_correlation"].mean(axis=0)
    by_source = zip(*averages, strict=True)
    errors = [_error(np.mean(each, axis=0)) if len({*map(len, each)}) == 1 else np.nan for each in by_source]
    columns["mean_correlation_mcse"] = np.array(errors)  # NaN if layers have no common units
    first, second = np.triu_indices(correlation.shape[-1], 1)
    # Rank correlation and error of each source over all pairs of heads, with jackknife errors over judged texts.
    predicted = correlation[..., first, second].swapaxes(0, 1).reshape(len(SOURCES), -1).copy()  # (source, pair)
    predicted[0] = np.nan  # the observed correlation is no prediction
    texts = observed[..., first, second].swapaxes(0, 1).reshape(observed.shape[1], -1)  # (text, pair of any layer)
    scores, n_texts = _scores(predicted, texts.mean(axis=0)), len(texts)
    left_out = [_scores(predicted, np.delete(texts, text, axis=0).mean(axis=0)) for text in range(n_texts)]
    error = np.sqrt(n_texts - 1) * np.std(left_out, axis=0)
    names = ("prediction_rank", "prediction_error", "prediction_rank_mcse", "prediction_error_mcse")
    columns |= zip(names, (*scores.T, *error.T), strict=True)
    values = correlation[:, 0][:, first, second]
    order = np.argsort(-values, axis=None, kind="stable")[: np.isfinite(values).sum()]
    layer, pair = np.divmod(order, max(len(first), 1))
    columns |= {"pair_layer": layer, "pair_head_i": first[pair], "pair_head_j": second[pair]}
    columns["pair_correlation"] = values.ravel()[order]
    columns["pair_correlation_mcse"] = columns["weight_correlation_mcse"][:, 0][:, first, second].ravel()[order]
    columns["inapplicable"] = np.array([each.reason for each in layers.values()], object)
    variables = {}
    for name, array in columns.items():
        dims, meaning, formula = MEANINGS[name.removesuffix("_mcse")]  # an error has the dimensions of its number
        said = f"standard error: {meaning}" if name.endswith("_mcse") else meaning
        variables[name] = (dims, array, {"long_name": said, "units": "1", "formula": formula})
    coordinates = {"source": list(SOURCES), "module": ("layer", list(layers))}
    counts = {"n_judged": n_texts, "n_fitted": len(next(iter(layers.values())).gram) - n_texts}
    return xr.Dataset(variables, coordinates, counts).set_coords(["pair_layer", "pair_head_i", "pair_head_j"])


def _of_layer(layer: Layer) -> dict[str, Any]:
    """Return the results of one attention, by source where they have one."""
    gram, odd, half, sink = layer.gram, layer.correlation[1::2], layer.correlation[::2], layer.sink[1::2, :, 0]
    theory, variance = layer.theory()
    exact, level, itself = _correlation(theory), _average(half), np.eye(gram.shape[-1])
    constant, of_constant = np.where(itself, 1.0, level.mean()), np.where(itself, 0.0, _error(level))
    effective = np.array([_effective_heads(each) for each in (gram[1::2], gram[::2], np.nan * gram, theory)])
    return {
        "weight_correlation": np.array([odd.mean(axis=0), half.mean(axis=0), constant, exact.mean(axis=0)]),
        "weight_correlation_mcse": np.array([_error(odd), _error(half), of_constant, _error(exact)]),
        "effective_heads": effective[:, 0],
        "effective_heads_mcse": effective[:, 1],
        "logit_variance": variance.mean(axis=0),
        "logit_variance_mcse": _error(variance),
        "sink_share": sink.mean(axis=0),
        "sink_share_mcse": _error(sink),
        "per_text": odd,
        "averages": [_average(odd), level, level, _average(exact)],
    }


def _error(units: Array) -> Any:
    """Return the standard error of the mean over the first axis; NaN for one unit."""
    return units.std(axis=0, ddof=1) / len(units) ** 0.5 if len(units) > 1 else np.full(units.shape[1:], np.nan)


def _correlation(gram: Array) -> Array:
    squares = np.diagonal(gram, axis1=-2, axis2=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return gram / np.sqrt(squares[..., :, None] * squares[..., None, :])


def _average(matrices: Array) -> Array:
    """Return the mean correlation (…) over pairs of heads in matrices (…, h, h); NaN for one head."""
    pairs = matrices[(..., *np.triu_indices(matrices.shape[-1], 1))]
    return pairs.mean(axis=-1) if pairs.shape[-1] else np.full(pairs.shape[:-1], np.nan)


def _effective_heads(grams: Array) -> tuple[float, float]:
    """Return H tr(G) / sum G, for G the mean of Gram matrices (text, h, h), with its error over texts."""
    single, whole, n_heads = np.trace(grams, axis1=1, axis2=2), grams.sum(axis=(1, 2)), grams.shape[-1]
    ratio = single.mean() / whole.mean()
    return n_heads * ratio, n_heads * float(_error(single - ratio * whole)) / abs(whole.mean())


def _scores(predicted: Array, observed: Array) -> Array:
    """Return rank correlation and root mean squared error of predictions (source, pair) of observations (pair,)."""
    found = np.full((len(predicted), 2), np.nan)
    for each, score in zip(predicted, found, strict=True):
        if (both := np.isfinite(each) & np.isfinite(observed)).sum() > 1:
            with np.errstate(invalid="ignore", divide="ignore"):  # NaN for equal values
                rank = np.corrcoef(rankdata(each[both]), rankdata(observed[both]))[0, 1]
            score[:] = rank, np.sqrt(((each - observed)[both] ** 2).mean())
    return found
