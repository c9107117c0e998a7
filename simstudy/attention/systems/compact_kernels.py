"""Entmax weights beside those of the compact kernel that they are on keys of one length, and beside softmax.

The claims are those of arXiv 2601.22766.
"""

import numpy as np

from simstudy.attention.members import Rows, quantities
from simstudy.attention.normalisers import compact, entmax, softmax, threshold
from simstudy.data.shared import SharedData
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.systems.compact_kernels import NormaliserInstance


@quantities.register
def compare_normalisers(instance: NormaliserInstance, cell: Cell, shared: SharedData) -> Rows:
    """Weights of n_keys Gaussian keys at one Gaussian query, logits q·k/b², or of both on the unit sphere."""
    power, temperature = instance.power, cell.bandwidth**2
    points = shared.normals(cell.data.n_keys + 1, cell.data.n_features)
    if instance.keys == "unit":
        points = points / np.sqrt((points * points).sum(axis=1, keepdims=True))
    for each in points:
        query, keys = each[:, 0], each[:, 1:]
        logits = query @ keys / temperature
        weights = entmax(logits, power)
        squares = ((keys - query[:, None]) ** 2).sum(axis=0)
        radius2 = query @ query + (keys * keys).sum(axis=0).mean()
        radius2 -= 2.0 * power * temperature * float(threshold(logits, power))
        # The kernel is a function of −|u|²/2, and of nothing else.
        kernel = compact(-squares / (2.0 * radius2), power, 1.0) if radius2 > 0.0 else np.zeros_like(weights)
        gap = np.abs(weights - np.nan_to_num(kernel)).max()
        yield gap, np.abs(weights - softmax(logits)).sum() / 2.0, (weights > 0.0).mean()
