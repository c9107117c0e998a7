"""Monte Carlo studies of multi-head attention as an ensemble of Nadaraya-Watson estimators.

`run` runs a study from its design file; `open_results` loads the results of one and `to_grid` lays them out by
factor; `nw_ensemble`, `principal_angles` and `head_diversity` evaluate one ensemble on the caller's own arrays;
`read_heads` and `inspect_heads` tell how correlated the heads of a trained transformer are, and what theory says.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simstudy.ensemble import head_diversity, nw_ensemble, principal_angles
    from simstudy.results import open_results, to_grid
    from simstudy.study import run
    from simstudy.transformers.heads import read_heads
    from simstudy.transformers.inspection import inspect_heads

__all__ = [
    "head_diversity",
    "inspect_heads",
    "nw_ensemble",
    "open_results",
    "principal_angles",
    "read_heads",
    "run",
    "to_grid",
]
_HOMES = {
    "inspect_heads": "transformers.inspection",
    "open_results": "results",
    "read_heads": "transformers.heads",
    "run": "study",
    "to_grid": "results",
}


def __getattr__(name: str) -> Any:
    # Loaded on first use: the command line has to catch signals before imports that take seconds.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES.get(name, 'ensemble')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
