"""How near predictions of the correlation of two heads are to what is observed, beside those of a constant.

Heads of one key group count once: every two groups of a layer give one number, the mean over their pairs of heads, and
a group of several heads gives one more for the pairs within it.  Index legend: s judged sequence; l layer; h, g head.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import spearmanr

from simstudy.transformers.observations import by_group

ROUNDING = 1e-12
"""Difference of means over several pairs of what is one number for all."""
SOURCES = ("observed", "constant", "half", "angles", "leading", "exact", "redrawn")


def set_constant(arrays: list[np.ndarray], groups: np.ndarray) -> None:
    """Make the correlation of all two heads, as ``constant`` has it, their mean as ``half`` has it.

    Arrays are (S, source, H, H): correlations of a layer, then its Grams.  Groups are (L, H).
    """
    values = by_group(np.stack([array[0, SOURCES.index("half")] for array in arrays[::2]]), groups)
    off_diagonal = ~np.eye(groups.shape[1], dtype=bool)
    for array in arrays:
        array[:, SOURCES.index("constant")] = np.where(off_diagonal, values.mean() if values.size else 1.0, 1.0)


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
