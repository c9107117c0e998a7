"""Numbers of a user's process and method: random draws by address, and data shared by all methods of a task."""

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simstudy.attention.members import NO_INDICES, Array, Members, evaluated
from simstudy.data.addresses import Role, normals, uniforms
from simstudy.data.shared import SharedData
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.functions import Draw, Functions

TILE = 128
"""Number of replicates whose numbers are computed together: rows of a tile of `data.addresses`."""


class AddressedDraw(Draw):
    """Random numbers of consecutive replicates; each call has a separate stream."""

    def __init__(self, stream: str, first: int, count: int) -> None:
        self.count, self._stream, self._first, self._calls = count, stream, first, 0

    def _next(self) -> str:
        self._calls += 1
        return hashlib.blake2b(f"{self._stream}/{self._calls}".encode(), digest_size=16).hexdigest()

    def _filled(self, normal: bool, shape: tuple[int, ...]) -> Array:
        # Rows are replicates, in whole tiles; with numbers as rows, few numbers would waste most of a tile.
        start, stop = self._first // TILE, (self._first + self.count - 1) // TILE + 1
        fill = normals if normal else uniforms
        tiles = fill(self._next(), Role.INSTANCE, start, stop - start, TILE, math.prod(shape))
        first = self._first - start * TILE
        return np.moveaxis(tiles, 1, 2).reshape(-1, *shape)[first : first + self.count]

    def generators(self) -> Sequence[np.random.Generator]:
        """Return a generator for each replicate, NumPy's Philox with the replicate in its counter."""
        key = int(self._next(), 16)
        bits = (np.random.Philox(key=key, counter=[0, 0, 0, self._first + i]) for i in range(self.count))
        return [np.random.Generator(each) for each in bits]


@evaluated.register
def simulated(functions: Functions, cell: Cell, shared: SharedData) -> Members:
    """Return the numbers of functions in the replicates of the data; those with numbers that are not finite failed."""
    numbers = functions.numbers(AddressedDraw(cell.data_id, shared.first, shared.count), shared.once)
    failed: NDArray[np.bool_] = np.asarray(~np.isfinite(np.stack([*numbers.values()])).all(axis=0))
    return Members(np.empty((shared.count, 0, 1)), None, NO_INDICES, numbers, failed=failed)


def results_of(cell: Cell, first: int, count: int = 1) -> list[tuple[dict[str, Any], str]]:
    """Return data and results of replicates by name, and why the method failed; empty for other kinds of cells."""
    if not isinstance(cell.functions, Functions):
        return [({}, "")] * count
    return cell.functions.results(lambda *some: AddressedDraw(cell.data_id, *some), first, count)
