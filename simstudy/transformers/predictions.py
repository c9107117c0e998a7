"""What theory says of the weights of the heads of one layer, from tokens of other sequences than those it speaks of.

Of a query, the logits of every head over a pool of tokens are what a new token would give: their covariance, which is
k̂_h' Σ k̂_g for the pulled-back queries k̂ and the covariance Σ of states, decides `leading`.  `exact` takes some tokens
apart, whose logits are known: the token that looks, as its state is given, and attention sinks at the ends of the
sequence, whose keys are those of another sequence.  The logits of all others are Gaussian, with the covariance of
tokens of other sequences at places that the query sees.

Predictions are compared with what is observed.  Heads of one key group then count once: every two groups of a layer
give one number, the mean over their pairs of heads, and a group of several heads gives one more for the pairs within.

Index legend: h, g head; l layer; s sequence; m token of the pool; p dimension of a head.
"""

from typing import NamedTuple

import numpy as np
from scipy.stats import spearmanr

from simstudy.theory import logit_moments
from simstudy.transformers.attention import Projected, by_group, logit_rank, normalised
from simstudy.transformers.heads import TransformerHeads

ROUNDING = 1e-12
"""Difference of means over several pairs of what is one number for all."""
SOURCES = ("observed", "constant", "half", "angles", "leading", "exact", "redrawn")
MAX_POOL = 4096
"""Tokens of the pool that logits are computed over; more change nothing that matters."""
_REDRAWS = 64
SINK = 0.2
"""Part of the weight of a mean head above which an end of sequences is a sink; set on pilot sequences of two models."""


class Pool(NamedTuple):
    """Keys of tokens of many sequences, each about the mean of its own: no softmax sees that."""

    keys: np.ndarray  # (H, M, p)
    places: np.ndarray  # (2, M) From the first and from the last token, from 0 on
    ends: np.ndarray  # (S, 2, H, p) Keys of the first and the last token of each sequence
    sinks: list[int]  # Which of the ends are attention sinks
    centre: np.ndarray  # (H, p) Mean of the means of sequences
    freedom: float  # Share of the tokens that the means of sequences leave free


def pool_of(keys: list[np.ndarray], where: list[np.ndarray], end_share: np.ndarray) -> Pool:
    """Pool keys (H, T, p) of sequences at places (T,), whose ends get these parts (2,) of the weight of a mean head."""
    centred = [each - each.mean(axis=1, keepdims=True) for each in keys]
    places = np.concatenate([(each, each[-1] - each) for each in where], axis=1)
    kept = np.linspace(0, places.shape[1] - 1, min(places.shape[1], MAX_POOL)).astype(int)
    return Pool(
        np.concatenate(centred, axis=1)[:, kept],
        places[:, kept],
        np.array([each[:, [0, -1]].swapaxes(0, 1) for each in centred]),
        np.flatnonzero(end_share > SINK).tolist(),
        np.mean([each.mean(axis=1) for each in keys], axis=0),
        1 - len(keys) / places.shape[1],
    )


def _near(pool: Pool, place: int, reach: int) -> Pool:
    """Tokens no further than this from a place, or the nearest ones, about their own mean."""
    distances = np.abs(pool.places[0] - place)
    near = distances <= max(reach, distances.min())
    mean = pool.keys[:, near].mean(axis=1)
    return pool._replace(
        keys=pool.keys[:, near] - mean[:, None],
        places=pool.places[:, near],
        ends=pool.ends - mean,
        centre=pool.centre + mean,
    )


def _predict(
    heads: TransformerHeads,
    layer: int,
    token: Projected,
    places: list[int],
    pool: Pool,
    rng: np.random.Generator,
    error: bool,
) -> tuple[list[np.ndarray], np.ndarray, str]:
    """Predict Grams E sum_i w_hi w_gi (H, H) at one query, by leading order, exact and redrawn; NaN where void.

    Of the token that looks are given query and key (H, p), and how far it stands from either end.  ``error`` says
    whether to see that exact moments converge.  Variances (H,) of logits follow, and why exact theory is void.
    """
    window, (place, from_end) = heads.window[layer], places
    reach = place + from_end if window is None else window - 1
    n_keys = 1 + min(place, reach) + (0 if heads.causal else min(from_end, reach))
    pool = pool if window is None else _near(pool, place, reach)

    def logits_of(keys: np.ndarray) -> np.ndarray:
        """Logits (H, N) of keys (H, N, p)."""
        return heads.scale * (keys @ token.query[:, :, None].astype(keys.dtype))[:, :, 0].astype(np.float64)

    logits, ends = logits_of(pool.keys), pool.ends[rng.integers(len(pool.ends))]
    covariance = logits @ logits.T / (logits.shape[1] * pool.freedom)
    # Apart: the token itself, and sinks that it sees.
    apart = [end for end in pool.sinks if 0 < places[end] <= reach]
    known = logits_of(np.stack([token.key - pool.centre, *ends[apart]], axis=1))
    inner = (pool.places[pool.sinks] > 0).all(axis=0) & ((pool.places[0] < place) | (not heads.causal))
    others = logits_of(pool.keys[:, inner] if inner.any() else pool.keys)
    mean = others.mean(axis=1, keepdims=True)
    spread = (others - mean) @ (others - mean).T / (others.shape[1] * pool.freedom)
    exact = logit_moments(spread, n_keys - known.shape[1], known=known - mean, error=error)
    # The effective number of keys is n exp(-variance): of beyond half of ln n too few are left for a law of many.
    valid = np.diag(covariance) <= 0.5 * np.log(n_keys)
    both = np.outer(valid, valid)
    leading = np.where(both, np.exp(np.where(both, covariance, 0.0)) / n_keys, np.nan)
    return [leading, exact.gram, _redrawn(logits, n_keys, rng)], np.diag(covariance), exact.reason


