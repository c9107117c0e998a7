"""Monte Carlo studies of multi-head attention as an ensemble of Nadaraya-Watson estimators.

`run` runs a study from its design file; `open_results` loads the results of one and `to_grid` lays them out by
factor; `nw_ensemble`, `principal_angles` and `head_diversity` evaluate one ensemble on the caller's own arrays.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simstudy.ensemble import head_diversity, nw_ensemble, principal_angles
    from simstudy.results import open_results, to_grid
    from simstudy.study import run

__all__ = ["head_diversity", "nw_ensemble", "open_results", "principal_angles", "run", "to_grid"]

_MODULES = {
    "ensemble": ("head_diversity", "nw_ensemble", "principal_angles"),
    "results": ("open_results", "to_grid"),
    "study": ("run",),
}


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is: the command line needs none of it, and all of it takes two seconds."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(f"simstudy.{module}"), name)
    raise AttributeError(f"module 'simstudy' has no attribute {name!r}")
