"""Questions that no replicate can answer: claims, figures and target errors of which cells give no right answer.

Among them are those on moments that do not exist.  A measure of order r is made of means of r-th powers of errors of
estimates: it exists if these have a moment of order r, and its Monte Carlo standard error exists if they have one of
order 2r.  An estimate Σ w_i Y_i has bounded weights, so that its tails are those of the noise drawn and of m(X) where
keys have weight:

- Noise drawn from t(ν) has moments below ν.  Integrated out, it enters by its variance, which exists.
- m of degree k under t(ν) keys has moments below ν/k where a far key may have most of the weight: logits q·k, whose
  weights grow along the query; normalised keys, trees, ants.
- Weights that fall with distance let no far key count but in directions that a head does not see.  There a key, given
  that its p seen coordinates are near, is t(ν + p): moments below (ν + p)/k.  In the directions seen all n keys
  must be far together: moments below nν/k.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from simstudy.design.claims import BaseClaim, ViolatedPairs
from simstudy.design.document import Document
from simstudy.design.measures import INDEXED_MEASURES, MEASURES, OCCASIONAL, STATISTICS
from simstudy.design.mistakes import DesignError, Problem, mistake, nearest
from simstudy.design.references import PlannedGrid, Reference, refer
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.levels import by_levels, level
from simstudy.design.settings.mechanisms import LowRankTransformation, MergeTransformation
from simstudy.design.settings.processes import HeteroscedasticNoise, Quadratic, StudentKeys, StudentNoise

_OF_LEARNERS = ("direct_mse", "query_correlation", "discrepancy", *OCCASIONAL)
"""Statistics of replicates that only some ensembles have."""
_GAPS = ("decomposition_gap", "ambiguity_gap", "correlation_gap", "query_correlation_gap", "equivalent_heads")
"""Measures that exist only beside ``direct_mse``."""
_OF_PAIRS = {"correlation", "query_correlation", "mean_covariance", "linear_predictability", *_GAPS} - {"ambiguity_gap"}
"""Measures of two heads or more."""
_NEEDED = {
    "regret": 'it is that of ants: learner = "ant_colony"',
    "discrepancy": "it needs a reference computation; state reference",
    "own_measure": "it is what a function of your own gives; state measure_function",
}
"""Remedy for measures that ensembles lack."""


def require_answerable(document: Document, grids: Mapping[str, PlannedGrid]) -> None:
    """Refuse claims, figures and target errors that name what the grids lack, or that cells cannot answer."""
    for name, grid in grids.items():
        coordinates = [cell.coordinates for cell in grid.cells]
        for first, *others in by_levels(coordinates, grid.factors or (), range(len(coordinates))):
            if others:
                levels = tuple(level(coordinates[first], factor) for factor in grid.factors or ())
                raise mistake(f"grids.{name}.factors", levels, "two cells have these values; remove or relabel one")
    entries = {f"claims.{name}": claim for name, claim in document.claims.items()}
    references = refer(grids, entries | {f"figures.{name}": figure for name, figure in document.figures.items()})
    if problems := [*_unanswerable(document, grids, references)]:
        raise DesignError("", problems)


def _unanswerable(
    document: Document, grids: Mapping[str, PlannedGrid], references: Sequence[Reference]
) -> Iterator[Problem]:
    for each in references:
        if isinstance(each.entry, BaseClaim):
            yield from _compares_batch_sizes(each, each.entry)
            yield from _lacked_by_some(f"{each.path}.measure", each.entry.measure, each.cells)
            if why := lacking(each.cells, order_of(each.entry)):
                yield each.problem("measure", f"does not exist: {why}; use lighter tails or another measure")
        else:
            yield from _lacked_by_all(f"{each.path}.y", each.entry.y, each.cells)
    for kind in ("relative_mcse", "absolute_mcse"):
        own = {name: grid.precision[kind] for name, grid in document.grids.items() if kind in grid.precision}
        for name, measures in own.items():
            for measure in measures:
                yield from _lacked_by_all(f"grids.{name}.precision.{kind}", measure, grids[name].cells)
        # What holds for all grids is right if one of them can have it: under another profile it may not.
        cells = [cell for grid in grids.values() for cell in grid.cells]
        for measure in getattr(document.precision, kind) if len(own) < len(grids) else ():
            yield from _lacked_by_all(f"precision.{kind}", measure, cells)
    new_points = {"gaussian": "queries", "held_out": "held_out"}
    for grid in grids.values():
        if grid.by_query and any(new_points.get(cell.queries.queries.kind) in cell.population for cell in grid.cells):
            why = "query points are a population, new in each batch; remove it"
            yield Problem(f"grids.{grid.name}.by_query", True, why)


def _possible_measures(cell: Cell) -> list[str]:
    """Names of the measures that a cell can have: numbers of its functions, or those of an ensemble."""
    if cell.functions is not None:
        return [*cell.statistics, "failure_rate"]
    without = {*_OF_LEARNERS} - {*cell.statistics}
    without |= set(_GAPS if "direct_mse" in without else ())
    return [name for name in MEASURES | STATISTICS | INDEXED_MEASURES if name not in without]


def _lacked_by_some(path: str, measure: str, cells: Sequence[Cell]) -> Iterator[Problem]:
    possible = [_possible_measures(cell) for cell in cells]
    without = [cell for cell, names in zip(cells, possible, strict=True) if measure not in names]
    if without:
        functions = without[0].functions
        whose = "heads" if functions is None else f"functions: {functions.label}"
        known = [name for name in possible[0] if all(name in names for names in possible)]
        near = nearest(measure, known)
        what = f'did you mean "{near}"?' if near else f"use one of {', '.join(known)}"
        what = _NEEDED.get(measure, what) if functions is None else what
        yield Problem(path, measure, f"does not exist in {len(without)} of {len(cells)} cells ({whose}); {what}")


def _lacked_by_all(path: str, measure: str, cells: Sequence[Cell]) -> Iterator[Problem]:
    having = [cell for cell in cells if measure in _possible_measures(cell)]
    if not having:
        yield from _lacked_by_some(path, measure, cells)
    elif measure in _OF_PAIRS and all(cell.n_members == 1 for cell in having):
        yield Problem(path, measure, f"compares heads, of which each of these {len(having)} cells has one")


def _compares_batch_sizes(reference: Reference, claim: BaseClaim) -> Iterator[Problem]:
    """Cells of one seed share replicates, but blocks of different lengths do not tell how their estimates covary."""
    along = {getattr(claim, "x", None), getattr(claim, "along", None), *getattr(claim, "tune", ())}
    if isinstance(claim, ViolatedPairs):
        along = {*(reference.grid.factors or ())} - {claim.by}
    groups = reference.grid.strata(tuple(along), reference.chosen) if reference.versus is None else reference.compared
    for group in groups:
        simulations = [reference.grid.cells[number].simulation for number in group]
        if len({(each.seed, each.batch_size) for each in simulations}) > len({each.seed for each in simulations}):
            why = "compares cells that share replicates in batches of different sizes, so their covariance is unknown"
            yield reference.problem("measure", f"{why}; use one batch_size")
            return


# ---------------------------------------------------------------- moments that exist

ORDER = {
    "squared_bias": 1, "mean_variance": 2, "mean_covariance": 2, "ensemble_variance": 2, "mse": 2, "correlation": 2,
    "effective_heads": 2, "direct_mse": 2, "decomposition_gap": 2, "correlation_gap": 2, "query_correlation_gap": 2,
    "equivalent_heads": 2, "mean_squared_bias": 1, "ambiguity": 2, "ambiguity_gap": 2, "output": 2, "output_rank": 2,
    "output_determinant": 2, "output_participation": 2, "linear_predictability": 2, "disagreement_outputs": 2,
}  # fmt: skip
"""Order of the measures, and of the diversity indices of outputs; all others are bounded, or numbers of geometry."""
DEGREE = {"linear": 1, "quadratic": 2, "interaction": 2}
"""Degree of regression functions that are not bounded."""


class Tail(NamedTuple):
    """Moments of the estimates of a cell: those of an order below the limit exist."""

    limit: float
    why: str


def tail(cell: Cell) -> Tail:
    """Return the order from which on estimates have no moments, and what makes it so; infinite if they have all."""
    found = [Tail(float("inf"), "")]
    if cell.functions is not None:
        return found[0]
    noise, keys = cell.data.noise, cell.data.key_distribution
    if isinstance(noise, StudentNoise) and cell.simulation.noise_treatment == "drawn" and cell.data.noise_sd > 0.0:
        found.append(Tail(noise.df, f"noise drawn from {noise.label}"))
    # Of m, and of the standard deviation of the noise.
    spread = int(isinstance(noise, HeteroscedasticNoise) and cell.data.noise_sd > 0.0)
    degree = max(spread, *(DEGREE.get(term.kind, 0) for term in cell.data.terms))
    if isinstance(keys, StudentKeys) and degree:
        found.append(Tail(_keys_with_weight(cell, keys.df) / degree, f"a degree of {degree} under keys {keys.label}"))
    return min(found)


def _keys_with_weight(cell: Cell, df: float) -> float:
    """Order from which on a far key that has weight has no moments."""
    estimator, d = cell.estimator, cell.data.n_features
    if (estimator.learner.kind, estimator.logits, estimator.key_scale) != ("nadaraya_watson", "distance", "raw"):
        return df
    transformation = estimator.transformation
    seen = cell.heads.head_dim * (cell.heads.n_heads if estimator.combination.kind == "product" else 1)
    seen = min(seen, d, transformation.rank if isinstance(transformation, LowRankTransformation) else d)
    chunk = transformation.stride if isinstance(transformation, MergeTransformation) else 1
    together = df * -(-cell.data.n_keys // chunk)
    regression = cell.data.regression
    radial = isinstance(regression, Quadratic) and len(regression.coefficients) == 1
    used = len(getattr(regression, "coefficients", ())) or d
    sees_all = cell.heads.arrangement == "aligned" and not radial and used <= cell.heads.head_dim
    return together if seen == d or sees_all else min(df + seen, together)


def order_of(claim: BaseClaim) -> int:
    """Order of what a claim speaks of: of its measure, or of the diversity index that it orders cells by."""
    return max(ORDER.get(str(name), 0) for name in (claim.measure, claim.index, getattr(claim, "against", None)))


def lacking(cells: Sequence[Cell], order: int) -> str:
    """Return the moments that cells lack for means of powers of an order, in words; empty if they lack none."""
    tails = [found for found in map(tail, cells) if found.limit <= order] if order else []
    if not tails:
        return ""
    return (
        f"that takes moments of order {order} of the estimates, and in {len(tails)} of {len(cells)} cells they have "
        f"none of order {tails[0].limit:.4g} and above ({tails[0].why})"
    )
