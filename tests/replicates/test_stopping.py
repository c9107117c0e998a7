"""The stopping rule: pure, monotone, and bounded."""

import numpy as np
import pytest

from simstudy.design.document import Precision
from simstudy.replicates.allocation import first_target, needed, next_target, shortfall
from simstudy.replicates.moments import empty
from simstudy.replicates.performance import Performance, performance


def measured(mse: float = 1.0, mcse: float = 0.1, correlation: float = np.nan) -> Performance:
    return Performance(
        {"mse": np.float64(mse), "correlation": np.float64(correlation)},
        {"mse": np.float64(mcse), "correlation": np.float64(np.nan)},
        {}, {}, 64, 1000, 0,
    )  # fmt: skip


def wanting(**entries) -> Precision:
    return Precision.model_validate({"min_replicates": 100, "max_replicates": 10_000} | entries)


def test_first_target__covers_the_floor():
    assert [first_target(wanting(min_replicates=n), 32) for n in (1, 128, 129, 1000)] == [4, 4, 5, 32]
    assert first_target(wanting(min_replicates=32, max_replicates=64), 32) == 2
    assert first_target(wanting(), 32, population=True) == 64  # draws of a population, of which fewer allow no verdict


VERDICT = {"stop": "verdict", "relative_mcse": {"mse": 0.05}}


@pytest.mark.parametrize(
    ("found", "asked", "worst"),
    [
        ({}, {"relative_mcse": {"mse": 0.05}}, 2.0),
        ({}, {"absolute_mcse": {"mse": 0.2}}, 0.5),
        ({}, {"relative_mcse": {"mse": 0.05}, "absolute_mcse": {"mse": 0.025}}, 4.0),
        ({}, {"relative_mcse": {"mse": 0.05}, "absolute_mcse": {"mse": 0.1}}, 2.0),
        ({}, {"relative_mcse": {"correlation": 0.01}}, 0.0),  # which is undefined
        ({"mse": 0.0, "mcse": 0.0}, {"relative_mcse": {"mse": 0.1}}, 0.0),
        ({"mse": 0.0}, {"relative_mcse": {"mse": 0.1}}, np.inf),
        ({}, VERDICT, 0.0),  # precision is asked of no cell that waits for a verdict alone
        ({"mse": -1.0}, VERDICT | {"stop": "both"}, 2.0),
    ],
)
def test_shortfall__is_the_worst_ratio(found, asked, worst):
    short = shortfall(measured(**found), wanting(**asked))
    assert short.ratio == pytest.approx(worst)
    assert worst != 4.0 or short[1:3] == ("mse", 0.1)


def test_batches_needed__grow_as_the_square_of_the_ratio_and_by_a_tenth_more():
    precision = wanting(relative_mcse={"mse": 0.05})
    found = {mcse: needed(10, measured(mcse=mcse), precision, 16) for mcse in (0.05, 0.0501, 0.1, 0.5)}
    assert found == {0.05: 10, 0.0501: 12, 0.1: 44, 0.5: 625}
    assert next_target(100, measured(), precision, 16) == 400 and next_target(1, measured(), precision, 16) == 4


def test_stopped_estimates__are_nearly_unbiased_and_cover():
    """Stopping at a wanted MCSE favours samples whose MCSE came out small; the floor keeps the harm little."""
    rng = np.random.default_rng(6)
    precision = wanting(relative_mcse={"mse": 0.05}, min_replicates=1, max_replicates=20_000)
    hits, estimates = 0, []
    for _ in range(300):
        squares = rng.exponential(size=20_000) ** 2
        done, target = 0, first_target(precision, 64)
        while target > done:
            done = target
            blocks = squares[: done * 64].reshape(16 * done, -1).sum(axis=1)[:, None, None]
            counts = np.full(16 * done, 4)
            moments = empty(16 * done, np.zeros(1), 1, 0)._replace(n_defined=counts, product_sum=blocks)
            result = performance(moments, np.ones(1), ())
            target = next_target(done, result, precision, 64)
        estimates.append(float(result.estimate["mse"]))
        hits += abs(estimates[-1] - 2.0) < 1.97 * float(result.mcse["mse"])
    assert abs(np.mean(estimates) / 2.0 - 1) < 0.01
    assert 0.91 < hits / 300 < 0.98
