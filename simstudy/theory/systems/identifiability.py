"""What can be told of single heads from their sum, and of ranks after layer normalisation: exact for generic instances.

The questions are those of arXiv 2604.23681.
"""

from __future__ import annotations

import numpy as np

from simstudy.design.settings.cell import Cell
from simstudy.design.settings.processes import HeteroscedasticNoise
from simstudy.design.settings.systems.identifiability import HeadRecoveryInstance, LayerNormInstance
from simstudy.theory.instances import instance_numbers


@instance_numbers.register
def head_recovery(instance: HeadRecoveryInstance, cell: Cell) -> dict[str, float]:
    """Nullity of the sum of heads, and the error of recovering them.

    Of the H·p channels at m positions that share them, W_O of rank r keeps r; gates, which differ from position to
    position, keep r at each, up to one for each head: min(Hp, min(m, H)·r).  Least squares then has the noise
    σ² Σ 1/(m s_i²), and all of the variance 1 of a direction that is lost.
    """
    n_heads, p = cell.heads.n_heads, cell.heads.head_dim
    channels, groups = n_heads * p, cell.data.n_keys // instance.held
    if instance.output == "shared":
        sizes = np.full(p, n_heads**-0.5)
    else:
        kept = min(channels, cell.data.n_features) - instance.rank_deficit
        # Equal ratios from 1 to 1/condition.
        sizes = instance.condition ** (-np.arange(kept) / max(kept - 1, 1))
    gated = instance.gates == "position"
    seen = min(channels, (min(instance.held, n_heads) if gated else 1) * len(sizes))
    numbers = {"nullity": float(groups * (channels - seen))}
    if not gated and not isinstance(cell.data.noise, HeteroscedasticNoise):
        noise = cell.data.noise_sd**2 * float((1.0 / sizes**2).sum()) / instance.held
        numbers["recovery_error"] = (noise + channels - seen) / channels
    return numbers


@instance_numbers.register
def layer_norm(instance: LayerNormInstance, cell: Cell) -> dict[str, float]:
    """Affine rank after layer normalisation LN(X) = D X P, D positive and diagonal, P = I − 11'/d.

    D changes no linear rank, so that of X P stays.  But it moves every token along its own ray from 0: of the affine
    hull of rank r, if it misses 0 after P, it makes the cone over it, of rank r + 1.
    """
    n, d = cell.data.n_keys, cell.data.n_features
    misses = instance.offset == "random"  # an offset along 1 is removed by P
    after = min(instance.rank + misses, d - 1, n - 1)
    gain = float(after - instance.rank)
    return {"normalised_affine_rank": float(after), "affine_rank_gain": gain, "centred_rank_gain": 0.0}
