"""Monte Carlo studies of multi-head attention as an ensemble of Nadaraya-Watson estimators.

`run` runs a study from its design file or from a `Study` written in Python. `check` lists its mistakes and `plan`
predicts its cost. `open_results` loads results. `contrast` compares two cells, and `details` shows one.
`judge` judges claims about a table of the caller's numbers, and `tied_sets` compares all its conditions. `simulate`
studies any methods on data of any process, `estimates` returns estimates of single replicates, and `performance`
computes measures from any table of estimates. `nw_ensemble`, `principal_angles` and `head_diversity` evaluate one
ensemble on arrays of the caller. `inspect_heads` measures how correlated the heads of a model are and compares this
with theory; `capture` shows each of its attentions.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simstudy.analysis import contrast, details
    from simstudy.design.load import Study, check
    from simstudy.ensemble import head_diversity, nw_ensemble, principal_angles
    from simstudy.judging.judged import judge
    from simstudy.measuring import estimates, performance
    from simstudy.simulation import simulate
    from simstudy.study import open_results, plan, run
    from simstudy.ties import tied_sets
    from simstudy.transformers.capture import capture
    from simstudy.transformers.inspection import inspect_heads

__all__ = [
    "Study", "capture", "check", "contrast", "details", "estimates", "head_diversity",
    "inspect_heads", "judge", "nw_ensemble", "open_results", "performance", "plan", "principal_angles",
    "run", "simulate", "tied_sets",
]  # fmt: skip
_HOMES = {
    "Study": "design.load", "check": "design.load", "contrast": "analysis", "details": "analysis",
    "capture": "transformers.capture", "inspect_heads": "transformers.inspection", "judge": "judging.judged",
    "estimates": "measuring", "open_results": "study", "performance": "measuring", "plan": "study",
    "run": "study", "simulate": "simulation", "tied_sets": "ties",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    # Loaded on first use: the command line must catch signals before imports that take seconds.
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version(__name__)
    if name in ("plots", "theory"):
        return importlib.import_module(f"{__name__}.{name}")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES.get(name, 'ensemble')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
