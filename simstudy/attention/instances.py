"""Numbers of a random instance of each replicate, where no regression function is estimated."""

from __future__ import annotations

import math
from functools import singledispatch

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simstudy.attention.members import NO_INDICES, Members, evaluated
from simstudy.data.shared import SharedData
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.instance import Instance

RELATIVE = 1e-12
"""Singular values and eigenvalues below this share of the largest are 0."""


@singledispatch
def measure(instance: Instance, cell: Cell, shared: SharedData) -> dict[str, NDArray[np.float64]]:
    """Return the quantities of an instance in the replicates of the data, by name: (replicate,) arrays."""
    raise NotImplementedError(f"nothing measures {type(instance).__name__}")


def by_name(instance: Instance, rows: ArrayLike) -> dict[str, NDArray[np.float64]]:
    """Return the quantities of an instance by name, in its order, of their numbers in each replicate."""
    return dict(zip(instance.quantities, np.array(rows, np.float64).T, strict=True))


def matrices(shared: SharedData, *shapes: tuple[int, ...]) -> list[NDArray[np.float64]]:
    """Return arrays of independent standard normals, (replicate, *shape) each; a longer list begins with the same."""
    sizes = [math.prod(shape) for shape in shapes]
    parts = np.split(shared.normals(sum(sizes), 1)[:, 0], np.cumsum(sizes)[:-1], axis=1)
    return [part.reshape(-1, *shape) for part, shape in zip(parts, shapes, strict=True)]


@evaluated.register
def measured(instance: Instance, cell: Cell, shared: SharedData) -> Members:
    """Return the numbers of an instance in the replicates of the data, without estimates: at no query."""
    numbers = measure(instance, cell, shared)
    for name, values in numbers.items():
        if not np.isfinite(values).all():
            raise ArithmeticError(f"{name} is not finite")
    return Members(np.empty((shared.count, 0, cell.n_members)), None, NO_INDICES, numbers)
