"""Which keys a query may attend to."""

from __future__ import annotations

from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from simstudy.design.settings.records import KINDS, Choice, Count, Line

Visible = NDArray[np.bool_]
"""Whether a query may attend to a key: (query, key)."""


class NoMask(Choice):
    """Every query sees all keys."""

    kind: Literal["none"]


class CausalMask(Choice):
    """Query q of Q sees the first ⌈q n/Q⌉ keys: queries stand at equal distances along the keys, the last at the end.

    With as many queries as keys that is the mask of a decoder.
    """

    kind: Literal["causal"]


class BandedMask(Choice):
    """Of the keys that a causal mask lets a query see, the last ones: attention in a sliding window."""

    kind: Literal["banded"]
    width: Count = Field(description="number of keys, at least 1")


class FileMask(Choice):
    """Which keys each query sees, from a file: every query at least one."""

    kind: Literal["file"]
    path: Line = Field(description="path of a .npy array of booleans (queries, keys), relative to the design")

    @property
    def decisive(self) -> Self:
        """The same mask, wherever its file lies: its contents travel with the cell."""
        return self.model_copy(update={"path": ""})


Mask = Annotated[NoMask | CausalMask | BandedMask | FileMask, KINDS]


def visible_keys(mask: Mask, n_queries: int, n_keys: int, contents: tuple[str, ...] | None) -> Visible | None:
    """Return which of the keys each query sees, (query, key); None without a mask.

    Parameters
    ----------
    mask
        What a design states.
    n_queries, n_keys
        Q and n.
    contents
        A text of 0 and 1 for each query of a mask from a file.
    """
    match mask:
        case CausalMask():
            return _up_to(n_queries, n_keys, n_keys)
        case BandedMask():
            return _up_to(n_queries, n_keys, mask.width)
        case FileMask():
            if contents is None:
                raise ValueError("the mask has not been read; load the design it belongs to")
            return np.array([[letter == "1" for letter in row] for row in contents])
    return None


def _up_to(n_queries: int, n_keys: int, width: int) -> Visible:
    """The last ``width`` keys up to the place of each query."""
    # In whole numbers: a rounded quotient could be a key too many.
    places = -(-np.arange(1, n_queries + 1) * n_keys // n_queries)[:, None]
    key = np.arange(n_keys)
    return (key < places) & (key >= places - width)
