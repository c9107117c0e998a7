"""Functions of hopfield-state: layers with a memory, against loops."""

import runpy

import naive
import numpy as np
import pytest
from builders import Draw
from commands import ROOT

STUDY = runpy.run_path(str(ROOT / "designs" / "hopfield-state" / "functions.py"))


@pytest.mark.parametrize("key_scale", ["raw", "normalised"])
def test_tokens__are_those_of_loops(key_scale):
    rng = np.random.default_rng(5)
    tokens, weights = rng.normal(size=(1, 5, 3)), rng.normal(size=(1, 3, 3, 9))
    found = STUDY["climb"](tokens, weights, 0.4, key_scale, skip=0.3)
    rows, state, cosines, ranks = list(tokens[0]), np.zeros((5, 5)), [], []
    for layer, (query, key, value) in enumerate(np.split(each, 3, axis=1) for each in weights[0]):
        asked, seen = ([row @ matrix for row in rows] for matrix in (query, key))
        if key_scale == "normalised":
            asked, seen = ([row * np.sqrt(3) / np.linalg.norm(row) for row in each] for each in (asked, seen))
        memory = 0.4 if layer else 0.0
        for i in range(5):
            state[i] = [memory * state[i, j] + (1 - memory) * (asked[i] @ seen[j]) for j in range(5)]
        shares = [naive.normalised(np.exp(row)) for row in state]
        rows = [0.3 * rows[i] + 0.7 * sum(shares[i][j] * (rows[j] @ value) for j in range(5)) for i in range(5)]
        units = [row / np.linalg.norm(row) for row in rows]
        cosines.append(np.mean([units[i] @ units[j] for i in range(5) for j in range(5) if i != j]))
        sizes = np.linalg.eigvalsh(np.array(rows).T @ rows)
        ranks.append(np.exp(-sum(p * np.log(p) for p in sizes / sizes.sum())))
    numbers = {"token_cosine": cosines[-1], "token_rank": ranks[-1]}
    numbers |= {"path_cosine": np.mean(cosines), "path_rank": np.mean(ranks)}
    assert {name: found[name][0] for name in numbers} == pytest.approx(numbers)
    assert found["ordinary_gap"][0] > 0.01


@pytest.mark.parametrize(("leak", "order"), [(0.0, 1), (0.5, 3)])
def test_memory__counts_what_followed_the_same_tokens(leak, order):
    """Narrow kernels see equal averages alone: of the last token, or (nearly) of the last three."""
    data = STUDY["chain"](Draw(3), vocabulary=3, length=300)
    found = STUDY["recall"](**data, leak=leak, bandwidth=0.04)["next_token_error"]
    for error, tokens, law in zip(found, data["tokens"], data["law"], strict=True):
        places = [t for t in range(order, 300) if (tokens[t - order : t] == tokens[-order:]).all()]
        counts = np.bincount(tokens[places], minlength=3)
        assert error == pytest.approx((((counts / counts.sum()) - law) ** 2).sum(), abs=1e-3 if order == 1 else 0.05)
