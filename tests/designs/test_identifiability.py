"""Recovery of gated heads against the whole map of a layer, ranks up to rounding, and layers against loops."""

import math
import runpy
from pathlib import Path

import numpy as np
import pytest
from builders import Draw

STUDY = runpy.run_path(str(Path(__file__).parents[2] / "designs" / "identifiability" / "functions.py"))
RNG = np.random.default_rng(3)


@pytest.mark.parametrize("held", [1, 2, 8])
@pytest.mark.parametrize("output", ["one short", "average"])
def test_recovery_behind_gates__is_that_from_the_whole_map(output, held):
    n, d, n_heads, p = 8, 6, 3, 2
    shapes = {"outputs": (n // held, 6), "noise": (n, d), "tokens": (n, d), "gate_weights": (n_heads, d)}
    data = {name: RNG.normal(size=(1, *shape)) for name, shape in (shapes | dict(left=(6, d), right=(d, d))).items()}
    found = STUDY["recover"](**data, output=output, gates="position", condition=5.0, noise_sd=0.3)
    projection = STUDY["output_projection"](data["left"], data["right"], n_heads, output, 5.0)[0]
    table = np.zeros((n // held * n_heads * p, n * d))
    for t in range(n):
        for c in range(n_heads * p):
            logit = sum(data["tokens"][0, t] * data["gate_weights"][0, c // p]) / math.sqrt(d)
            gated = projection[c] / (1.0 + math.exp(-logit))
            table[t // held * n_heads * p + c, t * d : (t + 1) * d] = gated
    seen = data["outputs"].ravel() @ table + 0.3 * data["noise"].ravel()
    recovered = np.linalg.lstsq(table.T, seen, rcond=1e-12)[0]
    assert found["nullity"] == len(table) - np.linalg.matrix_rank(table, tol=1e-9)
    assert found["recovery_error"] == pytest.approx(((recovered - data["outputs"].ravel()) ** 2).mean(), rel=1e-7)


def test_rank__is_not_that_of_rounding():
    sizes, direction = RNG.normal(size=32), RNG.normal(size=16)
    sizes[3] = 1e-6  # its features differ by a millionth of the 2 that they have in common
    after = STUDY["layer_norm"](np.outer(sizes, direction) + 2.0)[None]
    assert STUDY["affine_rank"](after) == 1
    assert np.linalg.matrix_rank(after[0], tol=1e-13) > 1  # the control: rounding there is
    after[0, 3, 5] += 1e-6
    assert STUDY["affine_rank"](after) == 2


@pytest.mark.parametrize("residual", ["none", "plain", "scaled"])
def test_layers__are_those_of_loops(residual):
    n, d, n_heads, p, depth = 5, 4, 2, 2, 2
    tokens, weights = RNG.normal(size=(n, d)), RNG.normal(size=(depth, 4, n_heads, p, d))
    found = STUDY["descend"](tokens[None], weights[None], residual, "layer_norm")
    for query, key, value, output in weights:
        inputs = [(x - x.mean()) / x.std() for x in tokens]
        added = np.zeros((n, d))
        for h in range(n_heads):
            q, k, v = ([each[h] @ x / math.sqrt(d) for x in inputs] for each in (query, key, value))
            for i in range(n):
                kernel = [math.exp(q[i] @ k[j] / math.sqrt(p)) for j in range(n)]
                mean = sum(kernel[j] * v[j] for j in range(n)) / sum(kernel)
                added[i] += mean @ output[h] / math.sqrt(n_heads * p)
        tokens = {"none": added, "plain": tokens + added, "scaled": tokens + added / math.sqrt(depth)}[residual]
    apart = tokens - tokens.mean(axis=0)
    assert found["token_spread"] == pytest.approx(np.linalg.norm(apart) / np.linalg.norm(tokens), rel=1e-9)
    assert found["visible_rank"] == np.linalg.matrix_rank(apart, tol=1e-6 * np.linalg.norm(tokens))


@pytest.mark.parametrize("output", ["full rank", "three short", "average"])
@pytest.mark.parametrize("held", [1, 4])
def test_recovery__errs_as_theory_says(output, held):
    settings = {"output": output, "condition": 4.0, "noise_sd": 0.5}
    found = STUDY["recover"](**STUDY["layer"](Draw(400), held=held), **settings)
    theory, errors = STUDY["recovery_theory"](held=held, **settings), found["recovery_error"]
    assert (found["nullity"] == theory["nullity"]).all()
    assert abs(errors.mean() - theory["recovery_error"]) < 4.0 * errors.std() / math.sqrt(len(errors))
