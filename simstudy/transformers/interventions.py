"""What redundancy means: heads that take the pattern of another head, a mean pattern, or none, and what that costs.

A head that is like another one may be able to share its pattern.  It may still be important: only an edit tells.
The forward pass is the user's own: any function that lets weights of attention be replaced.

Index legend: h head; d feature; p dimension of a head.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy
import xarray as xr

from simstudy.transformers.heads import TransformerHeads

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


def zeroing(*heads: tuple[int, int], kept: float = 0.0) -> Edit:
    """Return the edit by which heads, given as (layer, head), look at nothing, or at all with less weight.

    Parameters
    ----------
    *heads : (int, int)
        Layer and head, from 0 on.
    kept
        Factor on the weights.  Near 1 the damage over 1 - kept is minus the slope of a loss against it, by
        which gradients tell importance.

    Returns
    -------
    Edit
        For `intervene`.
    """

    def edit(layer: int, weights: np.ndarray) -> np.ndarray:
        edited = weights.copy()
        edited[[head for of, head in heads if of == layer]] *= kept
        return edited

    return edit


def averaging(*heads: tuple[int, int], causal: bool = False) -> Edit:
    """Return the edit by which heads add the mean of what they would add to the tokens of the sequence.

    Parameters
    ----------
    *heads : (int, int)
        Layer and head, from 0 on.
    causal
        Whether the mean is over the token and those before it only, as in a model that sees no others.

    Returns
    -------
    Edit
        For `intervene`.
    """

    def edit(layer: int, weights: np.ndarray) -> np.ndarray:
        edited = weights.copy()
        for head in (head for of, head in heads if of == layer):
            n_tokens = np.arange(1, len(weights[head]) + 1)[:, None]
            edited[head] = weights[head].cumsum(axis=0) / n_tokens if causal else weights[head].mean(axis=0)
        return edited

    return edit


def merged(heads: TransformerHeads, donors: Mapping[tuple[int, int], int]) -> TransformerHeads:
    """Return heads of which the donors do what others did, too: W_o W_v' of both, at the rank of one head.

    Beside `sharing`, that takes away whole heads where that takes away patterns.  The product of rank p is the nearest
    one in sum of squares.  What the biases of both values add stays, as the value of a token in the head that is gone.

    Parameters
    ----------
    heads : TransformerHeads
        With values and outputs.
    donors : mapping of (int, int) to int
        As `donor_map` gives it.

    Returns
    -------
    TransformerHeads
        For a forward pass that takes heads, with the edit `sharing` of the same donors.

    Raises
    ------
    ValueError
        If values or outputs are not known.
    """
    if heads.value is None or heads.output is None:
        raise ValueError("heads without values and outputs cannot be merged; give W_V and W_O")
    value, output, bias = heads.value.copy(), heads.output.copy(), heads.value_bias.copy()
    p = value.shape[3]
    for layer, donor in {(layer, donor) for (layer, _), donor in donors.items()}:
        gone = [head for (of, head), other in donors.items() if (of, other) == (layer, donor)]
        every = [donor, *gone]
        constant = np.einsum("hdp,hp->d", heads.output[layer, every], heads.value_bias[layer, every])
        writes, reads = (np.concatenate(part[layer, every], axis=1) for part in (heads.output, heads.value))
        (basis, left), (other, right) = np.linalg.qr(writes), np.linalg.qr(reads)
        u, sizes, v = np.linalg.svd(left @ right.T)
        output[layer, donor] = basis @ u[:, :p] * np.sqrt(sizes[:p])
        value[layer, donor] = other @ v[:p].T * np.sqrt(sizes[:p])
        value[layer, gone] = output[layer, gone] = bias[layer, every] = 0.0
        output[layer, gone[0], :, 0], bias[layer, gone[0], 0] = constant, 1.0
    return dataclasses.replace(heads, value=value, output=output, value_bias=bias)


def reduced(heads: TransformerHeads, rank: int) -> TransformerHeads:
    """Return heads with the nearest product W_q W_k' of a rank, in sum of squares: keys lose the other dimensions.

    Parameters
    ----------
    heads : TransformerHeads
        As many keys as queries, without rotary positions.
    rank
        Dimensions that each head keeps.

    Returns
    -------
    TransformerHeads
        For a forward pass that takes heads.
    """
    query, key = (np.linalg.qr(part).R for part in (heads.query, heads.key))
    kept = np.linalg.svd(query @ key.mT)[0][..., :rank]
    onto = (np.linalg.solve(query, kept) @ (kept.mT @ query)).mT
    bias = (heads.key_bias[:, :, None] @ onto)[:, :, 0]
    return dataclasses.replace(heads, key=heads.key @ onto, key_bias=bias)


def intervene(
    forward: Callable[[Any, Edit | None], np.ndarray], sequences: Sequence[Any], edits: Mapping[str, Edit]
) -> xr.Dataset:
    """Measure the damage of edits to the output of a transformer, or to its loss.

    Parameters
    ----------
    forward
        Of a sequence and an edit (or None) the output (token, feature), or the loss, a number: it hands the weights of
        every layer to the edit and goes on with what that returns.
    sequences
        Whatever ``forward`` takes; not those that edits were chosen by.
    edits
        By name.

    Returns
    -------
    xarray.Dataset
        ``damage`` (edit, sequence): rise of the loss, or squared change of the output over its variance about the mean
        token.
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
        scale = np.sum((own - own.mean(axis=0)) ** 2) if own.ndim else 1.0
        for k, edit in enumerate(edits.values()):
            change = np.asarray(forward(sequence, edit), np.float64) - own
            damage[k, s] = (np.sum(change**2) if own.ndim else change) / scale
    about = _described("squared change of the output over its variance" if own.ndim else "rise of the loss")
    differences = damage[:, None] - damage
    mean, error = differences.mean(axis=2), scipy.stats.sem(differences, axis=-1)
    half_width = error * scipy.stats.t.ppf(0.975, len(sequences) - 1)
    return xr.Dataset(
        {
            "damage": (("edit", "sequence"), damage, about),
            "mean_damage": ("edit", damage.mean(axis=1), about),
            "mean_damage_mcse": ("edit", scipy.stats.sem(damage, axis=-1), _described("standard error over sequences")),
            "difference": (("edit", "other"), mean, _described("mean damage of one edit less that of the other")),
            "difference_mcse": (("edit", "other"), error, _described("standard error, paired by sequence")),
            "difference_interval": (
                ("edit", "other", "bound"),
                np.stack([mean - half_width, mean + half_width], axis=-1),
                _described("95 % interval of the difference, paired by sequence"),
            ),
        },
        {"edit": list(edits), "other": list(edits), "bound": ["low", "high"]},
    )


def _described(long_name: str) -> dict[str, str]:
    return {"long_name": long_name, "units": "1"}
