"""One replicate of one cell, rebuilt to the bit from its number alone, with every array on the way to its estimates."""

import contextlib
import re
from typing import Any

import numpy as np
import xarray as xr

from simstudy.attention import Members, members_of
from simstudy.attention.functions import results_of
from simstudy.data.geometry import GEOMETRIC_INDICES
from simstudy.data.heads import query_points
from simstudy.data.regression import at_queries
from simstudy.data.shared import SharedData, projections_of
from simstudy.data.span import root_of, span_of
from simstudy.design.document import Design
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.functions import as_array
from simstudy.design.settings.levels import level
from simstudy.errors import UserError
from simstudy.replicates.batch import NUMERICAL_FAILURES

INTERVAL = ("lower", "upper", "truth")
# name: dimensions, meaning
_ARRAYS: dict[str, tuple[tuple[str, ...], str]] = {
    "keys": (("feature", "key"), "keys X"),
    "values": (("key",), "what is averaged: m(X), or Y = m(X) + noise if noise is drawn"),
    "noise": (("key",), "noise of unit variance; it enters the values if noise is drawn"),
    "noise_variance": (("key",), "Var(noise | X), in squared units of Y"),
    "query_points": (("query", "feature"), "query points x_q"),
    "target": (("query",), "m(x_q)"),
    "key_projections": (("head", "feature", "dimension"), "projections W_h of the keys"),
    "query_projections": (("head", "feature", "dimension"), "projections of the query points"),
    "head_estimate": (("query", "head"), "head estimates; their means given the keys if noise is integrated out"),
    "gram": (("query", "head_i", "head_j"), "covariance of the head estimates given the keys: sum_n w_in w_jn Var"),
    "control": (("query", "head"), "control variate that is taken off the errors of heads"),
    "control_product": (("query", "pair"), "what is taken off products of errors, pairs h <= g by rows"),
    "ensemble_estimate": (("query",), "estimate with fitted weights, or of the product of kernels"),
    "ensemble_variance": (("query",), "variance of the ensemble estimate given the keys"),
    "number": (("quantity",), "numbers that functions give of the replicate"),
    "diversity": (("index",), "diversity indices from the geometry of the projections"),
}

_CONTROL = ("control", "control_product")
_ESTIMATES = ("head_estimate", "gram", "ensemble_estimate", "ensemble_variance", *_CONTROL)


