"""Whether stored results are laid out as this version of the program lays them out.

Imports xarray, claims, labels, problems, quantities, settings, text and variables only.

Readers take a variable by its name.  What an earlier or later version has written may lack it, or hold it under another
name or with other dimensions; then no number would be trusted to mean what its name says here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import xarray as xr

from simstudy.claims import Verdict
from simstudy.labels import factors_of
from simstudy.problems import UserError
from simstudy.quantities import QUANTITIES
from simstudy.settings import TABLE_OF
from simstudy.text import printable
from simstudy.variables import ATTRIBUTES, INDICES, SOURCES, VARIABLES

_KINDS = {"text": "OTU", "bool": "b"}
"""Kinds of NumPy types, by unit; of what is neither text nor truth, whole numbers if they count, or else any."""
MAX_NAMED = 4
"""Differences that the message names; one renamed dimension may make a hundred."""


def require_layout(results: xr.Dataset, path: Path) -> None:
    """Refuse results that another version has laid out in another way.

    Raises
    ------
    UserError
        If variables, coordinates or attributes are not those that a run writes, or if these are not results at all.
    """
    try:
        found = [*_of_variables(results), *_of_coordinates(results)] or [*_of_values(results)]
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    found += [f"no attribute {name}" for name in ATTRIBUTES if name not in results.attrs]
    found += [f"attribute {name} is no text" for name, text in results.attrs.items() if not isinstance(text, str)]
    if found:
        more = f" and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
        version, commit = (results.attrs.get(name) or "unknown" for name in ("simstudy_version", "commit"))
        message = f"{path}: laid out by another version of simstudy ({version}, commit {commit})"
        raise UserError(printable(f"{message}: {', '.join(found[:MAX_NAMED])}{more}; run the study again"))


def _of_variables(results: xr.Dataset) -> list[str]:
    """How the variables differ from the registered ones."""
    present = {str(name) for name in results.data_vars}
    always = VARIABLES.keys() - set().union(*_OCCASIONAL)
    wanted = always.union(*(group for group in _OCCASIONAL if group & present))
    return [
        *(f"no {name}" for name in VARIABLES if name in wanted - present),
        *(f"unknown {name}" for name in sorted(present - VARIABLES.keys())),
        *(f"{name} along ({', '.join(map(str, results[name].dims))}) instead of ({', '.join(VARIABLES[name].dims)})"
          for name in VARIABLES if name in present and results[name].dims != VARIABLES[name].dims),
    ]  # fmt: skip


def _of_coordinates(results: xr.Dataset) -> list[str]:
    """How the coordinates differ: settings along ``cell``, and the names along every other dimension that has them."""
    factors = [factor for names in factors_of(results).values() for factor in names]
    settings = dict.fromkeys(["grid", "bandwidth_rule", *TABLE_OF, *factors])
    used = {dimension for variable in results.data_vars.values() for dimension in variable.dims}
    return [
        *(f"no {name} along cell" for name in settings
          if name not in results.coords or results[name].dims != ("cell",)),
        *(f"other names along {name}" for name, names in (("source", SOURCES), ("index", INDICES))
          if name not in results.coords or results[name].values.tolist() != list(names)),
        *(f"nothing along {name}" for name in results.indexes if name not in used),
    ]  # fmt: skip


def _of_values(results: xr.Dataset) -> Iterator[str]:
    """Which variables hold other values than the registered kind: text, truth, counts, or real numbers."""
    for name, values in results.data_vars.items():
        described = VARIABLES[str(name)]
        kinds = _KINDS.get(described.unit, "iu" if str(name).startswith("n_") else "iuf")
        if values.dtype.kind not in kinds:
            yield f"{name} of type {values.dtype}"
    for name in ("grid", "bandwidth_rule", "claim", "figure"):
        if name in results.coords and results[name].dtype.kind not in _KINDS["text"]:
            yield f"{name} of type {results[name].dtype}"
    for name in ("verdict", "expected_verdict"):
        if unknown := set(results.get(name, xr.DataArray([])).values.tolist()) - set(get_args(Verdict)):
            yield f"{name} {min(map(repr, unknown))}"


def _along(dimension: str) -> frozenset[str]:
    return frozenset(name for name, variable in VARIABLES.items() if dimension in variable.dims)


_OCCASIONAL: tuple[frozenset[str], ...] = (
    _along("query"),
    _along("claim"),
    frozenset({"optimum_share"}),
    frozenset({"wrong_pair_share", "wrong_pair_share_mcse"}),
    *(frozenset(names) | {f"{name}_mcse" for name in names} for names in QUANTITIES.values()),
)
"""Variables that only some designs ask for: results have all of a set, or none."""
