"""The domain of a grid: laws of settings, from which the settings that its claims are judged on are drawn."""

import hashlib
import json
import math
from collections.abc import Callable
from typing import Annotated, Any, Self

import numpy as np
from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from simstudy.design.mistakes import RULE, DesignError, mistake
from simstudy.design.settings.levels import label
from simstudy.design.settings.records import Record

MIN_SETTINGS = 16
"""Settings that are drawn by default, and the fewest of which a mean is judged."""
TRIES = 100
"""Draws for each setting that is asked for, beyond which the domain has too few that differ and are possible."""
DIGITS = 4
"""Significant digits of a number that is drawn."""


def _ends(ends: list[Any]) -> list[Any]:
    numbers = [end for end in ends if type(end) in (int, float) and math.isfinite(end)]
    if len(numbers) != 2 or len(ends) != 2 or not ends[0] < ends[1]:
        raise PydanticCustomError(RULE, "must be two numbers, [lowest, highest]")
    return ends


Ends = Annotated[list[Any], AfterValidator(_ends)]


class Law(Record):
    """The law of one setting: a table with one entry, [lowest, highest] or values; whole ends give whole numbers."""

    uniform: Ends | None = None
    log_uniform: Ends | None = None
    one_of: list[Any] = Field(default_factory=list)

    @model_validator(mode="after")
    def _one_entry(self) -> Self:
        if sum(map(bool, (self.uniform, self.log_uniform, self.one_of))) != 1:
            raise PydanticCustomError(RULE, "must have one entry: uniform, log_uniform or one_of")
        if self.log_uniform and self.log_uniform[0] <= 0:
            raise PydanticCustomError(RULE, "must be positive, as it has a logarithm; raise the lowest")
        return self

    def draw(self, rng: np.random.Generator) -> Any:
        """Return one value."""
        if self.one_of:
            return self.one_of[rng.integers(len(self.one_of))]
        low, high = self.log_uniform or self.uniform or (0.0, 0.0)
        whole = isinstance(low, int) and isinstance(high, int)
        span = np.array([low, high + whole])
        drawn = float(np.exp(rng.uniform(*np.log(span))) if self.log_uniform else rng.uniform(*span))
        return min(int(drawn), int(high)) if whole else float(f"{drawn:.{DIGITS}g}")

    @property
    def words(self) -> str:
        """The law in words."""
        if self.one_of:
            each = (label(v) if not isinstance(v, dict) else v.get("label", v.get("kind", v)) for v in self.one_of)
            return f"of {', '.join(map(str, each))}"
        low, high = self.log_uniform or self.uniform or (0.0, 0.0)
        return f"from {low:g} to {high:g}{' (uniform in the logarithm)' if self.log_uniform else ''}"


Cross = Callable[[dict[str, Any]], list[Any]]
"""From settings of a grid to its cells; raises DesignError where these are impossible."""


def drawn_cells(
    name: str, domain: dict[str, Law], count: int, fresh: tuple[str, ...], seed: Any, cross: Cross
) -> list[Any]:
    """Return the cells of so many settings drawn from a domain; `DesignError` if too few are possible.

    Each drawn setting has seeds of its own, named in ``fresh``.  What is impossible is no part of the domain: it is
    drawn again.  Equal ``seed``, equal settings.
    """
    digest = hashlib.blake2b(json.dumps([seed, name]).encode(), digest_size=16).digest()
    rng = np.random.default_rng(int.from_bytes(digest))
    found: list[list[Any]] = []
    known: set[str] = set()
    for _ in range(TRIES * count):
        drawn = {setting: law.draw(rng) for setting, law in domain.items()}
        seeds = {each: int(rng.integers(1 << 62)) for each in fresh}
        if (key := repr(drawn)) in known:
            continue
        known.add(key)
        try:
            found.append(cross(drawn | seeds))
        except DesignError as error:
            if not found and len(known) > TRIES:
                first = error.problems[0]
                raise mistake(first.path.replace(".settings.", ".domain."), first.value, first.remedy) from None
        if len(found) == count:
            return [cell for cells in found for cell in cells]
    remedy = f"only {len(found)} different settings of the domain are possible; widen it, or ask for fewer cells"
    raise mistake(f"grids.{name}.cells", count, remedy)