def replay(cell: Cell, replicate: int) -> xr.Dataset:
    """Rebuild one replicate of a cell to the bit; the attribute ``failure`` says why it has no estimate."""
    if replicate < 0:
        raise UserError(f"replicate = {replicate}: must be at least 0")
    cell = cell.in_batch(replicate // cell.simulation.batch_size)
    shared = SharedData(cell, replicate, 1)
    arrays: dict[str, Any] = {}
    if cell.functions is None:
        # Heads that are drawn anew for each replicate have one axis more.
        drawn = (each[0] if each.ndim > 3 else each for each in projections_of(cell, replicate))
        arrays = {
            "keys": _keys_of(cell, shared),
            "values": shared.values(cell)[0],
            "noise": shared.noise(cell)[0],
            "noise_variance": shared.variances(cell)[0],
            "query_points": query_points(cell),
            **dict(zip(("key_projections", "query_projections"), drawn, strict=True)),
            "target": at_queries(cell),
        }
    ((own, why),) = results_of(cell, replicate)
    try:
        members = members_of(cell, shared)
        arrays |= _estimates(members, cell.n_members < cell.heads.n_heads)
        estimates = [arrays[name] for name in _ESTIMATES if name in arrays]
        defined = all(np.isfinite(values).all() for values in estimates) and not np.any(members.failed or False)
        failure = "" if defined else why or "an estimate is not finite"
    except NUMERICAL_FAILURES as error:
        failure = f"{type(error).__name__}: {error}"
    return _labelled(cell, replicate, arrays, failure).assign({
        name: ([f"{name}_{axis}" for axis in range(values.ndim)], values, {"long_name": "as the functions return it"})
        for name, values in ((name, as_array(values)) for name, values in own.items())
        if values.dtype.kind in "fiub"
    })  # fmt: skip


def _keys_of(cell: Cell, shared: SharedData) -> np.ndarray:
    """Keys of the only replicate, (feature, key): of a cell that draws coordinates alone, some keys that have these."""
    n, d = cell.data.n_keys, cell.data.n_features
    if (span := span_of(cell)) is None or not span.basis.size:
        return shared.keys(n)[0]
    rest = np.linalg.qr(span.basis, mode="complete")[0][:, span.basis.shape[1] :]
    keys = np.concatenate([span.basis, rest], axis=1) @ shared.keys(n, d)[0]
    root = root_of(cell.data.key_distribution, d)
    return keys if root is None else root @ keys


def intervals_of(cell: Cell, replicates: int) -> np.ndarray:
    """Return `INTERVAL` of the first replicates of a simulation, (replicate, 3); NaN where functions give none."""
    parameters = getattr(cell.functions, "parameters", {})
    found = [parameters | results for results, _ in results_of(cell, 0, replicates)]
    rows = [[results.get(name, np.nan) for name in INTERVAL] for results in found]
    return np.array(rows, float).reshape(-1, len(INTERVAL))


def _estimates(members: Members, combined: bool) -> dict[str, Any]:
    """Arrays of the only replicate; ``combined``: the replicate itself makes one estimate of all heads."""
    if not members.means.shape[1]:
        return {"number": np.array([members.statistics[name][0] for name in members.statistics])}
    indices, gram = {"diversity": members.indices[0]}, members.gram
    if combined:
        variance = {} if gram is None else {"ensemble_variance": gram[0, :, 0, 0]}
        return indices | {"ensemble_estimate": members.means[0, :, 0]} | variance
    n_heads, control = members.means.shape[2], {}
    if members.control is not None:
        control = dict(zip(_CONTROL, np.split(members.control[0], [n_heads], axis=1), strict=True))
    return indices | {"head_estimate": members.means[0]} | ({} if gram is None else {"gram": gram[0]}) | control


def _labelled(cell: Cell, replicate: int, arrays: dict[str, Any], failure: str) -> xr.Dataset:
    variables = {name: (*_ARRAYS[name][:1], arrays[name], {"long_name": _ARRAYS[name][1]}) for name in arrays}
    settings = {name: str(value) for name, value in cell.coordinates.items()}
    coordinates = {"index": list(GEOMETRIC_INDICES)} if "diversity" in arrays else {}
    if "number" in arrays:
        coordinates = {"quantity": list(cell.statistics)}
    return xr.Dataset(variables, coordinates, {"replicate": replicate, "failure": failure, **settings})


def select(design: Design, selection: str) -> int:
    """Return the number of the only cell that a text selects, "3" or "angle=45, bandwidth=0.5"; else a UserError."""
    rows = [planned.cell.coordinates | {"grid": planned.grid} for planned in design.cells]
    if re.fullmatch(r"\s*[0-9]{1,9}\s*", selection):
        if (number := int(selection)) >= len(rows):
            raise UserError(f"cell = {number}: the design has cells 0 to {len(rows) - 1}")
        return number
    known = dict.fromkeys(name for row in rows for name in row)
    wanted: dict[str, str] = {}
    for part in re.split(r",(?![^(\[{]*[)\]}])", selection):
        name, equals, value = (each.strip() for each in part.partition("="))
        if not equals:
            raise UserError(f"cell: {part.strip()!r} is neither a number nor name=value")
        if name not in known:
            raise UserError(f"cell: {name!r} is no setting; known: {', '.join(known)}")
        if name in wanted:
            raise UserError(f"cell = {selection!r}: {name} stands more than once; state one level of it")
        wanted[name] = value
    fits = [number for number, row in enumerate(rows) if all(_fits(row, *pair) for pair in wanted.items())]
    if len(fits) == 1:
        return fits[0]
    if fits:
        shown = ", ".join(map(str, fits))
        raise UserError(f"cell = {selection!r}: {len(fits)} cells fit ({shown}); state more, or one of these numbers")
    unknown = [name for name, value in wanted.items() if not any(_fits(row, name, value) for row in rows)]
    levels = (
        f"{name} is {' or '.join(dict.fromkeys(str(level(row, name)) or 'left out' for row in rows))}; "
        for name in unknown
    )
    raise UserError(f"cell = {selection!r}: no cell fits; {''.join(levels)}simstudy status lists the cells")


def _fits(row: dict[str, Any], name: str, value: str) -> bool:
    """Whether a cell has a level, as it is written, or as another way to write the number."""
    levels = row.get(name, ""), level(row, name)
    with contextlib.suppress(ValueError):
        if float(value) in levels:
            return True
    return value in map(str, levels)
