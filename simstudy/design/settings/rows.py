"""Rows of a user's data, as they travel with a cell."""

from __future__ import annotations

import base64
import hashlib
import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

Array = NDArray[np.float64]

MAX_NUMBERS = 1 << 23
"""Most numbers of a data set, 64 MiB: every task of a worker takes a copy along."""


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows that keys are drawn from, and the last ``n_held_out``, held out as queries.

    The table (rows, features + 2) has keys as heads see them, then the value of the regression function and the cross-
    fitted residual, of mean 0: NaN where a cell has none.  Rows that each batch splits anew (`settings.splits`) hold
    out none.
    """

    table: Array
    n_held_out: int

    @property
    def keys(self) -> Array:
        """Keys (N, d) of the population."""
        return self.table[: self._size, :-2]

    @property
    def values(self) -> Array:
        """Values (N,) of the regression function at the population."""
        return self.table[: self._size, -2]

    @property
    def residuals(self) -> Array:
        """Residuals (N,) of the population."""
        return self.table[: self._size, -1]

    @property
    def points(self) -> Array:
        """Keys (n_held_out, d) held out."""
        return self.table[self._size :, :-2]

    @property
    def targets(self) -> Array:
        """Values (n_held_out,) of the regression function at the rows held out."""
        return self.table[self._size :, -2]

    @property
    def _size(self) -> int:
        return len(self.table) - self.n_held_out

    @cached_property
    def digest(self) -> str:
        """Digest of all contents."""
        return _digest(self.table, self.n_held_out)

    @cached_property
    def keys_digest(self) -> str:
        """Digest of the population's keys: cells that draw from the same ones are paired."""
        return _digest(self.keys, 0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rows) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls._parsed, serialization=core_schema.plain_serializer_function_ser_schema(cls._stated)
        )

    def _stated(self) -> dict[str, Any]:
        """Plain data of which `_parsed` makes the same rows."""
        packed = zlib.compress(np.ascontiguousarray(self.table, "<f8").tobytes())
        return {"shape": self.table.shape, "n_held_out": self.n_held_out, "numbers": base64.b64encode(packed).decode()}

    @classmethod
    def _parsed(cls, stated: Any) -> Rows:
        if isinstance(stated, Rows):
            return stated
        try:
            n_rows, n_columns = map(int, stated["shape"])
            packed = base64.b64decode(stated["numbers"], validate=True)
            # No more than was promised: a few bytes may expand beyond any bound.
            content = zlib.decompressobj().decompress(packed, 8 * min(n_rows * n_columns, MAX_NUMBERS))
            table = np.frombuffer(content, "<f8").reshape(n_rows, n_columns).astype(np.float64)
            n_held_out = int(stated["n_held_out"])
        except (TypeError, KeyError, ValueError, zlib.error) as error:
            raise ValueError(f"no rows of data: {error}") from None
        if not (0 <= n_held_out < n_rows and n_columns > 2):
            raise ValueError("no rows of data: shape")
        return cls(table, n_held_out)


def _digest(table: Array, n_held_out: int) -> str:
    heading = f"{table.shape} {n_held_out} ".encode()
    return hashlib.blake2b(heading + np.ascontiguousarray(table, "<f8").tobytes(), digest_size=16).hexdigest()
