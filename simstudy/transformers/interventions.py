"""What redundancy means: heads that take the pattern of another head, or nothing, and what that does to the output.

The forward pass is the user's own: any function that lets weights of attention be replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy
import xarray as xr

Edit = Callable[[int, np.ndarray], np.ndarray]
"""Of a layer and the weights (H, T, T) of its heads, the weights to take instead."""


def donor_map(similarity: np.ndarray, share: float, seed: int = 0) -> dict[tuple[int, int], int]:
    """Choose heads that take the pattern of another head of their layer, the most similar pairs first.

    Parameters
    ----------
    similarity : (L, H, H) array
        How well head j may stand in for head i; NaN for pairs that must not.  Observed or predicted correlations of
        weights, say; numbers at random for a choice at random.
    share
        Part of all patterns that is to be given up, at least 0 and below 1.
    seed
        Of the random order of pairs that are equally similar, such as those of one key group by angles.

    Returns
    -------
    dict
        For (layer, head) the donor; donors keep their own pattern.  Fewer than the share where too few pairs are left.

    Raises
    ------
    ValueError
        If the share is out of range or the similarity has another shape.
    """
    similarity = np.asarray(similarity, np.float64)
    if similarity.ndim != 3 or similarity.shape[1] != similarity.shape[2]:
        raise ValueError(f"similarity has shape {similarity.shape}; give (layer, head, head)")
    if not 0 <= share < 1:
        raise ValueError(f"share = {share}; give at least 0, and less than 1")
    ties = np.random.default_rng(seed).random(similarity.size)
    order = np.lexsort((ties, -similarity.ravel()))[: int(np.isfinite(similarity).sum())]
    wanted = round(share * similarity.shape[0] * similarity.shape[1])
    donors: dict[tuple[int, int], int] = {}
    kept = set()
    for layer, head, donor in zip(*np.unravel_index(order, similarity.shape), strict=True):
        if len(donors) == wanted:
            break
        own, other = (int(layer), int(head)), (int(layer), int(donor))
        if own != other and own not in kept and own not in donors and other not in donors:
            donors[own] = other[1]
            kept.add(other)
    return donors


def sharing(donors: Mapping[tuple[int, int], int]) -> Edit:
    """Return the edit by which heads take the patterns of their donors.

    Parameters
    ----------
    donors : mapping of (int, int) to int
        For (layer, head) the head of its layer whose pattern it takes.

    Returns
    -------
    Edit
        For `intervene`.
    """

    def edit(layer: int, weights: np.ndarray) -> np.ndarray:
        taken = np.arange(len(weights))
        for (of, head), donor in donors.items():
            if of == layer:
                taken[head] = donor
        return weights[taken]

    return edit


def zeroing(*heads: tuple[int, int]) -> Edit:
    """Return the edit by which heads, given as (layer, head), look at nothing.

    Parameters
    ----------
    *heads : (int, int)
        Layer and head, from 0 on.

    Returns
    -------
    Edit
        For `intervene`.
    """

    def edit(layer: int, weights: np.ndarray) -> np.ndarray:
        gone = [head for of, head in heads if of == layer]
        edited = weights.copy()
        edited[gone] = 0.0
        return edited

    return edit


def intervene(
    forward: Callable[[Any, Edit | None], np.ndarray], sequences: Sequence[Any], edits: Mapping[str, Edit]
) -> xr.Dataset:
    """Measure the damage of edits to the output of a transformer.

    Parameters
    ----------
    forward
        Of a sequence and an edit (or None) the output (token, feature): it hands the weights of every layer to the edit
        and goes on with what that returns.
    sequences
        Whatever ``forward`` takes; not those that edits were chosen by.
    edits
        By name.

    Returns
    -------
    xarray.Dataset
        ``damage`` (edit, sequence): squared change of the output over its variance about the mean token.
        ``mean_damage`` and ``mean_damage_mcse`` (edit) over sequences; ``difference`` (edit, other) of the mean damage
        of two edits, paired by sequence, with ``difference_mcse``, and its 95 % interval (Student's t)
        ``difference_interval`` (edit, other, bound).

    Raises
    ------
    ValueError
        If there are fewer than two sequences, or no edits.
    """
    if len(sequences) < 2 or not edits:
        raise ValueError(f"{len(sequences)} sequences and {len(edits)} edits; give two sequences or more, and an edit")
    damage = np.empty((len(edits), len(sequences)))
    for s, sequence in enumerate(sequences):
        own = np.asarray(forward(sequence, None), np.float64)
        variance = np.sum((own - own.mean(axis=0)) ** 2)
        for k, edit in enumerate(edits.values()):
            damage[k, s] = np.sum((np.asarray(forward(sequence, edit), np.float64) - own) ** 2) / variance
    about = _described("squared change of the output over its variance")
    differences = damage[:, None] - damage
    mean, error = differences.mean(axis=2), _error(differences)
    half_width = error * scipy.stats.t.ppf(0.975, len(sequences) - 1)
    return xr.Dataset(
        {
            "damage": (("edit", "sequence"), damage, about),
            "mean_damage": ("edit", damage.mean(axis=1), about),
            "mean_damage_mcse": ("edit", _error(damage), _described("standard error over sequences")),
            "difference": (("edit", "other"), mean, _described("mean damage of one edit less that of the other")),
            "difference_mcse": (("edit", "other"), error, _described("standard error, paired by sequence")),
            "difference_interval": (
                ("edit", "other", "bound"), np.stack([mean - half_width, mean + half_width], axis=-1),
                _described("95 % interval of the difference, paired by sequence"),
            ),
        },
        {"edit": list(edits), "other": list(edits), "bound": ["low", "high"]},
    )  # fmt: skip


def _described(long_name: str) -> dict[str, str]:
    return {"long_name": long_name, "units": "1"}


def _error(values: np.ndarray) -> np.ndarray:
    """Standard error of means along the last axis."""
    return values.std(axis=-1, ddof=1) / np.sqrt(values.shape[-1])
