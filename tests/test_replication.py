"""The stopping rule: pure, monotone, and bounded."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simstudy.design import Precision
from simstudy.performance import Performance
from simstudy.replication import GROWTH, first_target, next_target, shortfall


def measured(mse: float = 1.0, mcse: float = 0.1, correlation: float = np.nan) -> Performance:
    return Performance(
        {"mse": np.float64(mse), "correlation": np.float64(correlation)},
        {"mse": np.float64(mcse), "correlation": np.float64(np.nan)},
        {}, {}, 1000, 0,
    )  # fmt: skip


def wanting(**entries) -> Precision:
    return Precision.model_validate({"min_replicates": 100, "max_replicates": 10_000} | entries)


def test_first_target__covers_the_floor():
    assert [first_target(wanting(min_replicates=n), 32) for n in (1, 32, 33, 100)] == [1, 1, 2, 4]


def test_shortfall__is_the_worst_ratio():
    assert shortfall(measured(), wanting(relative_mcse={"mse": 0.05})) == pytest.approx(2.0)
    assert shortfall(measured(), wanting(absolute_mcse={"mse": 0.2})) == pytest.approx(0.5)
    assert shortfall(measured(), wanting(relative_mcse={"mse": 0.05}, absolute_mcse={"mse": 0.025})) == pytest.approx(4)


def test_undefined_measure__has_nothing_to_reach():
    assert shortfall(measured(), wanting(relative_mcse={"correlation": 0.01})) == 0.0


def test_relative_target_of_zero__is_reached_by_no_error_only():
    assert shortfall(measured(mse=0.0, mcse=0.0), wanting(relative_mcse={"mse": 0.1})) == 0.0
    assert shortfall(measured(mse=0.0, mcse=0.1), wanting(relative_mcse={"mse": 0.1})) == np.inf


@given(mcse=st.floats(0, 10), done=st.integers(1, 400), batch_size=st.sampled_from([16, 32, 256]))
def test_next_target__stops_grows_and_is_bounded(mcse, done, batch_size):
    precision = wanting(relative_mcse={"mse": 0.05})
    target = next_target(done, measured(mcse=mcse), precision, batch_size)
    ceiling = -(-10_000 // batch_size)
    if mcse <= 0.05 or done >= ceiling:
        assert target == done
    else:
        assert done < target <= min(ceiling, GROWTH * done + 1)
