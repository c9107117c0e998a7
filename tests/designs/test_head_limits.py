"""Functions of head-limits: the best head of few dimensions, against a search over heads."""

import runpy

import numpy as np
import pytest
from commands import ROOT
from scipy.optimize import minimize

best_head = runpy.run_path(str(ROOT / "designs" / "head-limits" / "functions.py"))["best_head"]


@pytest.mark.parametrize("d", [5, 2])
def test_error__is_the_least_that_a_search_finds(d):
    rng = np.random.default_rng(2)
    tokens, logits = rng.normal(size=(4, d)), rng.normal(size=(4, 4))

    def missed(flat):
        query, key = flat.reshape(2, d)
        gaps = np.outer(tokens @ query, tokens @ key) - logits
        return ((gaps - gaps.mean(axis=1, keepdims=True)) ** 2).sum()

    best = min((minimize(missed, rng.normal(size=2 * d)) for _ in range(4)), key=lambda found: found.fun)
    whole = ((logits - logits.mean(axis=1, keepdims=True)) ** 2).sum()
    query, key = best.x.reshape(2, d)
    weights = [np.exp(each) for each in (np.outer(tokens @ query, tokens @ key), logits)]
    drawn, wanted = (each / each.sum(axis=1, keepdims=True) for each in weights)
    found = best_head(tokens[None], logits[None], 1)
    assert found["pattern_error"][0] == pytest.approx(best.fun / whole, rel=1e-5)
    assert found["pattern_distance"][0] == pytest.approx(np.abs(drawn - wanted).sum() / 8, rel=1e-3)
