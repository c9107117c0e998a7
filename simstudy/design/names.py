"""What settings are called where people read them: in words, with symbol and unit."""

from __future__ import annotations

from simstudy.design.settings.records import Setting
from simstudy.design.settings.systems import KINDS

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
    "query_file": Setting("file of query projections"),
    "value_projections.n_components": Setting("components of a value", "v"),
    "value_projections.value_dim": Setting("dimension that a head averages", "k"),
    "bandwidth": Setting("bandwidth", "b"),
    "head_bandwidths": Setting("factors on bandwidths"),
    "key_scale": Setting("scale of keys"),
    "mask.width": Setting("width of the band", "", "keys"),
    "combination": Setting("combination of heads"),
    "transformation.rank": Setting("rank", "R"),
    "transformation.stride": Setting("stride", "s"),
    "transformation.levels": Setting("levels", "L"),
    "normaliser.power": Setting("power", "r"),
    "reference": Setting("reference computation"),
    "measure_function": Setting("function of the measure"),
    "instance": Setting("random instance"),
    "queries": Setting("query points"),
    "dtype": Setting("floating-point type"),
    **{f"instance.{name}": words for record in KINDS.values() for name, words in record.words.items()},
}
"""Settings, and parameters of them, for which their own names do not do."""


def setting(name: str) -> Setting:
    """Return how to name a setting, or a parameter of one (``normaliser.power``)."""
    return SETTINGS.get(name) or Setting(name.rpartition(".")[2].replace("_", " "))
