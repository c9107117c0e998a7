"""How near predictions of the correlation of two heads are to what is observed, beside those of a constant.

Index legend: s judged sequence; l layer; h, g head.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import spearmanr

SOURCES = ("observed", "constant", "half", "angles", "leading", "exact", "redrawn")


def set_constant(arrays: list[np.ndarray]) -> None:
    """Make the correlation of all two heads, as ``constant`` has it, their mean as ``half`` has it.

    Arrays are (S, source, H, H): correlations of a layer, then its Grams.
    """
    pairs = ~np.eye(arrays[0].shape[-1], dtype=bool)
    values = np.array([array[0, SOURCES.index("half")][pairs] for array in arrays[::2]])
    for array in arrays:
        array[:, SOURCES.index("constant")] = np.where(pairs, values.mean() if values.size else 1.0, 1.0)


def agreement(correlation: np.ndarray) -> dict[str, np.ndarray]:
    """How near predictions are, from correlations (S, source, L, H, H); errors by leaving out sequences in turn."""
    pairs = correlation[..., *np.triu_indices(correlation.shape[-1], 1)]
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
            varies = min(np.ptp(predicted[known]), np.ptp(observed[known])) > 0
            rank = spearmanr(predicted[known], observed[known])[0] if varies else np.nan
            scores[:, k] = rank, error, other - error
    return scores
