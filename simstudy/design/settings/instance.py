"""What every system states of its random instances: parameters, the settings that mean something, and its numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from simstudy.design.settings.records import Choice, Impossibility, Quantity, Setting
from simstudy.design.settings.tables import Data, Heads


class Instance(Choice):
    """A random instance of a system, whose numbers are measured in each replicate in place of estimates.

    It ``uses`` settings of other tables, and all others are refused where a design states them; every name of its
    ``quantities`` becomes a measure.  Files and folders that it ``rests_on`` decide its numbers beside those that
    decide all numbers; ``words`` say what people call its parameters, where neither their names do nor another system
    has.  Some sizes of the cell have a ``least`` value above 1, with the reason.
    """

    uses: ClassVar[tuple[str, ...]]
    quantities: ClassVar[dict[str, Quantity]]
    rests_on: ClassVar[tuple[str, ...]] = ()
    words: ClassVar[dict[str, Setting]] = {}
    least: ClassVar[dict[str, tuple[int, str]]] = {}

    @classmethod
    def system(cls) -> str:
        """Return the name of the system: that of its file in every room."""
        return cls.__module__.rpartition(".")[2]

    @property
    def measured(self) -> tuple[str, ...]:
        """Names of what is measured in each replicate: all quantities, if it does not choose."""
        return tuple(self.quantities)

    def require(self) -> None:
        """Refuse to be measured where something is missing that is no part of this package; raises UserError."""

    def impossibilities(self, data: Data, heads: Heads) -> Iterator[Impossibility]:
        """Yield the rules that its parameters and the sizes of the cell break together."""
        yield from ()
