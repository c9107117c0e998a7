"""Predictions of each theory for planned cells: measures, their numerical errors, or why it does not apply."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from simstudy import theory
from simstudy.data.heads import key_projections, overlap, query_points, query_projections
from simstudy.design.document import PlannedCell
from simstudy.design.measures import THEORIES
from simstudy.design.settings.choices import OptimalCombination
from simstudy.theory import ExactPrediction, Prediction, weighting

Moments = dict[str, Prediction | ExactPrediction]
"""Moments of heads by the name of the theory."""


class Theory(NamedTuple):
    """Measures by one theory, averaged over queries, with numerical errors; or the reason why there are none."""

    measures: dict[str, float]
    errors: dict[str, float]
    reason: str


TheoryByCell = dict[int, dict[str, Theory]]
"""Predictions of all theories by `id` of the planned cell."""


def predict(planned: Sequence[PlannedCell], theory_by_cell: TheoryByCell | None = None) -> Iterator[dict[str, Theory]]:
    """Yield the measures of each cell by each theory; cells that differ only in weights share moments of heads."""
    theory_by_cell = {} if theory_by_cell is None else theory_by_cell
    waiting = Counter(_moments_of(each) for each in planned if id(each) not in theory_by_cell)
    known: dict[tuple[bool, str], Moments] = defaultdict(dict)
    for each in planned:
        if id(each) not in theory_by_cell:
            key = _moments_of(each)
            theory_by_cell[id(each)] = {name: _theory(name, each, known[key]) for name in THEORIES}
            waiting[key] -= 1
            if not waiting[key]:
                known.pop(key)
        yield theory_by_cell[id(each)]


def values_of(theories: Iterable[Mapping[str, Theory]], source: str, measure: str) -> np.ndarray:
    """Return the values of a measure by one theory, one for each cell; NaN where there is none."""
    return np.array([float(each[source].measures.get(measure, np.nan)) for each in theories])


def _moments_of(planned: PlannedCell) -> tuple[bool, str]:
    return planned.exact, planned.cell.identity(engine="")


def _theory(name: str, planned: PlannedCell, known: Moments) -> Theory:
    cell, estimator, combination = planned.cell, planned.cell.estimator, planned.cell.estimator.combination
    reasons = {
        "theory is known for Nadaraya-Watson heads with given projections": estimator.learner.kind != "nadaraya_watson",
        "regression is code of the user's own, of which no closed form is known": "regression" in dict(cell.own),
        "": cell.functions is not None,
        f"{' and '.join(cell.population)} are a population: theory holds for given ones": cell.population,
        "heads are redrawn in every replicate: theory holds for given heads": cell.heads.redrawn,
        "projected keys are normalised: theory holds for raw ones": estimator.key_scale == "normalised",
        "for products, theory needs softmax kernels": combination.kind == "product" and not estimator.plain,
        "weights are fitted in every replicate: theory holds for given weights": combination.kind == "fitted",
    }
    outside = next((reason for reason, applies in reasons.items() if applies), "")
    skipped = name == "exact" and not planned.exact and getattr(cell.functions, "exact_theory", True)
    if reason := outside or ("not asked for: set exact = true in the grid" if skipped else ""):
        return Theory({}, {}, reason)
    if cell.functions is not None:
        numbers = cell.functions.theory(name)
        return Theory(numbers, {}, "" if numbers else f"the study has no {name} theory for it")
    if name == "exact" and not estimator.plain:
        if estimator.mask.kind != "none":
            return Theory({}, {}, "the rate of empty windows is known only without a mask")
        rate, reason = theory.empty_window_rate(cell, query_projections(cell), query_points(cell))
        return Theory({"failure_rate": rate}, {}, reason)
    if name not in known:
        heads = cell, key_projections(cell), query_projections(cell)
        if combination.kind == "product":
            heads = theory.product_head(*heads)
        leading = theory.leading_order if estimator.plain else theory.compact_leading_order
        known[name] = theory.masked(theory.exact_moments if name == "exact" else leading, *heads, query_points(cell))
    prediction = known[name]
    if combination.kind == "product":
        weights = np.ones(1)
    elif not isinstance(combination, OptimalCombination):
        weights = np.array(cell.weights)
    elif prediction.reason:
        weights = np.full(cell.heads.n_heads, np.nan)
    elif combination.within == "unconstrained":
        weights = weighting.unconstrained_weights(weighting.error_moments(prediction)).weights
    else:
        weights = weighting.optimal_weights(weighting.error_moments(prediction).errors, combination.within).weights
    through = weights, overlap(cell)
    errors = theory.predicted_measure_errors(prediction, *through) if isinstance(prediction, ExactPrediction) else {}
    return Theory(theory.predicted_measures(prediction, *through), errors, prediction.reason)