def _redrawn(logits: np.ndarray, n_keys: int, rng: np.random.Generator) -> np.ndarray:
    """Mean Gram (H, H) over so many tokens, drawn at random from those of these logits (H, M)."""
    # Of a token no more than e^-300 times as heavy as the heaviest, nothing but the presence matters; products of two
    # such weights are still above 0.
    pooled = np.exp(np.maximum(logits - logits.max(axis=1, keepdims=True), -300.0))
    drawn = rng.integers(logits.shape[1], size=(_REDRAWS, n_keys))
    counts = np.array([np.bincount(each, minlength=logits.shape[1]) for each in drawn], np.float64)
    sums = counts @ pooled.T
    products = (counts @ (pooled[:, None] * pooled).reshape(-1, logits.shape[1]).T).reshape(-1, *2 * (len(pooled),))
    return np.mean(products / (sums[:, :, None] * sums[:, None]), axis=0)


def predict_layer(
    heads: TransformerHeads,
    layer: int,
    moved: list[Projected],
    judged: np.ndarray,
    length: int | None,
    queries: int,
    shares: np.ndarray,
    rng: np.random.Generator,
    error: bool,
) -> tuple[np.ndarray, dict[str, np.ndarray], str]:
    """Predict at some queries of the judged sequences, from what is placed as in sequences of this length.

    Correlations and Grams (S, source, 2, H, H), by leading order, exact and redrawn; numbers of logits (H,) by name;
    why exact theory is blank, if it is.
    """
    stands = [np.linspace(0, (length or each.key.shape[1]) - 1, each.key.shape[1]) for each in moved]
    fitted = np.flatnonzero(~judged)
    pool = pool_of([moved[s].key for s in fitted], [stands[s] for s in fitted], shares)
    rows, reasons = [], []
    variances: list[np.ndarray] = []
    for s in np.flatnonzero(judged):
        each, stand = moved[s], np.rint(stands[s]).astype(int)
        # Of few tokens that stand for more, the first would too often look at itself alone.
        every_place = np.arange(length is not None and heads.causal, len(stand))
        if heads.window[layer] is not None:  # no text that theory is fitted to goes further
            every_place = every_place[stand[every_place] <= pool.places[0].max()]
        grams = []
        for t in rng.choice(every_place, min(queries, len(every_place)), replace=False):
            token, places = Projected(each.query[:, t], each.key[:, t]), [int(stand[t]), int(stand[-1] - stand[t])]
            # Whether quadrature converges is seen, if at all, at the first query of each layer: it takes as long again.
            gram, variance, reason = _predict(heads, layer, token, places, pool, rng, error and not variances)
            grams.append(gram if heads.cap is None else np.full_like(gram, np.nan))
            variances.append(variance)
            reasons.append(reason)
        rows.append(np.stack([normalised(np.array(grams)).mean(axis=0), np.mean(grams, axis=0)], axis=1))
    tokens = np.concatenate([moved[s].query for s in fitted], axis=1)
    logits = {"logit_rank": logit_rank(tokens, pool.keys), "logit_variance": np.mean(variances, axis=0)}
    return np.array(rows), logits, "; ".join(dict.fromkeys(filter(None, reasons)))


def set_constant(correlation: np.ndarray, gram: np.ndarray, groups: np.ndarray) -> None:
    """Make the correlation of all two heads, as ``constant`` has it, their mean as ``half`` has it.

    Correlations and Grams are (L, S, source, H, H), groups (L, H).
    """
    values = by_group(correlation[:, 0, SOURCES.index("half")], groups)
    off_diagonal = ~np.eye(groups.shape[1], dtype=bool)
    for array in (correlation, gram):
        array[:, :, SOURCES.index("constant")] = np.where(off_diagonal, values.mean() if values.size else 1.0, 1.0)


def agreement(correlation: np.ndarray, groups: np.ndarray) -> dict[str, np.ndarray]:
    """How near predictions are, from correlations (S, source, L, H, H) of heads that are in key groups (L, H).

    Errors are found by leaving out sequences in turn.
    """
    pairs = by_group(correlation, groups)
    n_judged = len(pairs)
    whole = _scores(pairs.mean(axis=0))
    parts = np.array([_scores(np.delete(pairs, s, axis=0).mean(axis=0)) for s in range(n_judged)])
    errors = np.sqrt((n_judged - 1) * parts.var(axis=0))
    names = ("prediction_rank", "prediction_error", "prediction_gain")
    return dict(zip(names, whole, strict=True)) | dict(zip((f"{name}_mcse" for name in names), errors, strict=True))


def _scores(pairs: np.ndarray) -> np.ndarray:
    """Rank correlation with what is observed, error, and by how much that of a constant is larger: (3, source)."""
    observed, constant = pairs[:2].reshape(2, -1)
    scores = np.full((3, len(pairs)), np.nan)
    for k, predicted in enumerate(pairs.reshape(len(pairs), -1)):
        known = np.isfinite(predicted)
        if known.sum() > 2:
            error, other = (np.sqrt(np.mean((each - observed)[known] ** 2)) for each in (predicted, constant))
            varies = min(np.ptp(predicted[known]), np.ptp(observed[known])) > ROUNDING
            rank = spearmanr(predicted[known], observed[known])[0] if varies else np.nan
            scores[:, k] = rank, error, other - error
    return scores
