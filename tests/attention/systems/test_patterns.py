"""Patterns of attention that a head can draw: against a direct search for the best head, and its theory."""

import math

import numpy as np
import pytest
from builders import minimal_cell, numbers_of
from scipy.optimize import minimize

from simstudy.attention.members import measure
from simstudy.attention.systems.low_rank import nearest_head
from simstudy.data.shared import SharedData


def cell_of(n, d, p):
    sizes = {"n_keys": n, "n_features": d, "n_heads": 1, "head_dim": p, "arrangement": "aligned"}
    return minimal_cell(**sizes, instance={"kind": "pattern"})


def measured(n, d, p, count=3):
    cell = cell_of(n, d, p)
    return measure(cell, SharedData(cell, 0, count))


def drawn(n, d):
    """Tokens and logits of the first replicate, cut from one row of numbers."""
    row = SharedData(cell_of(n, d, 1), 0, 1).normals(n * d + n * n, 1)[0, 0]
    return row[: n * d].reshape(n, d), row[n * d :].reshape(n, n)


@pytest.mark.parametrize(("n", "d", "p"), [(4, 5, 1), (4, 2, 1)])
def test_error__is_the_least_that_a_search_over_heads_finds(n, d, p):
    tokens, logits = drawn(n, d)

    def missed(flat):
        query, key = flat.reshape(2, d, p)
        total = 0.0
        for i in range(n):
            gaps = [sum(tokens[i] @ query * (tokens[j] @ key)) - logits[i, j] for j in range(n)]
            total += sum((gap - sum(gaps) / n) ** 2 for gap in gaps)
        return total

    rng = np.random.default_rng(2)
    least = min(minimize(missed, rng.normal(size=2 * d * p), method="BFGS").fun for _ in range(2))
    whole = sum(sum((row - row.mean()) ** 2) for row in logits)
    assert measured(n, d, p)["pattern_error"][0] == pytest.approx(least / whole, rel=1e-4)


def test_distance__is_that_of_the_weights_of_the_head():
    n, d, p = 6, 7, 2
    tokens, logits = drawn(n, d)
    query, key = nearest_head(tokens, logits - logits.mean(axis=1, keepdims=True), p)
    total = 0.0
    for i in range(n):
        scores = [sum((tokens[i] @ query)[k] * (tokens[j] @ key)[k] for k in range(p)) for j in range(n)]
        weights, wanted = ([math.exp(z) for z in each] for each in (scores, logits[i]))
        total += sum(abs(w / sum(weights) - v / sum(wanted)) for w, v in zip(weights, wanted, strict=True)) / 2
    assert measured(n, d, p)["pattern_distance"][0] == pytest.approx(total / n, rel=1e-9)


def test_patterns__take_all_dimensions_but_one_of_the_tokens():
    """Softmax knows logits up to a constant: n − 1 dimensions draw every pattern of n tokens, n − 2 do not."""
    for p in (7, 8, 9):
        assert (measured(8, 9, p)["pattern_error"] < 1e-20).all() and (
            measured(8, 9, p)["pattern_distance"] < 1e-9
        ).all()
    assert (measured(8, 9, 6)["pattern_error"] > 1e-5).all() and (measured(8, 9, 6)["pattern_distance"] > 1e-3).all()


@pytest.mark.parametrize(("n", "d", "p"), [(8, 3, 3), (4, 3, 3), (5, 8, 4)])
def test_theory__is_what_is_measured(n, d, p):
    found, theory = measured(n, d, p, 500)["pattern_error"], numbers_of(cell_of(n, d, p))["pattern_error"]
    assert abs(found.mean() - theory) <= 4 * found.std() / math.sqrt(500) + 1e-12
    assert numbers_of(cell_of(n, d, p - 1)) == {}
