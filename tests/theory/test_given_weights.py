"""Weights that look at no data, by hand and by their limits."""

from __future__ import annotations

import numpy as np
import pytest

from simstudy.theory import given_weights as w

PHI = (1 + np.sqrt(5)) / 2


def test_fibonacci_weights_saturate():
    np.testing.assert_allclose(w.fibonacci_weights(5), np.array([5, 3, 2, 1, 1]) / 12)
    np.testing.assert_array_equal(w.fibonacci_weights(1), [1])
    for n_heads in (70, 3000):
        weights = w.fibonacci_weights(n_heads)
        assert weights.sum() == pytest.approx(1, abs=1e-12)
        assert np.sum(weights**2) == pytest.approx(PHI**-3, rel=1e-12)
        assert w.effective_learners(weights) == pytest.approx(4.23606797749979, rel=1e-12)
    assert w.effective_learners(w.fibonacci_weights(5)) == pytest.approx(144 / 40)


def test_geometric_weights():
    np.testing.assert_allclose(w.geometric_weights(3, 0.5), np.array([4, 2, 1]) / 7)
    np.testing.assert_allclose(w.geometric_weights(4, 1.0), w.uniform_weights(4))
    assert w.effective_learners(w.geometric_weights(200, 0.8)) == pytest.approx(1.8 / 0.2)
    # Fibonacci weights tend to the geometric ones of ratio 1 / phi.
    np.testing.assert_allclose(w.geometric_weights(60, 1 / PHI)[:10], w.fibonacci_weights(60)[:10], rtol=1e-12)


def test_effective_learners_do_not_depend_on_scale():
    assert w.effective_learners(w.sum_weights(6)) == pytest.approx(6)
    assert w.effective_learners(w.uniform_weights(6)) == pytest.approx(6)
    assert w.effective_learners([1.0, 0.0]) == 1.0
