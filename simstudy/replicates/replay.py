"""One replicate of a cell, computed again to the bit from its number, with all intermediate arrays."""

from typing import Any

import numpy as np
import xarray as xr

from simstudy.attention import members_of
from simstudy.attention.functions import results_of
from simstudy.data.geometry import GEOMETRIC_INDICES
from simstudy.data.heads import query_points
from simstudy.data.regression import at_queries
from simstudy.data.shared import SharedData, projections_of
from simstudy.data.span import root_of, span_of
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.functions import as_array
from simstudy.replicates.batch import NUMERICAL_FAILURES

# name: dimensions, meaning
_ARRAYS: dict[str, tuple[tuple[str, ...], str]] = {
    "keys": (("feature", "key"), "keys X"),
    "values": (("key",), "values: m(X), or Y = m(X) + noise if noise is drawn"),
    "noise": (("key",), "noise of unit variance; it enters the values if noise is drawn"),
    "noise_variance": (("key",), "Var(noise | X), in squared units of Y"),
    "query_points": (("query", "feature"), "query points x_q"),
    "target": (("query",), "m(x_q)"),
    "key_projections": (("head", "feature", "dimension"), "projections W_h of the keys"),
    "query_projections": (("head", "feature", "dimension"), "projections of the query points"),
    "head_estimate": (("query", "head"), "head estimates; their means given the keys if noise is integrated out"),
    "gram": (("query", "head_i", "head_j"), "covariance of the head estimates given the keys: sum_n w_in w_jn Var"),
    "control": (("query", "head"), "control variate that is subtracted from the errors of heads"),
    "control_product": (("query", "pair"), "control variate of products of errors, pairs h <= g by rows"),
    "ensemble_estimate": (("query",), "estimate with fitted weights, or of the product of kernels"),
    "ensemble_variance": (("query",), "variance of the ensemble estimate given the keys"),
    "number": (("quantity",), "numbers that functions return for the replicate"),
    "diversity": (("index",), "diversity indices from the geometry of the projections"),
}
_ESTIMATES = ("head_estimate", "gram", "ensemble_estimate", "ensemble_variance", "control", "control_product")


def replay(cell: Cell, replicate: int) -> xr.Dataset:
    """Return one replicate of a cell, computed again to the bit; attribute ``failure`` says why it has no estimate."""
    cell = cell.in_batch(replicate // cell.simulation.batch_size)
    shared, arrays = SharedData(cell, replicate, 1), dict[str, Any]()
    if cell.functions is None:
        # Heads that are redrawn in each replicate have a further axis.
        drawn = (each[0] if each.ndim > 3 else each for each in projections_of(cell, replicate))
        n, d, span = cell.data.n_keys, cell.data.n_features, span_of(cell)
        if span is None or not span.directions.size:
            keys = shared.keys(n)[0]
        else:  # the cell draws only coordinates: some keys that have these
            basis, factor = np.linalg.qr(span.directions, mode="complete")
            basis[:, : factor.shape[1]] *= np.where(np.diagonal(factor) < 0.0, -1.0, 1.0)
            keys = basis @ shared.keys(n, d)[0]
            keys = keys if (root := root_of(cell.data.key_distribution, d)) is None else root @ keys
        arrays = {
            "keys": keys,
            "values": shared.values(cell)[0],
            "noise": shared.noise(cell)[0],
            "noise_variance": shared.variances(cell)[0],
            "query_points": query_points(cell),
            **dict(zip(("key_projections", "query_projections"), drawn, strict=True)),
            "target": at_queries(cell),
        }
    ((results, why),) = results_of(cell, replicate)
    try:
        members = members_of(cell, shared)
        combined, gram = cell.n_members < cell.heads.n_heads, members.gram
        if not cell.n_queries:
            arrays["number"] = np.array([each[0] for each in members.statistics.values()])
        else:
            arrays |= {"diversity": members.indices[0]}
            arrays |= {"ensemble_estimate": members.means[0, :, 0]} if combined else {"head_estimate": members.means[0]}
        if gram is not None:
            arrays |= {"ensemble_variance": gram[0, :, 0, 0]} if combined else {"gram": gram[0]}
        if members.control is not None:
            split = np.split(members.control[0], [members.means.shape[2]], axis=1)
            arrays |= dict(zip(("control", "control_product"), split, strict=True))
        estimates = [arrays[name] for name in _ESTIMATES if name in arrays]
        defined = all(np.isfinite(values).all() for values in estimates) and not np.any(members.failed or False)
        failure = "" if defined else why or "an estimate is not finite"
    except NUMERICAL_FAILURES as error:
        failure = f"{type(error).__name__}: {error}"
    variables: dict[str, Any] = {n: (*_ARRAYS[n][:1], arrays[n], {"long_name": _ARRAYS[n][1]}) for n in arrays}
    for name, values in results.items():
        if (array := as_array(values)).dtype.kind in "fiub":
            axes = [f"{name}_{axis}" for axis in range(array.ndim)]
            variables[name] = axes, array, {"long_name": "as the functions return it"}
    coordinates = {"index": list(GEOMETRIC_INDICES)} if "diversity" in arrays else {}
    coordinates |= {"quantity": list(cell.statistics)} if "number" in arrays else {}
    settings = {name: str(value) for name, value in cell.coordinates.items()}
    return xr.Dataset(variables, coordinates, {"replicate": replicate, "failure": failure, **settings})
