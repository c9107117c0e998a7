"""Which cells have more keys than are held at once: their keys pass in tiles, and are never all there."""

from __future__ import annotations

from collections.abc import Iterator

from simstudy.design.settings.cell import Cell
from simstudy.design.settings.processes import AutoregressiveKeys, FileKeys, OwnKeys

HELD_BYTES = 256 << 20
"""Keys of one replicate, as drawn and as projected by every head, up to which all are held at once."""
TILE_BYTES = 16 << 20
"""Largest array of a tile of keys."""
MAX_KEYS = 1 << 32
"""Keys of one replicate whose random numbers have addresses."""
_WHOLE = 512
"""A tile is a multiple of what random numbers and kernels take together."""


def tiles_of(cell: Cell) -> Iterator[Cell]:
    """Yield a cell of each tile of the keys of a cell."""
    length = keys_in_tile(cell)
    for start in range(0, cell.data.n_keys, length):
        data = cell.data.model_copy(update={"n_keys": min(length, cell.data.n_keys - start)})
        yield cell.model_copy(update={"data": data, "keys_before": start})


def passes_in_tiles(cell: Cell) -> bool:
    """Return whether keys pass in tiles: they are many, and each is drawn and weighted without the others.

    A rule of the design alone, not of the machine: tiles decide the last bits.
    """
    n_bytes = cell.data.n_keys * sum(_numbers_of_a_key(cell)) * _itemsize(cell)
    return n_bytes > HELD_BYTES and cell.data.n_keys <= MAX_KEYS and _keys_stand_alone(cell)


def keys_in_tile(cell: Cell) -> int:
    """Return the number of keys of a tile."""
    return max(_WHOLE, TILE_BYTES // (max(_numbers_of_a_key(cell)) * _itemsize(cell)) // _WHOLE * _WHOLE)


def _numbers_of_a_key(cell: Cell) -> tuple[int, int]:
    return cell.data.n_features, cell.heads.n_heads * cell.heads.head_dim


def _itemsize(cell: Cell) -> int:
    return {"float32": 4, "float64": 8}[cell.simulation.dtype]


def _keys_stand_alone(cell: Cell) -> bool:
    estimator = cell.estimator
    together = estimator.reference != "none" or estimator.measure_function is not None or estimator.mask.kind != "none"
    return (
        cell.instance is None
        and estimator.learner.kind == "nadaraya_watson"
        and (estimator.transformation.kind, estimator.normaliser.kind) == ("none", "softmax")
        and estimator.combination.kind not in ("fitted", "product")
        and not isinstance(cell.data.key_distribution, AutoregressiveKeys | FileKeys | OwnKeys)
        and not together
    )
