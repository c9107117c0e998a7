"""How value and output projections tie the errors of two heads: the overlap of the maps A_h = W_V W_O.

Values are y_i = m(X_i) s + ε_i with E ss' = I and noise of variance σ² in each component, so that the second moments of
what heads average are the same in every direction.  Then E e_h'e_g of the errors that come out of the projections is
tr(A_h'A_g) times that of errors of numbers, in the bias, the signal and the noise alike, whatever the weights.
"""

import numpy as np
from numpy.typing import NDArray

from simstudy.data.addresses import Role
from simstudy.data.heads import random_orthonormal
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.mechanisms import (
    DisjointValueProjections,
    FileValueProjections,
    NoValueProjections,
    ValueProjections,
)

Array = NDArray[np.float64]


def overlap(cell: Cell) -> Array | None:
    """Return Ω_hg = H² tr(A_h'A_g) / |Σ_h A_h|²_F (H, H), of mean 1 whatever the size of values; None for numbers."""
    found = _overlap(cell.heads.value_projections, cell)
    return None if found is None else found / found.mean()


def _overlap(projections: ValueProjections, cell: Cell) -> Array | None:
    """tr(A_h'A_g), up to a factor."""
    if isinstance(projections, NoValueProjections):
        return None
    if isinstance(projections, DisjointValueProjections):
        return np.eye(cell.heads.n_heads)
    if isinstance(projections, FileValueProjections):
        return np.array(cell.file_value_overlap)
    shape = projections.n_components, projections.value_dim
    value = random_orthonormal(cell, Role.VALUE_PROJECTIONS, *shape)
    output = value if projections.output == "transposed" else random_orthonormal(cell, Role.OUTPUT_PROJECTIONS, *shape)
    return np.einsum("hva,gvb,hwa,gwb->hg", value, value, output, output, optimize=True)
