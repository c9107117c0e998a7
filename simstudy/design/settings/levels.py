"""Settings as people read them: names in words, and levels, by which cells are labelled, selected and grouped."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

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
    ruled = factor == "bandwidth" and rule and not rule.startswith(_FIXED)
    return rule if ruled else coordinates.get(factor, "")


def selected(coordinates: Coordinates, selection: dict[str, Any]) -> bool:
    """Return true if a cell has the levels that a claim or figure selects; a list stands for its label."""
    wanted = {k: label(tuple(v)) if isinstance(v, list) else v for k, v in selection.items()}
    return all(level(coordinates, key) == value for key, value in wanted.items())


def by_levels(coordinates: Sequence[Coordinates], factors: Iterable[str], chosen: Iterable[int]) -> list[list[int]]:
    """Chosen cells with each combination of levels of some factors, in order; all of them without any."""
    names, found = tuple(factors), defaultdict[tuple[Any, ...], list[int]](list)
    for cell in chosen:
        found[tuple(level(coordinates[cell], name) for name in names)].append(cell)
    return list(found.values())


class Setting(NamedTuple):
    """Name of a setting in words, its symbol (empty if it has none) and its unit (empty if it has none)."""

    words: str
    symbol: str = ""
    unit: str = ""


SETTINGS: dict[str, Setting] = {
    "n_keys": Setting("training pairs", "n"),
    "n_features": Setting("features", "d"),
    "key_distribution": Setting("distribution of keys"),
    "regression": Setting("regression function"),
    "noise_sd": Setting("noise standard deviation", "σ", "Y"),
    "n_heads": Setting("heads", "H"),
    "head_dim": Setting("head dimension", "p"),
    "arrangement": Setting("arrangement of heads"),
    "total_dim": Setting("dimension budget", "D"),
    "angle": Setting("angle", "", "degrees"),
    "principal_angles": Setting("principal angles", "", "degrees"),
    "spread": Setting("spread of heads"),
    "head_seed": Setting("draw of heads"),
    "file": Setting("file of heads"),
    "heads_function": Setting("function of the heads"),
    "value_projections.n_components": Setting("components of a value", "v"),
    "value_projections.value_dim": Setting("dimension that a head averages", "k"),
    "bandwidth": Setting("bandwidth", "b"),
    "head_bandwidths": Setting("factors on bandwidths"),
    "key_scale": Setting("scale of keys"),
    "mask.width": Setting("width of the band", "", "keys"),
    "combination": Setting("combination of heads"),
    "transformation.rank": Setting("rank", "R"),
    "transformation.stride": Setting("stride", "s"),
    "normaliser.power": Setting("power", "r"),
    "reference": Setting("reference computation"),
    "queries": Setting("query points"),
    "dtype": Setting("floating-point type"),
}
"""Settings, and parameters of them, for which their own names do not do."""


def setting(name: str) -> Setting:
    """Return how to name a setting, or a parameter of one (``normaliser.power``)."""
    return SETTINGS.get(name) or Setting(name.rpartition(".")[2].replace("_", " "))
