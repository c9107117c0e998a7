"""Monte Carlo studies of multi-head attention as an ensemble of Nadaraya-Watson estimators.

`run` runs a study, from its design file or a `Study` written in Python; `check` and `plan` say beforehand what is wrong
with it and what it will take; `open_results` loads the results of one and `to_grid` lays them out by factor; `contrast`
compares two cells, `details` shows what lies inside one, `leave_one_out` what it would be without each of its heads,
`concat` joins studies; `nw_ensemble`, `principal_angles` and
`head_diversity` evaluate one ensemble on the caller's own arrays; `read_heads` and `inspect_heads` tell how correlated
the heads of a trained transformer are, and what theory says.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simstudy.analysis import contrast, details, leave_one_out
    from simstudy.design.builder import Study
    from simstudy.design.load import check
    from simstudy.ensemble import head_diversity, nw_ensemble, principal_angles
    from simstudy.interactive import open_results, plan, run
    from simstudy.joining import concat
    from simstudy.results import to_grid
    from simstudy.transformers.heads import read_heads
    from simstudy.transformers.inspection import inspect_heads

__all__ = [
    "Study", "check", "concat", "contrast", "details", "head_diversity", "inspect_heads",
    "leave_one_out", "nw_ensemble", "open_results", "plan", "principal_angles", "read_heads", "run", "to_grid",
]  # fmt: skip
_HOMES = {
    "Study": "design.builder", "check": "design.load", "concat": "joining", "contrast": "analysis",
    "details": "analysis", "inspect_heads": "transformers.inspection", "leave_one_out": "analysis",
    "open_results": "interactive", "plan": "interactive", "read_heads": "transformers.heads", "run": "interactive",
    "to_grid": "results",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    # Loaded on first use: the command line has to catch signals before imports that take seconds.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES.get(name, 'ensemble')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
