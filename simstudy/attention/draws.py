"""Random matrices of the instance of each replicate."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from simstudy.data.shared import SharedData

Array = NDArray[np.float64]


def matrices(shared: SharedData, *shapes: tuple[int, ...]) -> list[Array]:
    """Return arrays of independent standard normals, (replicate, *shape) each; a longer list begins with the same."""
    sizes = [math.prod(shape) for shape in shapes]
    parts = np.split(shared.normals(sum(sizes), 1)[:, 0], np.cumsum(sizes)[:-1], axis=1)
    return [part.reshape(-1, *shape) for part, shape in zip(parts, shapes, strict=True)]


RELATIVE = 1e-12
"""Singular values and eigenvalues below this share of the largest are 0."""
