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
    compared = _comparisons(results) if "claim" in results else {}
    found = []
    for row in rows:
        claim = dict(zip(names, row, strict=True))
        statistic = standing.get(claim["claim"], claim["statistic"])
        numbers = compared.get((claim["claim"], statistic), dict.fromkeys(_NUMBERS, np.nan))
        found.append(claim | numbers | {"statistic": statistic, "decisive": claim["statistic"]})
    return found


def _comparisons(results: xr.Dataset) -> dict[tuple[str, str], dict[str, float]]:
    """Numbers of each comparison that is no part of another, by claim and statistic: the first of one name."""
    names = ("claim", "statistic", "part_of", *_NUMBERS)
    columns = (results.variables[f"comparison_{name}"].values.tolist() for name in names)
    found: dict[tuple[str, str], dict[str, float]] = {}
    for claim, statistic, part_of, *numbers in zip(*columns, strict=True):
        if not part_of:
            found.setdefault((claim, statistic), dict(zip(_NUMBERS, numbers, strict=True)))
    return found
