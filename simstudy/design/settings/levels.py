"""Coordinates of a cell: the levels of its settings as results hold them, and what selects and groups cells by them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

Coordinates = dict[str, Any]


def label(value: Any) -> Any:
    """Value of a setting as text or number, fit for a coordinate."""
    if value is None or value == ():
        return ""
    if isinstance(value, tuple):
        inside = (f"{v:g}" if isinstance(v, (int, float)) else str(getattr(v, "label", v)) for v in value)
        return f"({', '.join(inside)})"
    return getattr(value, "label", value)


_FIXED = "fixed(value="


def level(coordinates: dict[str, Any], factor: str) -> Any:
    """Level of a factor in a cell with these coordinates; a rule of bandwidths is one level, whatever its numbers."""
    rule = str(coordinates.get("bandwidth_rule", _FIXED))
    return rule if factor == "bandwidth" and not rule.startswith(_FIXED) else coordinates.get(factor, "")


def setting_of(factor: str) -> str:
    """Name of the setting that a factor changes: itself, or what stands before the dot of ``normaliser.power``."""
    return factor.partition(".")[0]


def selected(coordinates: Coordinates, selection: dict[str, Any]) -> bool:
    """Whether a cell has the levels that a claim or figure selects; a list stands for its label."""
    wanted = {k: label(tuple(v)) if isinstance(v, list) else v for k, v in selection.items()}
    return all(level(coordinates, key) == value for key, value in wanted.items())


def by_levels(coordinates: Sequence[Coordinates], factors: Iterable[str], chosen: Iterable[int]) -> list[list[int]]:
    """Chosen cells with each combination of levels of some factors, in order; all of them without any."""
    names, found = tuple(factors), defaultdict[tuple[Any, ...], list[int]](list)
    for cell in chosen:
        found[tuple(level(coordinates[cell], name) for name in names)].append(cell)
    return list(found.values())
