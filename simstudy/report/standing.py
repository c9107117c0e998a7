"""The claims of a run, each with the numbers of the comparison that stands for it in all runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

_NUMBERS = ("estimate", "mcse", "mcse_given", "claimed_lower", "claimed_upper", "confidence_lower", "confidence_upper")

Standing = Mapping[str, str]
"""By claim, the statistic of the comparison that stands for it."""


def standing_of(results: xr.Dataset) -> dict[str, str]:
    """Return what stands for each claim: the comparison that theory names, or else the one that decides this run."""
    if "claim" not in results:
        return {}
    columns = (results[name].values.tolist() for name in ("claim", "standing_statistic", "statistic"))
    return {claim: named or decisive for claim, named, decisive in zip(*columns, strict=True)}


def claims_of(results: xr.Dataset, standing: Standing | None = None) -> list[dict[str, Any]]:
    """Return the variables of each claim, with the numbers of what stands for it; NaN if the run does not have it."""
    standing = standing_of(results) if standing is None else standing
    # By columns: to take one claim of a data set copies its hundred variables.
    names = [str(name) for name, variable in results.variables.items() if variable.dims == ("claim",)]
    rows = zip(*(results.variables[name].values.tolist() for name in names), strict=True)
    compared: dict[tuple[str, str], dict[str, float]] = {}
    if "claim" in results:
        columns = ("claim", "statistic", "part_of", *_NUMBERS)
        lists = (results.variables[f"comparison_{name}"].values.tolist() for name in columns)
        for of, statistic, part_of, *numbers in zip(*lists, strict=True):
            if not part_of:
                compared.setdefault((of, statistic), dict(zip(_NUMBERS, numbers, strict=True)))
    found = []
    for row in rows:
        claim = dict(zip(names, row, strict=True))
        statistic = standing.get(claim["claim"], claim["statistic"])
        own = compared.get((claim["claim"], statistic), dict.fromkeys(_NUMBERS, np.nan))
        found.append(claim | own | {"statistic": statistic, "decisive": claim["statistic"]})
    return found
