"""Data set of the empirical and theoretical measures of all cells, and a second one of their details."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from simstudy.data.heads import query_points
from simstudy.design import measures
from simstudy.design.answerable import draws_in, selected
from simstudy.design.document import Design, OptimumFigure, OrderingFigure
from simstudy.design.measures import INDICES, MEASURES, OCCASIONAL, SOURCES, STATISTICS, THEORIES, labelled
from simstudy.design.settings.cell import ATTENDED, N_BLOCKS, OF_ALL, TABLE_OF
from simstudy.execution.provenance import provenance
from simstudy.execution.state import CellProgress
from simstudy.replicates.performance import Performance, block_lengths
from simstudy.verdicts.comparisons import Selected
from simstudy.verdicts.estimates import estimates_of
from simstudy.verdicts.optima import optimum_shares
from simstudy.verdicts.orderings import wrong_pairs
from simstudy.verdicts.predictions import Theory, TheoryByCell, predict, values_of

_NUMERIC = {
    "n_keys", "n_features", "noise_sd", "n_heads", "head_dim", "total_dim", "angle", "spread", "head_seed", "bandwidth",
    "batch_size",
}  # fmt: skip
ATTRIBUTES = ("numbers", "study", "profile", "title", "engine", "simstudy_version", "commit", "measures")
"""Attributes that results and details have in common."""


def assemble(
    design: Design,
    progress: Sequence[CellProgress],
    tell: Callable[[int], None] = lambda _: None,
    device: str = "cpu",
    theory_by_cell: TheoryByCell | None = None,
) -> tuple[xr.Dataset, xr.Dataset]:
    """Return all measures of all cells, by simulation and theory, and details; ``tell`` gets the count of cells."""
    theories: list[dict[str, Theory]] = []
    cells = [each.planned.cell for each in progress]
    for theory in predict([each.planned for each in progress], theory_by_cell):
        theories.append(theory)
        tell(len(theories))
    failed = np.array([len(each.failed) for each in progress])
    looks = [[batches * each.batch_size for batches in each.looks] for each in progress]
    arrays: dict[str, Any] = {
        "n_replicates": np.array([each.done * each.batch_size for each in progress]) - failed,
        "error_over": np.array([draws_in([cell]) or "over replicates" for cell in cells], object),
        "n_failed": failed,
        "n_batches": np.array([each.done for each in progress]),
        "precision_reached": np.array([each.reached for each in progress]),
        "n_looks": np.array([len(each.looks) for each in progress]),
        "look_replicates": np.array([*zip_longest(*looks, fillvalue=0)], int).reshape(-1, len(looks)).T,
    }
    if any(each.planned.cell.controlled for each in progress):
        used = [a.performance.estimator if a.planned.cell.controlled and a.performance else "" for a in progress]
        whys = [cell.without_control if cell.simulation.control != "none" else "" for cell in cells]
        described = [name or f"plain: {why}".removesuffix(": ") for name, why in zip(used, whys, strict=True)]
        arrays["control_variate"] = np.array(described, dtype=object)
    reasons = [["" for _ in progress], *([theory[name].reason for theory in theories] for name in THEORIES)]
    arrays["inapplicable"] = np.array(reasons, dtype=object)
    measured = {name for cell in cells for name in cell.statistics}
    always = [name for name in MEASURES | STATISTICS if name not in OCCASIONAL or name in measured]
    found = [each.performance for each in progress]
    for name in dict.fromkeys([*always, *sorted(measured - {ATTENDED})]):
        empirical = [float(p.estimate.get(name, np.nan)) if p else np.nan for p in found]
        arrays[name] = np.array([empirical, *(values_of(theories, source, name) for source in THEORIES)])
        arrays[f"{name}_mcse"] = np.array([float(p.printed(name)) if p and name in p.mcse else np.nan for p in found])
    # Known even if so many replicates failed that there is no Monte Carlo error.
    arrays["failure_rate"][0] = [len(a.failed) / max(a.done * a.batch_size, 1) for a in progress]
    for name in MEASURES:
        arrays[f"{name}_numerical_error"] = np.array([theory["exact"].errors.get(name, np.nan) for theory in theories])
    undefined = np.full(len(INDICES), np.nan)
    arrays["hdi"] = np.array([p.estimate["hdi"] if p else undefined for p in found])
    arrays["hdi_mcse"] = np.array([p.printed("hdi") if p else undefined for p in found])
    coords: dict[str, Any] = coordinates(design)
    # Every dimension is labelled, so that results of several studies can be joined.
    coords |= {"source": list(SOURCES), "index": list(INDICES), "look": np.arange(arrays["look_replicates"].shape[1])}
    figures = {name: each for name, each in design.figures.items() if isinstance(each, OptimumFigure | OrderingFigure)}
    if figures:
        coords["figure"] = list(figures)
    for position, figure in enumerate(figures.values()):
        inside = [i for i, each in enumerate(progress) if each.planned.grid == figure.grid]
        of_grid = [progress[i] for i in inside]
        estimates = estimates_of(of_grid, figure.y)
        chosen = [i for i, row in enumerate(estimates.conditions) if selected(row, figure.where)]
        of = Selected(estimates, chosen, design.factors[figure.grid])
        if isinstance(figure, OptimumFigure):
            numbers = [optimum_shares(of, (figure.over, *figure.tune))]
        else:
            levels = [name for name in (figure.hue, figure.panel) if name]
            numbers = [*wrong_pairs(of, [estimates_of(of_grid, "hdi", index) for index in INDICES], levels)]
        for name, values in zip(figure.stored, numbers, strict=True):
            whole = np.full((len(figures), len(progress), *values.shape[1:]), np.nan)
            arrays.setdefault(name, whole)[position, inside] = values
    source = provenance(device, [planned.cell for planned in design.cells])
    known = measures.measures_of_functions((planned.cell for planned in design.cells), design.measures)
    attributes = {
        "seed": ", ".join(map(str, sorted({planned.cell.simulation.seed for planned in design.cells}))),
        "confirmation_text": design.confirmation.text if design.confirmation else "",
        "confirmation_digest": design.confirmation.digest if design.confirmation else "",
        "title": design.study.title,
        "study": design.study.name,
        "profile": design.profile,
        "aim": design.study.aim,
        "design": design.text,
        "design_hash": hashlib.sha256(design.text.encode()).hexdigest(),
        "claims_hash": hashlib.sha256(repr(design.claims).encode()).hexdigest(),
        "engine": source["engine"],
        "simstudy_version": source["simstudy"],
        "commit": source["commit"],
        "libraries": ", ".join(f"{name} {version}" for name, version in source["libraries"].items()),
        "data": ", ".join(f"{path} {digest}" for digest, path in source["data"].items()) or "generated",
        "factors": "; ".join(f"{grid}: {', '.join(names)}" for grid, names in design.factors.items()),
        "measures": json.dumps({name: [each.unit, each.meaning, each.formula] for name, each in known.items()}),
        "missing_values": "NaN where a measure is undefined or a formula does not apply; see `inapplicable`",
        # Identifies the results to which details belong.
        "numbers": hashlib.blake2b(arrays["failure_rate"].tobytes() + arrays["mse"].tobytes()).hexdigest()[:16],
    }
    return labelled(arrays, coords, attributes), details(progress, coordinates(design), attributes)


def coordinates(design: Design) -> dict[str, Any]:
    """Return every setting, and the grid of each cell, as coordinates along ``cell``."""
    labels = [planned.cell.coordinates for planned in design.cells]
    coords: dict[str, Any] = {"grid": ("cell", [planned.grid for planned in design.cells])}
    factors = {name for names in design.factors.values() for name in names}
    of_heads = any(planned.cell.functions is None for planned in design.cells)
    used = (*TABLE_OF, "bandwidth_rule") if of_heads else OF_ALL
    # A parameter of functions may have the name of a setting that has no effect in any cell.
    parameters = sorted(factors - {*used})
    for name in (*used, *parameters):
        column = [row.get(name, "") for row in labels]
        if name in _NUMERIC or (name in parameters and not any(isinstance(value, str) and value for value in column)):
            column = [np.nan if value == "" else value for value in column]
        elif name != "seed":
            column = [str(value) for value in column]
        coords[name] = ("cell", column)
    return coords


def details(
    progress: Sequence[CellProgress], coordinates: Mapping[str, Any], attributes: Mapping[str, Any]
) -> xr.Dataset:
    """Return the details of all cells, with the dimensions that the catalogue of variables gives."""
    measured = [each.performance for each in progress]
    asked = [(each.planned.cell, p) for each in progress if each.planned.by_query and (p := each.performance)]
    n_members = [len(p.estimate["head_squared_bias"]) if p else 0 for p in measured]
    arrays: dict[str, Any] = {
        "n_blocks": [len(p.contribution["failure_rate"]) if p else 0 for p in measured],
        "n_used_blocks": [p.n_blocks if p else 0 for p in measured],
        "n_members": n_members,
        "n_pairs": np.square(n_members),
        "n_queries": [a.planned.cell.n_queries if a.planned.by_query and a.performance else 0 for a in progress],
    }
    contributions = [p.contribution for p in measured if p]
    for name in dict.fromkeys(name for given in contributions for name in given):
        columns = (len(INDICES),) if name in measures.INDEXED_MEASURES else ()
        rows = [given.get(name, np.full((len(given["failure_rate"]), *columns), np.nan)) for given in contributions]
        arrays[f"{name}_contribution"] = np.concatenate(rows)
    for name in sorted({name for p in measured if p for name in p.remainder}):
        arrays[f"{name}_remainder"] = [p.remainder.get(name, 0.0) if p else 0.0 for p in measured]
    for name, part in {name: part for p in measured if p for name, part in p.randomisation.items()}.items():
        arrays[f"{name}_randomisation"] = [p.randomisation.get(name, 0 * part) if p else 0 * part for p in measured]
    for name in measures.HEAD_MEASURES | measures.PAIR_MEASURES:
        arrays[name] = np.concatenate([np.zeros(0), *(p.estimate[name].ravel() for p in measured if p)])
        arrays[f"{name}_mcse"] = np.concatenate([np.zeros(0), *(p.printed(name).ravel() for p in measured if p)])
    if asked:
        for name in (f"{measure}_by_query" for measure in MEASURES):
            arrays[name] = np.concatenate([p.estimate[name] for _, p in asked])
            arrays[f"{name}_mcse"] = np.concatenate([p.printed(name) for _, p in asked])
        points = (pd.DataFrame(query_points(cell)[: cell.n_queries], dtype=float) for cell, _ in asked)
        arrays["query_point"] = pd.concat(points).to_numpy()  # NaN beyond the features of a cell
    made = labelled(arrays, {**coordinates, "index": list(INDICES)}, {name: attributes[name] for name in ATTRIBUTES})
    for dimension, count in measures.LENGTHS.items():
        made[count].attrs["sample_dimension"] = dimension
    return made


def measured_in(results: xr.Dataset, details: xr.Dataset, measure: str) -> Performance:
    """Return the performance of one cell for one measure, as verdicts use it, from its results and details."""
    drawn = str(results.error_over.item()).startswith("over a population")  # not for queries at the origin
    of_all = details.get(f"{measure}_randomisation")
    counts = int(details.n_used_blocks), int(results.n_replicates), int(results.n_failed)
    return Performance(
        {measure: results[measure].sel(source="empirical").values},
        {measure: results[f"{measure}_mcse"].values},
        {measure: details[f"{measure}_contribution"].values},
        {measure: float(details.get(f"{measure}_remainder", 0.0))},
        *counts,
        by_batch=drawn,
        block_length=N_BLOCKS if drawn else int(block_lengths(int(results.n_batches))[0]),
        randomisation={} if of_all is None else {measure: of_all.values},
    )
