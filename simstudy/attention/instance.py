"""Random instances in the place of an ensemble: numbers of each replicate, and no estimates."""

from __future__ import annotations

import numpy as np

from simstudy.attention.members import NO_INDICES, Members
from simstudy.attention.systems import KINDS
from simstudy.data.shared import SharedData
from simstudy.design.settings.cell import Cell


class MeasuredInstance:
    """The instance of one cell."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self._measure = KINDS[cell.estimator.instance.kind]

    def evaluate(self, shared: SharedData) -> Members:
        """Return the numbers of the replicates of the data, without estimates: at no query.

        Raises
        ------
        ArithmeticError
            If a number is not finite, so that its replicate is counted as failed.
        """
        numbers = self._measure(self.cell, shared)
        for name, values in numbers.items():
            if not np.isfinite(values).all():
                raise ArithmeticError(f"{name} is not finite")
        return Members(np.empty((shared.count, 0, self.cell.n_members)), None, NO_INDICES, numbers)
