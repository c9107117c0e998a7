"""Functions of learned-heads: the error in closed form against simulated tasks, and its gradients."""

import runpy

import numpy as np
import pytest
from commands import ROOT
from scipy.special import softmax

descent = runpy.run_path(str(ROOT / "designs" / "learned-heads" / "functions.py"))["descent"]
K, OUTPUTS = np.array([[0.4, -0.7, 1.1]]), np.array([[0.8, -0.5, 0.3]])


def test_error__is_that_of_simulated_tasks():
    rng, d, n, noise_sd, many = np.random.default_rng(6), 3, 7, 0.6, 60_000
    z, length = rng.normal(size=n), 1.7
    tokens = rng.normal(size=(many, n, d))
    tokens[:, :, 0] = z  # the first axis is that of the query
    b = rng.normal(size=(many, d)) / np.sqrt(d)
    y = np.einsum("tid,td->ti", tokens, b) + noise_sd * rng.normal(size=(many, n))
    errors = (
        sum(o * y @ softmax(k * length * z) for k, o in zip(K[0], OUTPUTS[0], strict=True)) - length * b[:, 0]
    ) ** 2
    (error,), _, _ = descent(K, OUTPUTS, z[None, None], np.array([[length]]), d, noise_sd)
    assert abs(errors.mean() - error) < 4.0 * errors.std() / np.sqrt(many)
    assert abs(errors.mean() - error) < 0.1 * error


def test_gradients__are_those_of_small_steps():
    rng = np.random.default_rng(7)
    z, length, step = rng.normal(size=(1, 4, 7)), rng.uniform(1.0, 3.0, size=(1, 4)), 1e-6
    _, pull, turn = descent(K, OUTPUTS, z, length, 3, 0.6)
    for h in range(3):
        shift = step * np.eye(3)[[h]]
        rise = [descent(K, OUTPUTS + s * shift, z, length, 3, 0.6)[0][0] for s in (-1, 1)]
        bend = [descent(K + s * shift, OUTPUTS, z, length, 3, 0.6)[0][0] for s in (-1, 1)]
        assert pull[0, h] == pytest.approx((rise[1] - rise[0]) / (2 * step), rel=1e-5)
        assert turn[0, h] == pytest.approx((bend[1] - bend[0]) / (2 * step), rel=1e-5)
