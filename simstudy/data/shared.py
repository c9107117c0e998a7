"""Data of consecutive replicates, drawn and computed once for all cells of a task."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from simstudy.data import heads, regression, training
from simstudy.data.addresses import Drawn
from simstudy.data.geometry import diversity_indices
from simstudy.data.span import directions_of, n_coordinates, span_of
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.choices import FileRegression, FittedRegression
from simstudy.kernels import project
from simstudy.kernels.devices import gpu_kernels


class SharedData:
    """Data of consecutive replicates of cells that share them; each part is computed at the first use and kept."""

    def __init__(self, cell: Cell, first: int, count: int) -> None:
        self.first, self.count = first, count
        self._cell = cell
        self._known: dict[tuple[Any, ...], Any] = {}

    def once(self, address: tuple[Any, ...], compute: Callable[[], Any]) -> Any:
        """Return an object that is computed once for all uses with the same address."""
        # A single lookup, as hashing the records of an address takes longest.
        found = self._known.get(address)
        if found is None:
            found = self._known[address] = compute()
        return found

    def split(self, n_parts: int) -> Iterator["SharedData"]:
        """Yield the data in parts of equal numbers of consecutive replicates."""
        length = self.count // n_parts
        for part in range(n_parts):
            yield SharedData(self._cell, self.first + part * length, length)

    def keys(self, n_keys: int, coordinates: int = 0) -> np.ndarray:
        """Return the first keys X, (replicate, feature, key); or this number of coordinates of them."""
        return self.once(("keys", n_keys, coordinates), lambda: np.ascontiguousarray(self._drawn(n_keys, coordinates)))

    def _drawn(self, n_keys: int, coordinates: int = 0) -> Any:
        """Return the first keys, or their address if a GPU draws them."""
        given = self._cell, self.first, self.count, coordinates
        found = self.once(("drawn", coordinates), lambda: training.draw_keys(*given))
        return found._replace(shape=(*found.shape[:2], n_keys)) if isinstance(found, Drawn) else found[:, :, :n_keys]

    def _seen(self, cell: Cell) -> np.ndarray:
        """Return keys, or the first features of keys, on which values and variances depend."""
        n, span = cell.data.n_keys, span_of(cell)
        if span is None or not span.directions.size:
            return self.keys(n)
        keys, features = self.keys(n, span.directions.shape[-1]), span.features
        return self.once(("seen", n, *_coordinates(cell)), lambda: np.asarray(project(keys, features))[:, 0])

    def values(self, cell: Cell) -> np.ndarray:
        """Return E[Y | X], or the outcomes Y if the cell draws noise, (replicate, key)."""
        if cell.simulation.noise_treatment == "drawn":
            return self.regression(cell) + np.sqrt(self.variances(cell)) * self.noise(cell)
        return self.regression(cell)

    def outcomes(self, cell: Cell) -> tuple[Any, Any]:
        """Return values, and variances if noise is integrated out; on the GPU if it draws keys and evaluates both."""
        if cell.simulation.noise_treatment == "drawn":
            return self.values(cell), None
        known = () if _coordinates(cell) else directions_of(cell.data)  # coordinates are not whole keys
        if not (known and isinstance(drawn := self._drawn(cell.data.n_keys), Drawn)):
            return self.values(cell), self.variances(cell)
        return gpu_kernels().evaluate(*known, drawn)

    def regression(self, cell: Cell) -> np.ndarray:
        """Return E[Y | X], (replicate, key): m(X), plus the residual of the row if noise is paired with rows."""
        n, m = cell.data.n_keys, cell.data.regression
        if isinstance(m, FileRegression | FittedRegression):
            return regression.at_rows(cell).astype(cell.simulation.dtype)[self.rows(n)]
        address = ("regression", n, m, *_coordinates(cell))
        return self.once(address, lambda: regression.evaluate(m, self._seen(cell)))

    def rows(self, n_keys: int) -> np.ndarray:
        """Return the numbers of the rows of the user's data that are the first keys, (replicate, key)."""
        return self.once(("rows",), lambda: training.draw_rows(self._cell, self.first, self.count))[:, :n_keys]

    def variances(self, cell: Cell) -> np.ndarray:
        """Return Var(ε | X), (replicate, key)."""
        data = cell.data
        address = "variances", data.n_keys, data.noise, data.noise_sd, cell.file_rows, *_coordinates(cell)
        return self.once(address, lambda: training.noise_variance(cell, self._seen(cell)))

    def noise(self, cell: Cell) -> np.ndarray:
        """Return noise of unit variance, (replicate, key)."""
        address = ("noise", cell.data.n_keys, cell.data.noise, cell.file_rows)
        return self.once(address, lambda: training.draw_noise(cell, self.first, self.count))

    def projections(self, cell: Cell) -> tuple[np.ndarray, np.ndarray]:
        """Return key and query projections of redrawn heads, (replicate, head, feature, dimension) each."""
        return self.once(("projections", *_head_settings(cell)), lambda: projections_of(cell, self.first, self.count))

    def indices(self, cell: Cell) -> np.ndarray:
        """Return diversity indices of redrawn heads, (replicate, index)."""
        address = "indices", *_head_settings(cell), cell.bandwidth
        return self.once(address, lambda: diversity_indices(self.projections(cell)[0], cell.bandwidth))

    def projected(self, cell: Cell, projections: np.ndarray) -> np.ndarray:
        """Return projected keys, (replicate, head, dimension, key), on the device that computes."""
        n, scale, offset, of = cell.data.n_keys, cell.estimator.key_scale, heads.key_offset(cell), n_coordinates(cell)

        def of_heads() -> np.ndarray:
            drawn = self._drawn(n, of or 0)
            whole: Any = drawn if isinstance(drawn, Drawn) else self.keys_less(offset, n, of or 0)
            found = project(whole, projections)
            if scale == "normalised":
                # A key of length 0 cannot be normalised: its replicate is undefined, and counted as failed.
                found = np.asarray(found)
                with np.errstate(invalid="ignore"):
                    found /= np.sqrt((found * found).sum(axis=2, keepdims=True) / found.shape[2])
            return found

        seen_by = of, None if of is None else cell.queries
        return self.once(("projected", n, *_head_settings(cell), scale, offset.tobytes(), *seen_by), of_heads)

    def keys_less(self, offset: np.ndarray, n_keys: int, coordinates: int = 0) -> np.ndarray:
        """Return keys minus an offset (feature,), (replicate, feature, key), subtracted before rounding to float32."""
        if not offset.any():
            return self.keys(n_keys, coordinates)
        table = (self._cell.rows.keys - offset).astype(self._cell.simulation.dtype)
        return np.ascontiguousarray(np.moveaxis(table[self.rows(n_keys)], 1, 2))


def _head_settings(cell: Cell) -> tuple[Any, ...]:
    """Return the settings that determine the projections of heads in cells that share data."""
    return cell.heads, cell.estimator.head_bandwidths


def _coordinates(cell: Cell) -> tuple[Any, ...]:
    """Return the number of coordinates that are drawn instead of keys, and their settings; empty for whole keys."""
    n = n_coordinates(cell)
    return (n, *_head_settings(cell), cell.queries) if n else ()


def projections_of(cell: Cell, first: int = 0, count: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return key and query projections of a cell, (head, feature, dimension), or one set for each replicate."""
    return heads.key_projections(cell, first, count), heads.query_projections(cell, first, count)
