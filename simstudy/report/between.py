"""Theory between the levels of a figure, kept beside its picture: computed once for each design and each theory."""

from __future__ import annotations

import hashlib

import xarray as xr

from simstudy.design.document import Design
from simstudy.design.figures import BaseFigure, CurveFigure
from simstudy.errors import UserError
from simstudy.execution.seal import judging_code
from simstudy.execution.store import Store
from simstudy.report.figures import chosen
from simstudy.verdicts.curves import theory_between

_KEY = "computed_by"
"""Attribute that tells what computed the numbers: those of another design or another theory do not serve."""


def between_of(
    figure: BaseFigure, name: str, results: xr.Dataset, design: Design, store: Store
) -> xr.Dataset | None:  # fmt: skip
    """Return theory between the levels of a curve, as stored in ``figures/`` or computed and stored there.

    None of other figures.
    """
    if not isinstance(figure, CurveFigure):
        return None
    asked = f"{judging_code(design)} {results.attrs['design_hash']} {design.profile} {figure!r}"
    key = hashlib.blake2b(asked.encode(), digest_size=16).hexdigest()
    file = f"figures/{name}.theory.nc"
    try:
        stored = store.read_dataset(file)
        if stored.attrs.get(_KEY) == key:
            return stored
    except UserError:  # there is none that can be read
        pass
    found = theory_between(design, figure, chosen(figure, results)).assign_attrs({_KEY: key})
    if found.sizes["cell"]:
        store.write_dataset(file, found)
    return found
