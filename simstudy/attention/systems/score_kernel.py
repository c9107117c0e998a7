"""Scores of a random head as a kernel on tokens: signs of its eigenvalues, share of its symmetric part.

The claims are those of arXiv 2604.08829.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simstudy.attention.normalisers import softmax
from simstudy.attention.systems.draws import RELATIVE, matrices
from simstudy.attention.systems.mixed_scores import mixed_scores
from simstudy.data.shared import SharedData
from simstudy.design.settings import ScoreKernelInstance
from simstudy.design.settings.cell import Cell

Array = NDArray[np.float64]


def decompose_scores(cell: Cell, shared: SharedData) -> dict[str, Array]:
    """Scores of a head of head_dim among n_keys tokens, mixed over levels by random convex weights."""
    instance = cell.estimator.instance
    assert isinstance(instance, ScoreKernelInstance)  # for the type checker
    n, d, p = cell.data.n_keys, cell.data.n_features, cell.heads.head_dim
    draws = matrices(shared, (2, d, p), (instance.levels,))
    rows = []
    for tokens, (query, key), logits in zip(shared.keys(n).swapaxes(1, 2), *draws, strict=True):
        key = query if instance.projections == "tied" else key
        scores = mixed_scores(tokens @ query, tokens @ key, softmax(logits), True)
        values = np.linalg.eigvalsh((scores + scores.T) / 2.0)
        least = RELATIVE * np.abs(values).max()
        form = query @ key.T
        share = (((form + form.T) / 2.0) ** 2).sum() / (form**2).sum()
        rows.append(((values > least).sum(), (values < -least).sum(), share))
    names = ("positive_eigenvalues", "negative_eigenvalues", "symmetric_share")
    return dict(zip(names, np.array(rows, np.float64).T, strict=True))
