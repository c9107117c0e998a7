"""Hidden states of logits: against recursions written out in loops, with what must change them and what must not."""

import math

import naive
import numpy as np
import pytest
from builders import minimal_cell

from simstudy.attention.members import measure
from simstudy.data.shared import SharedData
from simstudy.theory.instances import noise_factor

N, D, P = 6, 4, 3


def cell_of(kind, key_scale="raw", **parameters):
    instance = {"kind": kind} | parameters
    return minimal_cell(
        instance=instance, n_keys=N, n_features=D, n_heads=1, head_dim=P, bandwidth=0.7, key_scale=key_scale
    )


@pytest.mark.parametrize(("memory", "persistence"), [(0.0, 0.0), (0.6, 0.0), (0.6, 0.3)])
def test_noise__is_that_of_the_recursion(memory, persistence):
    cell = cell_of("hopfield_noise", memory=memory, persistence=persistence, layers=4)
    shared = SharedData(cell, 2, 3)
    found, drawn = measure(cell, shared)["noise_factor"], shared.normals(N, 5)
    for r in range(3):
        squares = []
        for i in range(N):
            common, *layers = drawn[r, :, i]
            logits = [math.sqrt(persistence) * common + math.sqrt(1 - persistence) * z for z in layers]
            state = logits[0]
            for logit in logits[1:]:
                state = memory * state + (1 - memory) * logit
            squares.append(state**2)
        assert found[r] == pytest.approx(sum(squares) / N, rel=1e-12)


def test_formula__is_the_sum_of_squared_coefficients():
    for memory in (0.0, 0.2, 0.9):
        for layers in (1, 2, 7):
            coefficients = [(1 - memory) * memory**age for age in range(layers - 1)] + [memory ** (layers - 1)]
            assert sum(coefficients) == pytest.approx(1.0)
            expected = sum(c**2 for c in coefficients)
            assert noise_factor(memory, layers) == pytest.approx(expected, rel=1e-12)
            assert noise_factor(memory, layers, 0.4) == pytest.approx(0.4 + 0.6 * expected, rel=1e-12)
    for memory, factor in ((0.2, 0.667), (0.5, 0.333), (0.7, 0.176), (0.9, 0.053)):
        assert noise_factor(memory, 200) == pytest.approx(factor, abs=5e-4)


def tower(drawn, layers, memory, skip, tied, normalised):
    """Tokens, as lists, after some layers: nothing but scalars."""
    tokens = [[drawn[j, i] for j in range(D)] for i in range(N)]
    states = None
    for layer in range(layers):
        first = D + (0 if tied else layer) * (2 * P + D)

        def image(token, column, count, first=first):
            parts = [sum(token[j] * drawn[first + column + k, j] for j in range(D)) / D**0.5 for k in range(count)]
            length = math.sqrt(sum(x * x for x in parts) / count) if normalised and column < 2 * P else 1.0
            return [x / length for x in parts]

        queries, keys = ([image(t, c, P) for t in tokens] for c in (0, P))
        values = [image(t, 2 * P, D) for t in tokens]
        logits = [[sum(a * b for a, b in zip(q, k, strict=True)) / 0.49 for k in keys] for q in queries]
        if states is None:
            states = logits
        else:
            states = [[memory * h + (1 - memory) * s for h, s in zip(*rows, strict=True)]
                      for rows in zip(states, logits, strict=True)]  # fmt: skip
        weights = [naive.normalised([math.exp(h) for h in row]) for row in states]
        tokens = [[skip * tokens[i][j] + (1 - skip) * sum(weights[i][m] * values[m][j] for m in range(N))
                   for j in range(D)] for i in range(N)]  # fmt: skip
    return np.array(tokens)


@pytest.mark.parametrize("projections", ["tied", "drawn"])
@pytest.mark.parametrize("key_scale", ["raw", "normalised"])
@pytest.mark.parametrize("memory", [0.0, 0.5])
def test_tower__is_that_of_loops(projections, key_scale, memory):
    cell = cell_of("hopfield_tower", key_scale, memory=memory, skip=0.3, layers=3, projections=projections)
    shared = SharedData(cell, 1, 2)
    found = measure(cell, shared)
    drawn = shared.normals(N, D + 3 * (2 * P + D))
    for r in range(2):
        settings = projections == "tied", key_scale == "normalised"
        tokens, plain = (tower(drawn[r], 3, share, 0.3, *settings) for share in (memory, 0.0))
        pairs = [(i, j) for i in range(N) for j in range(N) if i != j]
        lengths = np.linalg.norm(tokens, axis=1)
        cosine = np.mean([tokens[i] @ tokens[j] / lengths[i] / lengths[j] for i, j in pairs])
        assert found["token_cosine"][r] == pytest.approx(cosine, rel=1e-9)
        shares = np.linalg.eigvalsh(tokens.T @ tokens) / np.trace(tokens.T @ tokens)
        assert found["token_rank"][r] == pytest.approx(math.exp(-sum(p * math.log(p) for p in shares)), rel=1e-8)
        gap = np.abs(tokens - plain).max() / np.abs(plain).max()
        assert found["ordinary_gap"][r] == pytest.approx(gap, abs=1e-12)
        assert (gap > 0.01) == (memory > 0)  # the control: a memory matters
    assert (found["pool_gap"] < 1e-14).all()


def test_fewer_layers__see_the_same_projections():
    few, many = (cell_of("hopfield_tower", layers=layers, projections="drawn") for layers in (1, 4))
    shared = SharedData(few, 0, 2)
    one = measure(few, shared)["token_cosine"]
    np.testing.assert_array_equal(one, measure(cell_of("hopfield_tower", layers=1), shared)["token_cosine"])
    assert (one != measure(many, shared)["token_cosine"]).all()


@pytest.mark.parametrize("projections", ["tied", "drawn"])
def test_path__is_the_average_over_towers_of_every_height(projections):
    cells = [cell_of("hopfield_tower", layers=n, memory=0.5, projections=projections) for n in (1, 2, 3, 4)]
    shared = SharedData(cells[0], 0, 2)
    found = [measure(cell, shared) for cell in cells]
    for name in ("cosine", "rank"):
        each = [numbers[f"token_{name}"] for numbers in found]
        np.testing.assert_allclose(found[-1][f"path_{name}"], np.mean(each, axis=0), rtol=1e-12)
        assert (np.abs(found[-1][f"path_{name}"] - each[-1]) > 1e-3).all()
