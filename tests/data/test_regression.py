"""Regression functions against loops over the points, and their independence of the array a point stands in."""

import numpy as np
import pytest
from pydantic import TypeAdapter
from theory_oracle import regression_values

from simstudy.data.regression import evaluate
from simstudy.design.settings.choices import Regression

FUNCTIONS = [
    {"kind": "zero"},
    {"kind": "linear", "coefficients": [1.0, 0.0, -2.5]},
    {"kind": "quadratic", "coefficients": [0.25]},
    {"kind": "quadratic", "coefficients": [1.0, -0.5]},
    {"kind": "ridge", "wave": "sin", "amplitude": 2.0, "frequency": 1.5, "direction": [1.0, 2.0]},
    {"kind": "ridge", "wave": "cos", "amplitude": -1.0, "frequency": 0.5, "direction": [0.0, 0.0, 3.0]},
    {"kind": "additive", "wave": "sin", "frequency": 2.0},
    {"kind": "additive", "wave": "cos", "amplitude": 1.5, "decay": "exponential", "rate": 0.7},
    {"kind": "additive", "wave": "sin", "decay": "power", "rate": 1.5, "n_active": 3},
    {"kind": "interaction", "amplitude": 3.0, "coordinates": [2, 4]},
]
FUNCTIONS.append({"kind": "sum", "terms": [FUNCTIONS[1], FUNCTIONS[4], FUNCTIONS[9]]})
NAMES = [f"{i}-{f['kind']}" for i, f in enumerate(FUNCTIONS)]
PARSED = TypeAdapter(list[Regression]).validate_python(FUNCTIONS)
X = np.random.default_rng(5).standard_normal((3, 4, 41))


ERRORS = {"float64": (1e-13, 1e-14), "float32": (1e-5, 4e-6)}


@pytest.mark.parametrize("dtype", ERRORS)
@pytest.mark.parametrize("m", PARSED, ids=NAMES)
def test_values_are_those_of_the_definition_and_have_the_same_bits_in_any_array(m, dtype):
    x, (rtol, atol) = X.astype(dtype), ERRORS[dtype]
    before, found = x.copy(), evaluate(m, x)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, [regression_values(m, p.T) for p in x.astype(float)], rtol=rtol, atol=atol)
    np.testing.assert_array_equal(x, before)
    # A wild neighbour must not push a library's vectors onto another path either.
    x[1, :, ::5] *= 1e6
    whole = evaluate(m, x)
    for r in range(3):
        np.testing.assert_array_equal(evaluate(m, x[r]), whole[r])
    for n in range(1, 41):
        np.testing.assert_array_equal(evaluate(m, x[..., :n]), whole[:, :n])
        np.testing.assert_array_equal(evaluate(m, np.ascontiguousarray(x[1:, :, 41 - n :])), whole[1:, 41 - n :])
    np.testing.assert_array_equal(evaluate(m, np.asfortranarray(x)), whole)
