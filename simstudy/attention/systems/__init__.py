"""Numbers of a random instance of each replicate, where no regression function is estimated.

A design asks for them by the setting ``instance``; sizes come from the tables that every cell has (n_keys tokens of
n_features, n_heads of head_dim).

How to add a kind:

1. a record of its parameters in `design.settings.systems`, in the file of its system (and in the union);
2. beside it its quantities, each with unit, meaning and formula;
3. in the file of the same name here a function of (cell, data of some replicates) that returns {quantity: (replicate,)
   array}: random numbers by address come from ``shared.normals(rows, columns)``, or as matrices from `draws`, tokens
   from ``shared.keys``, heads from ``shared.projections``; a number that is not finite counts its replicate as failed;
4. one entry in `KINDS` below; in tests/attention/systems a naive loop with a control; formulas in `theory.systems`.

Claims, figures and precision then name the quantities as they name ``mse``, and grids cross "instance.PARAMETER".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from simstudy.attention.members import NO_INDICES, Members
from simstudy.attention.systems.compact_kernels import compare_normalisers
from simstudy.attention.systems.hierarchy import coarsen, decompose_scores, run_hierarchy
from simstudy.attention.systems.hopfield import climb_tower, remember_noise
from simstudy.attention.systems.identifiability import compare_ranks, descend, recover_heads
from simstudy.attention.systems.kq_svd import compress_scores
from simstudy.attention.systems.latent_cache import decode_latents
from simstudy.attention.systems.masks import mask_head, mask_random_heads, perturb_logits
from simstudy.data.shared import SharedData
from simstudy.design.settings.cell import Cell

Measurement = Callable[[Cell, SharedData], dict[str, NDArray[np.float64]]]

KINDS: dict[str, Measurement] = {
    "kq_svd": compress_scores,
    "normaliser": compare_normalisers,
    "head_recovery": recover_heads,
    "layer_norm": compare_ranks,
    "depth": descend,
    "hierarchy": run_hierarchy,
    "score_kernel": decompose_scores,
    "resolution": coarsen,
    "hopfield_noise": remember_noise,
    "hopfield_tower": climb_tower,
    "masked_head": mask_head,
    "perturbed_logits": perturb_logits,
    "random_heads": mask_random_heads,
    "latent_cache": decode_latents,
}


class MeasuredInstance:
    """The instance of one cell."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self._measure = KINDS[cell.estimator.instance.kind]

    def evaluate(self, shared: SharedData) -> Members:
        """Return the numbers of the replicates of the data, without estimates: at no query.

        Raises
        ------
        ArithmeticError
            If a number is not finite, so that its replicate is counted as failed.
        """
        numbers = self._measure(self.cell, shared)
        for name, values in numbers.items():
            if not np.isfinite(values).all():
                raise ArithmeticError(f"{name} is not finite")
        return Members(np.empty((shared.count, 0, self.cell.n_members)), None, NO_INDICES, numbers)
