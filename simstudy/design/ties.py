"""Cells of a grid that hold the same numbers by construction: factors that do nothing, claims that compare nothing."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from simstudy.design.claims import BaseClaim, OptimumClaim, OrderingClaim
from simstudy.design.mistakes import Problem
from simstudy.design.settings import TABLE_OF
from simstudy.design.settings.cell import Cell, Coordinates, by_levels, level, selected
from simstudy.design.settings.idle import idle_settings
from simstudy.design.settings.records import Choice

OF_WEIGHTS = ("squared_bias", "ensemble_variance", "mse", "equivalent_heads")
"""Measures that the weights of heads enter; all others are those of the heads, whatever combines them."""


class Ties:
    """Which cells of a grid hold the same numbers.

    Parameters
    ----------
    cells
        All cells of the grid.
    coordinates
        Theirs, in the same order.
    factors
        Factors of the grid.
    """

    def __init__(self, cells: Sequence[Cell], coordinates: Sequence[Coordinates], factors: Sequence[str]) -> None:
        self._cells, self._coordinates, self._factors = cells, coordinates, factors
        self._heads = [cell.identity(engine="") for cell in cells]
        weights = [cell.weights or cell.estimator.combination.model_dump_json() for cell in cells]
        self._ensembles = list(zip(self._heads, weights, strict=True))

    def idle_factors(self, path: str) -> Iterator[Problem]:
        """Yield the factors of which no level changes any number of any cell."""
        for factor in self._factors if len(set(self._ensembles)) < len(self._ensembles) else ():
            others = [name for name in self._factors if name != factor]
            strata = by_levels(self._coordinates, others, range(len(self._cells)))
            alike = all(len({self._ensembles[cell] for cell in stratum}) == 1 for stratum in strata)
            if alike and len(strata[0]) > 1:
                levels = tuple(level(self._coordinates[cell], factor) for cell in strata[0])
                remedy = f"decides no number of any cell ({self._reasons(*strata[0][:2])}); remove it"
                yield Problem(f"{path}.{factor}", levels, remedy)

    def compared(self, path: str, claim: BaseClaim) -> Iterator[Problem]:
        """Yield why a claim compares what cannot differ."""
        classes = defaultdict[Any, list[int]](list)
        for cell, numbers in enumerate(self._ensembles if claim.measure in OF_WEIGHTS else self._heads):
            classes[numbers].append(cell)
        pairs = [pair for alike in classes.values() for pair in itertools.permutations(alike, 2)]
        found = [pair for pair in pairs if self._side_by_side(claim, *pair)]
        if found:
            remedy = f"compares cells that hold the same numbers: {self._named(*found[0])}; leave such cells out"
            yield Problem(path, claim.measure, remedy)

    def _side_by_side(self, claim: BaseClaim, first: int, second: int) -> bool:
        """Whether a claim compares one cell with another."""
        here, there = self._coordinates[first], self._coordinates[second]
        versus = getattr(claim, "versus", None)
        if versus is not None:
            wanted = {name: level(here, name) for name in self._factors} | versus
            return selected(here, claim.where) and selected(there, wanted)
        if isinstance(claim, OrderingClaim) or not hasattr(claim, "x"):
            return False
        along = (claim.x, *claim.tune) if isinstance(claim, OptimumClaim) else (claim.x,)
        fixed = (name for name in self._factors if name not in along)
        both = selected(here, claim.where) and selected(there, claim.where)
        return both and all(level(here, name) == level(there, name) for name in fixed)

    def _named(self, first: int, second: int) -> str:
        """Two cells by the factors in which they differ, those that they share, and why that makes no difference."""
        here, there = ({n: level(self._coordinates[k], n) for n in self._factors} for k in (first, second))
        apart = [name for name in here if here[name] != there[name]]
        one, other = (", ".join(f"{name} = {levels[name]}" for name in apart) for levels in (here, there))
        same = ", ".join(f"{name} = {here[name]}" for name in here if name not in apart)
        return f"{one} and {other}{f' at {same}' if same else ''} ({self._reasons(first, second)})"

    def _reasons(self, first: int, second: int) -> str:
        """Why the settings in which two cells differ decide nothing."""
        cells = self._cells[first], self._cells[second]
        idle = idle_settings(cells[0]) | idle_settings(cells[1])
        differing = [name for name in TABLE_OF if self._coordinates[first][name] != self._coordinates[second][name]]
        reasons = {f"{name}: {idle[name]}": None for name in differing if name in idle}
        for name in differing:
            for choice in (getattr(getattr(cell, TABLE_OF[name]), name) for cell in cells):
                if isinstance(choice, Choice):
                    reasons |= {f"{name}.{parameter}: {why}": None for parameter, why in choice.idle.items()}
        return "; ".join(reasons) or f"{', '.join(differing)}: does not enter"
