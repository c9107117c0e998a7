"""Theory as a control variate over the query points of a population.

For draw g of the query points, θ_g is a measure by simulation and L_g the average of L, damped leading-order theory.
The population value is estimated by the mean of θ_g − c_g (L_g − E L), with E L by randomised quasi-Monte Carlo and c_g
the slope of θ on L in the other draws (Avramidis and Wilson 1993).  Each term is unbiased for any L.  L is truncated so
that its mean exists, at the largest error of an average of outcomes.  A measure has no control if the mean of L in its
draws is far from E L.  Errors of E L are paired, as all cells use the same random points.
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from simstudy.data.heads import key_projections, query_points, query_projections
from simstudy.design.document import PlannedCell
from simstudy.design.measures import MEASURES
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.choices import GaussianQueries, KnownCombination
from simstudy.replicates.intervals import widening_of
from simstudy.replicates.performance import Performance
from simstudy.theory import Prediction, damped_leading_order, measures_by_query, product_head, regression_function
from simstudy.verdicts.evidence import N_RANDOMISATIONS

Array = NDArray[np.float64]

CONTROLLED = tuple(name for name in MEASURES if name != "effective_heads")
"""Measures that are averages over queries."""
LOG2_FEWEST, LOG2_MOST = 6, 12
"""Logarithms to base 2 of the least and most points of one randomisation, doubled until the error of E L is small."""
WORK = 3e6
"""Most work for one cell, some seconds: pairs of heads × points × squared terms of m, or a tenth of the features."""
COUNTS = 0.25
"""Share of the error of a measure above which the error of E L is not small."""
CUT = 16.0
"""Squared errors L are truncated at this multiple of the mean square of outcomes: four standard deviations."""
FARTHEST = 6.0
"""Most standard errors between the mean of L in draws and E L; beyond, E L depends on points that draws lack."""
AT_ONCE, NUMBERS = 1 << 13, 1 << 24
"""Most query points, and numbers, for which theory is evaluated at once, to limit memory."""


class QueryControl:
    """Subtracts the control variate from the measures of cells.

    If theory takes too long for one cell of a grid, no cell of that grid has a control.  Common effects of query
    points cancel in a comparison of two cells only if both have a control or neither has.
    """

    def __init__(self, planned: Sequence[PlannedCell] = ()) -> None:
        slow = {each.grid for each in planned if applies(each.cell) and _log2_most(each.cell) < LOG2_FEWEST}
        self._excluded = {each.cell for each in planned if each.grid in slow}

    def __call__(self, cell: Cell, performance: Performance, first: int = 0) -> Performance:
        """Return the performance of a cell, in batches from the ``first`` on, with the control applied."""
        most = _log2_most(cell) if applies(cell) and cell not in self._excluded else 0
        if most < LOG2_FEWEST or performance.n_blocks != len(performance.contribution["mse"]):
            return performance
        points = query_points(cell.in_batch(first, performance.n_blocks)).reshape(-1, cell.data.n_features)
        at_points = _theory(cell, points)
        drawn = {name: each.reshape(performance.n_blocks, -1).mean(axis=1) for name, each in at_points.items()}
        for log2 in range(LOG2_FEWEST, most + 1):
            found = controlled_by(performance, drawn, _expected(cell, log2))
            if all(np.linalg.norm(part) <= COUNTS * found.mcse[name] for name, part in found.randomisation.items()):
                break
        return found


@functools.lru_cache(maxsize=1024)
def _expected(cell: Cell, log2: int) -> dict[str, Array]:
    queries = cell.queries.queries
    assert isinstance(queries, GaussianQueries)  # other queries have no population
    points = _normal_points(cell.data.n_features, 2**log2).reshape(N_RANDOMISATIONS, 2**log2, -1)
    half = 2 ** (log2 - 1) if log2 > LOG2_FEWEST else 0  # points whose mean is known
    values = _theory(cell, queries.scale * points[:, half:].reshape(-1, cell.data.n_features))
    means = {name: each.reshape(N_RANDOMISATIONS, -1).mean(axis=1) for name, each in values.items()}
    return {name: (each + _expected(cell, log2 - 1)[name]) / 2 if half else each for name, each in means.items()}


# Cached, as all cells of a study use the same points.
@functools.lru_cache(maxsize=16)
def _normal_points(n_features: int, count: int) -> Array:
    seeds = map(np.random.default_rng, range(N_RANDOMISATIONS))
    points = [scipy.stats.qmc.Sobol(n_features, rng=rng).random(count) for rng in seeds]
    return np.asarray(scipy.special.ndtri(np.concatenate(points)))


def _log2_most(cell: Cell) -> int:
    n_terms = 1 + len(regression_function(cell.data.regression, cell.data.n_features).amplitudes)
    of_point = cell.heads.n_heads * (cell.heads.n_heads + 1) / 2 * max(n_terms**2, cell.data.n_features / 10)
    return min(LOG2_MOST, int(np.log2(WORK / (N_RANDOMISATIONS * of_point))))


def applies(cell: Cell) -> bool:
    """True if the query points of a cell are its only population, and leading order is derived for it and useful."""
    estimator = cell.estimator
    return (
        cell.population == ("queries",)
        and cell.data.regression.kind != "zero"
        and not cell.own
        and estimator.plain
        and estimator.mask.kind == "none"
        and estimator.learner.kind == "nadaraya_watson"
        and estimator.key_scale == "raw"
        and cell.heads.value_projections.kind == "none"
        and estimator.combination.kind not in ("fitted", "optimal")
        and not cell.heads.redrawn
        and cell.data.key_distribution.kind == "gaussian"
    )


def _theory(cell: Cell, points: Array) -> dict[str, Array]:
    """Return L at each point, a bounded function of the point; 0 where it is not finite."""
    data, product = cell.data, cell.estimator.combination.kind == "product"
    # Mean square of outcomes at standard normal keys, equal for all cells.
    keys = _normal_points(data.n_features, 2**LOG2_FEWEST)
    mean_square = data.noise_sd**2 + (regression_function(data.regression, data.n_features)(keys) ** 2).mean()
    weights = np.ones(1) if product else np.array(cell.weights)
    # Predictions of heads do not depend on their combination; they are cached for consecutive cells.
    uniform = cell.estimator.model_copy(update={"combination": KnownCombination(kind="uniform")})
    heads = cell if product else cell.model_copy(update={"estimator": uniform})
    parts, at_once = [], max(1, min(AT_ONCE, NUMBERS // (data.n_features * cell.heads.n_heads**2)))
    for start in range(0, len(points), at_once):
        with np.errstate(all="ignore"):
            prediction = _of_heads(heads, points[start : start + at_once].tobytes())
            most = CUT * max(1.0, np.abs(weights).sum()) ** 2 * (prediction.target**2 + mean_square)
            measures = measures_by_query(prediction, weights)
        limits = {name: 1.0 if name == "correlation" else most for name in CONTROLLED}
        parts.append({name: np.clip(measures[name], -limit, limit) for name, limit in limits.items()})
    joined = {name: np.concatenate([part[name] for part in parts]) for name in CONTROLLED}
    return {name: np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0) for name, values in joined.items()}


@functools.lru_cache(maxsize=16)
def _of_heads(cell: Cell, points: bytes) -> Prediction:
    heads = cell, key_projections(cell), query_projections(cell)
    if cell.estimator.combination.kind == "product":
        heads = product_head(*heads)
    return damped_leading_order(*heads, np.frombuffer(points).reshape(-1, cell.data.n_features))


def controlled_by(performance: Performance, drawn: dict[str, Array], expected: dict[str, Array]) -> Performance:
    """Return the performance with L subtracted; ``drawn`` has L by draw, ``expected`` E L by randomisation."""
    fields = ("estimate", "mcse", "contribution", "widening", "randomisation")
    changed: dict[str, Any] = {name: dict(getattr(performance, name)) for name in fields}
    for name in CONTROLLED:
        share, raw = performance.contribution[name], float(performance.mcse[name])
        # The mean of L in draws must be near E L; a slope cannot be extrapolated further.
        farthest = FARTHEST * drawn[name].std(ddof=1) / np.sqrt(len(drawn[name]))
        near = abs(drawn[name].mean() - expected[name].mean()) <= farthest
        if not (np.isfinite(share).all() and raw > 0.0 and near):
            continue
        unit, of_mean = (np.sqrt(n * (n - 1)) for n in (len(share), N_RANDOMISATIONS))
        points = (expected[name] - expected[name].mean()) / of_mean
        slope = _slopes(unit * share, drawn[name], points @ points)
        values = performance.estimate[name] + unit * share - slope * (drawn[name] - expected[name].mean())
        contribution, randomisation = (values - values.mean()) / unit, slope.mean() * points
        mcse = np.hypot(np.linalg.norm(contribution), np.linalg.norm(randomisation))
        found = values.mean(), mcse, contribution, widening_of(contribution), randomisation
        for field, value in zip(fields, found, strict=True):
            changed[field][name] = value
    return performance._replace(**changed)


def _slopes(values: Array, control: Array, variance: float) -> Array:
    """Return the slope of values on the control with each pair left out in turn; 0 where the control does not vary.

    ``variance`` is that of the estimated expectation of the control.  As a ridge, it makes the error of the mean of the
    controlled values least.
    """
    n, x, y = len(values), control - control.mean(), values - values.mean()
    square = (x * x).sum() - n / (n - 1) * x * x
    product = (x * y).sum() - n / (n - 1) * x * y
    varies = square > 1e-20 * max(float((control**2).sum()), np.finfo(float).tiny)
    return np.where(varies, product / np.where(varies, square + n * (n - 1) * variance, 1.0), 0.0)
