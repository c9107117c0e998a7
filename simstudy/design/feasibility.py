"""Which cells are impossible, and why: rules that tie several settings together."""

from collections.abc import Iterator

import numpy as np

from simstudy.design.measures import RESERVED
from simstudy.design.settings.cell import N_BLOCKS, Cell
from simstudy.design.settings.mechanisms import RandomValueProjections
from simstudy.design.settings.processes import FileKeys, FileRegression, FittedRegression, Regression, ResidualNoise
from simstudy.design.settings.records import LARGEST, SMALLEST, Impossibility
from simstudy.design.settings.tables import Heads

MAX_ARRAY_BYTES = 8 << 30
"""Largest array that one replicate may need: beyond it, no worker of usual size finishes a batch."""


def features_needed(heads: Heads) -> int:
    """Return the smallest d: p directions for the first head, and for each other one more for each nonzero angle."""
    turned = {
        "orthogonal": heads.head_dim,
        "rotated": heads.head_dim if heads.angle else 0,
        "principal_angles": sum(angle > 0 for angle in heads.principal_angles or ()),
    }
    return heads.head_dim + (heads.n_heads - 1) * turned.get(heads.arrangement, 0)


def batches_of(replicates: int, batch_size: int) -> int:
    """Return the number of batches that hold so many replicates."""
    return -(-replicates // batch_size)


def impossibilities(cell: Cell) -> list[Impossibility]:
    """Return every rule that the settings of a cell break together."""
    of_ensemble = (_heads, _estimator, _learner, _mechanism, _needs)
    rules = (_data, _own_data, *(of_ensemble if cell.functions is None else (_functions,)), _sizes)
    return [broken for rule in rules for broken in rule(cell)]


def _data(cell: Cell) -> Iterator[Impossibility]:
    d, keys, queries = cell.data.n_features, cell.data.key_distribution, cell.queries.queries
    if keys.kind == "mixture" and keys.n_components > d:
        yield "key_distribution", f"n_components = {keys.n_components} needs as many features; n_features is {d}"
    if queries.kind == "points" and max(map(len, queries.points)) > d:
        yield "queries", f"a query point has more coordinates than n_features = {d}; shorten it"
    for term in cell.data.terms:
        needed = _coordinates_used(term)
        if needed > d:
            yield "regression", f"{term.kind} uses coordinate {needed}; n_features is {d}"
        if term.kind == "ridge" and not any(term.direction):
            yield "regression", "the direction of a ridge function must not be zero"
        if term.kind == "interaction" and term.coordinates[0] == term.coordinates[1]:
            yield "regression", "the coordinates of an interaction must differ; a square is a quadratic function"


def _own_data(cell: Cell) -> Iterator[Impossibility]:
    keys, data, queries = cell.data.key_distribution, cell.data, cell.queries.queries
    by_rows = isinstance(data.regression, FileRegression | FittedRegression)
    if isinstance(data.noise, ResidualNoise) and not isinstance(data.regression, FittedRegression):
        yield "noise", 'residuals are those of a fit; use regression = "fitted"'
    if by_rows and queries.kind != "held_out":
        yield "queries", f'regression = "{data.regression.kind}" is known at rows only; use kind = "held_out"'
    if not isinstance(keys, FileKeys):
        if by_rows or queries.kind == "held_out":
            setting = "regression" if by_rows else "queries"
            yield setting, 'speaks of rows of data; use key_distribution = { kind = "file", path = "FILE" }'
        return
    rows = cell.file_rows
    expected = 0 if "held_out" in cell.population else keys.held_out
    if rows is None or rows.n_held_out != expected or (by_rows and np.isnan(rows.table[:, -2]).any()):
        yield "key_distribution", "its rows have not been read; load the design"
        return
    if queries.kind == "held_out" and queries.count > keys.held_out:
        yield "queries", f"count = {queries.count} exceeds held_out = {keys.held_out}; lower count or raise held_out"
    if data.n_features != rows.keys.shape[1]:
        remedy = "state their number, or other columns"
        yield "n_features", f"the data have {rows.keys.shape[1]} columns of features; {remedy}"
    combination = cell.estimator.combination
    needed = data.n_keys + (combination.n_validation if combination.kind == "fitted" else 0)
    kept = len(rows.table) - keys.held_out
    if keys.sampling == "without" and needed > kept:
        yield "n_keys", f"{needed} pairs without replacement, but the data have {kept} rows; use fewer"


def _coordinates_used(term: Regression) -> int:
    if term.kind in ("linear", "quadratic"):
        return len(term.coefficients)
    if term.kind == "ridge":
        return len(term.direction)
    if term.kind == "additive":
        return term.n_active or 0
    return max(term.coordinates) if term.kind == "interaction" else 0


def _heads(cell: Cell) -> Iterator[Impossibility]:
    heads, d = cell.heads, cell.data.n_features
    if heads.head_dim > d:
        yield "head_dim", f"exceeds n_features = {d}; lower head_dim or raise n_features"
    elif (needed := features_needed(heads)) > d:
        them = f'{heads.n_heads} "{heads.arrangement}" heads of head_dim {heads.head_dim}'
        remedy = f"n_features is {d}: raise it, or use fewer or smaller heads"
        yield "n_heads", f"{them} take up {needed} features; {remedy}"
    if heads.total_dim is not None and heads.total_dim != heads.n_heads * heads.head_dim:
        bought = f"{heads.n_heads}·{heads.head_dim}"
        remedy = f"must be n_heads·head_dim = {bought}; state a multiple, and one of the two alone"
        yield "total_dim", remedy
    needs = {
        "angle": ("arrangement", "rotated"),
        "principal_angles": ("arrangement", "principal_angles"),
        "spread": ("arrangement", "scattered"),
        "file": ("arrangement", "file"),
        "heads_function": ("arrangement", "own"),
        "query_file": ("query_projections", "file"),
    }
    for setting, (where, alternative) in needs.items():
        stated, wanted = getattr(heads, setting) is not None, getattr(heads, where) == alternative
        if stated != wanted:
            yield setting, f'{"state" if wanted else "remove"} {setting} for {where} = "{getattr(heads, where)}"'
    # A head that spans no p-space has no angles.
    ranks = np.linalg.matrix_rank(np.array(cell.file_projections)) if cell.file_projections else np.array([])
    if (ranks < heads.head_dim).any():
        yield "file", f"head {np.argmin(ranks)} has rank {ranks.min()}; give head_dim = {heads.head_dim}"
    if heads.principal_angles is not None and len(heads.principal_angles) != heads.head_dim:
        yield "principal_angles", f"state head_dim = {heads.head_dim} angles, not {len(heads.principal_angles)}"


def _estimator(cell: Cell) -> Iterator[Impossibility]:
    combination, n_heads = cell.estimator.combination, cell.heads.n_heads
    if combination.kind == "given" and len(combination.weights) != n_heads:
        yield "combination", f"{len(combination.weights)} weights for n_heads = {n_heads}; state one for each head"
    factors, learner = cell.estimator.head_bandwidths, cell.estimator.learner.kind
    if factors is not None and len(factors) != n_heads:
        yield "head_bandwidths", f"{len(factors)} factors for n_heads = {n_heads}; state one for each head"
    if factors is not None and (learner, cell.estimator.key_scale) != ("nadaraya_watson", "raw"):
        yield "head_bandwidths", 'needs learner = "nadaraya_watson" and key_scale = "raw"; remove it'
    if combination.kind == "fitted" and cell.simulation.noise_treatment != "drawn":
        yield "noise_treatment", 'must be "drawn" where weights are fitted in each replicate'
    if cell.estimator.reference != "none" and cell.weights is None:
        yield "reference", "needs fixed weights of heads; choose another combination or none"
    noise = cell.data.noise
    if combination.kind == "optimal" and "heads" in cell.population:
        yield "population", 'weights are optimal for given heads; leave out "heads", or use the rule "fitted"'
    if "rows" in cell.population and isinstance(noise, ResidualNoise) and not noise.paired:
        yield "population", 'residuals apart from their rows are those of all rows; leave out "rows", or pair them'
    drawn = cell.simulation.noise_treatment == "drawn" or cell.data.noise_sd == 0.0
    if cell.estimator.measure_function is not None and not drawn:
        yield "measure_function", 'takes estimates with their noise; use noise_treatment = "drawn"'


def _learner(cell: Cell) -> Iterator[Impossibility]:
    learner, estimator = cell.estimator.learner, cell.estimator
    if learner.kind == "nadaraya_watson":
        return
    if cell.simulation.noise_treatment != "drawn":
        yield "noise_treatment", f'must be "drawn" for learner = "{learner.kind}", whose members see the outcomes'
    if estimator.reference != "none":
        yield "reference", f'must be "none" for learner = "{learner.kind}"'
    if estimator.combination.kind == "fitted":
        yield "combination", f'cannot be fitted for learner = "{learner.kind}"'
    if learner.kind == "random_forest" and learner.max_features > cell.data.n_features:
        yield "learner", f"max_features = {learner.max_features} exceeds n_features = {cell.data.n_features}; lower it"
    if learner.kind == "trained" and (estimator.logits, estimator.key_scale) != ("distance", "raw"):
        yield "learner", 'trains heads with logits = "distance" and key_scale = "raw" only'
    if learner.kind == "trained" and cell.data.n_keys < 3:
        yield "n_keys", "training leaves one pair out; use at least 3"


def _mechanism(cell: Cell) -> Iterator[Impossibility]:
    estimator, plain = cell.estimator, cell.estimator.plain and cell.estimator.combination.kind != "product"
    normaliser, transformation = estimator.normaliser, estimator.transformation
    if normaliser.kind == "compact" and estimator.logits != "distance":
        yield "normaliser", 'a compact kernel is a function of distances; use logits = "distance", or "relu"'
    if normaliser.kind == "compact" and normaliser.power > 8 and cell.simulation.dtype == "float32":
        yield "dtype", f"(1 − |u|²)^{normaliser.power} falls below the smallest float32; use float64"
    if transformation.kind == "low_rank" and transformation.rank > cell.heads.head_dim:
        yield "transformation", f"rank = {transformation.rank} exceeds head_dim = {cell.heads.head_dim}; lower it"
    if transformation.kind == "low_rank" and transformation.method == "scores" and estimator.logits == "distance":
        yield "transformation", 'method "scores" approximates products; use logits = "dot_product"'
    if estimator.learner.kind != "nadaraya_watson" and not plain:
        remedy = 'must have transformation = "none", normaliser = "softmax" and no product of kernels'
        yield "learner", f'"{estimator.learner.kind}" {remedy}'
    if estimator.reference != "none" and not plain:
        yield "reference", "is softmax attention: needs transformation none, normaliser softmax, no product of kernels"


def _needs(cell: Cell) -> Iterator[Impossibility]:
    """What masks and value projections need: elsewhere errors of vectors do not follow from those of numbers."""
    estimator, projections = cell.estimator, cell.heads.value_projections
    local = {'learner = "nadaraya_watson"': estimator.learner.kind == "nadaraya_watson"}
    of_mask = {
        'transformation = "none"': estimator.transformation.kind == "none",
        "weights that are not fitted": estimator.combination.kind != "fitted",
    }
    of_values = {
        'combination = "uniform", as output projections combine heads': estimator.combination.kind == "uniform",
        'reference = "none"': estimator.reference == "none",
        "no measure_function": estimator.measure_function is None,
    }
    for setting, stated, needs in (
        ("mask", estimator.mask.kind, local | of_mask),
        ("value_projections", projections.kind, local | of_values),
    ):
        for remedy in (remedy for remedy, given in needs.items() if stated != "none" and not given):
            yield setting, f'"{stated}" needs {remedy}; change that or use "none"'
    if isinstance(projections, RandomValueProjections) and projections.value_dim > projections.n_components:
        remedy = f"value_dim = {projections.value_dim} of n_components = {projections.n_components}; lower it"
        yield "value_projections", remedy


def _functions(cell: Cell) -> Iterator[Impossibility]:
    assert cell.functions is not None  # else it is an ensemble
    yield from cell.functions.impossibilities()
    for name in {*cell.statistics} & RESERVED:
        yield "measures", f"{name!r} is the name of something else in the results; give the number another name"


def _sizes(cell: Cell) -> Iterator[Impossibility]:
    data, n_heads, p = cell.data, cell.heads.n_heads, cell.heads.head_dim
    if not SMALLEST <= cell.bandwidth <= LARGEST:
        yield "bandwidth", f"comes to {cell.bandwidth:g}, outside [{SMALLEST:g}, {LARGEST:g}]; change the rule"
    numbers = {
        # Keys as drawn, and as projected by every head.
        "n_keys": data.n_keys * max(data.n_features, n_heads * p),
        # Query points, and the moments of every pair of heads at each.
        "queries": cell.n_queries * max(data.n_features, N_BLOCKS * n_heads**2),
        # Both bases of every pair of heads.
        "n_heads": n_heads**2 * data.n_features * p,
    }
    if isinstance(values := cell.heads.value_projections, RandomValueProjections):
        numbers["value_projections"] = n_heads * values.value_dim * max(values.n_components, n_heads * values.value_dim)
    for setting, count in numbers.items():
        if 8 * count > MAX_ARRAY_BYTES:
            gib = 8 * count / 2**30
            yield setting, f"one replicate needs an array of {gib:.3g} GiB, above {MAX_ARRAY_BYTES >> 30}; use fewer"
