"""Heads trained in context: against tasks that are drawn whole, and against descent by differences of loops."""

import math

import numpy as np
import pytest
from builders import minimal_cell

from simstudy.attention.members import measure
from simstudy.attention.systems.in_context import PROMPTS, TESTED
from simstudy.data.shared import SharedData

N, D, NOISE_SD = 5, 3, 0.7


def weights(logits, outputs, along, length):
    """Weights (i,) of outcomes, by loops."""
    total = np.zeros(len(along))
    for logit, output in zip(logits, outputs, strict=True):
        kernel = [math.exp(logit * length * z) for z in along]
        total += [output * k / sum(kernel) for k in kernel]
    return total


def error_of(parameters, prompts):
    """Mean over prompts of the error, from the covariance of outcomes and their covariance with the target."""
    logits, outputs = np.split(np.asarray(parameters), 2)
    total = 0.0
    for prompt in prompts:
        along, length = prompt[:N], math.sqrt(sum(q * q for q in prompt[N : N + D]))
        w = weights(logits, outputs, along, length)
        for i in range(N):
            total += w[i] ** 2 * (NOISE_SD**2 + (D - 1) / D) - 2 * w[i] * along[i] * length / D
            total += sum(w[i] * w[j] * along[i] * along[j] / D for j in range(N))
        total += length**2 / D
    return total / len(prompts)


def test_error__is_that_of_tasks_that_are_drawn():
    rng = np.random.default_rng(1)
    logits, outputs, query = np.array([0.6, -0.4]), np.array([0.9, -0.7]), rng.standard_normal(D)
    prompt, length = np.append(rng.standard_normal(N), query), np.linalg.norm(query)
    across = np.linalg.qr(np.column_stack([query, rng.standard_normal((D, D - 1))]))[0][:, 1:]
    w, errors = weights(logits, outputs, prompt[:N], length), []
    for _ in range(20_000):
        tokens = np.outer(prompt[:N], query / length) + rng.standard_normal((N, D - 1)) @ across.T
        task = rng.standard_normal(D) / math.sqrt(D)
        errors.append((w @ (tokens @ task + NOISE_SD * rng.standard_normal(N)) - task @ query) ** 2)
    expected = error_of([*logits, *outputs], [prompt])
    assert abs(np.mean(errors) - expected) < 4 * np.std(errors) / math.sqrt(len(errors))


@pytest.mark.parametrize("outputs", ["any", "positive"])
def test_training__is_descent_of_that_error(outputs):
    steps, rate = 3, 2.0
    instance = {"kind": "in_context_heads", "steps": steps, "rate": rate, "outputs": outputs}
    cell = minimal_cell(instance=instance, n_keys=N, n_features=D, n_heads=2, noise_sd=NOISE_SD)
    shared = SharedData(cell, 0, 3)
    found = measure(cell, shared)
    for r, prompts in enumerate(shared.normals(N + D, steps * PROMPTS + TESTED + 1)):
        parameters = 0.1 * prompts[-1, :4]
        for step in range(steps):
            if outputs == "positive":
                parameters[2:] = np.abs(parameters[2:]) if step == 0 else np.maximum(parameters[2:], 0)
            own = prompts[step * PROMPTS : (step + 1) * PROMPTS]
            moves = 1e-5 * np.eye(4)
            slope = [(error_of(parameters + m, own) - error_of(parameters - m, own)) / 2e-5 for m in moves]
            parameters = parameters - rate * (1 - step / steps) * np.array(slope)
        if outputs == "positive":
            parameters[2:] = np.maximum(parameters[2:], 0)
        logit, output = parameters[:2], parameters[2:]
        assert found["in_context_risk"][r] == pytest.approx(error_of(parameters, prompts[-1 - TESTED : -1]), rel=1e-6)
        assert found["both_signs"][r] == (min(output) < 0 < max(output))
        assert found["matched_signs"][r] == np.mean([a * b > 0 for a, b in zip(logit, output, strict=True)])
        size = sum(abs(output))
        assert found["output_sum"][r] == pytest.approx(abs(sum(output)) / size if size else 0.0, abs=1e-6)
