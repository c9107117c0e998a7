"""What heads do to values that are vectors: value projections W_V and output projections W_O.

The value of a key is then y = m(X) s + ε: the regression function in one direction s, any of them with the same
probability (E ss' = I), and noise of variance σ² in every component.  Head h returns A_h'Σ_i w_hi y_i, A_h = W_V W_O of
its own, and the ensemble their sum.  Errors are squared distances from what the same projections make of m(x) s.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field

from simstudy.design.settings.records import KINDS, Choice, Count, Line

Overlap = tuple[tuple[float, ...], ...]
"""Of two heads each, tr(A_h'A_g) (head, head): all that errors know of the projections."""


class NoValueProjections(Choice):
    """Values are numbers; or vectors of which all heads make the same, which comes to that."""

    kind: Literal["none"]


class RandomValueProjections(Choice):
    """W_V of orthonormal columns and W_O of orthonormal rows, uniform draws of ``head_seed`` for each head."""

    kind: Literal["random"]
    n_components: Annotated[int, Field(ge=2, le=2**20)] = Field(description="components v of a value, at least 2")
    value_dim: Count = Field(description="numbers that a head averages, at most n_components")
    output: Literal["own", "transposed"] = Field("own", description='W_O: a draw of its "own", or W_V "transposed"')


class DisjointValueProjections(Choice):
    """Every head has components of its own, which no other reads or writes: concatenated heads."""

    kind: Literal["disjoint"]


class FileValueProjections(Choice):
    """W_V and W_O of every head from a file, such as those of a trained layer."""

    kind: Literal["file"]
    path: Line = Field(
        description="path of a .npz file with W_V (n_heads, v, k) and W_O (n_heads, k, c), relative to the design"
    )

    @property
    def decisive(self) -> Self:
        """The same projections, wherever their file lies: what decides errors travels with the cell."""
        return self.model_copy(update={"path": ""})


ValueProjections = Annotated[
    NoValueProjections | RandomValueProjections | DisjointValueProjections | FileValueProjections, KINDS
]
