"""Functions of kq-svd: errors of outputs, which no claim fixes, against loops."""

import runpy

import naive
import numpy as np
import pytest
from commands import ROOT

compress = runpy.run_path(str(ROOT / "designs" / "kq-svd" / "functions.py"))["compress"]


@pytest.mark.parametrize("compression", ["scores", "keys", "stacked"])
def test_errors__are_those_of_loops(compression):
    rng = np.random.default_rng(4)
    keys, queries, values = rng.normal(size=(2, 9, 4)), 0.7 * rng.normal(size=(2, 9, 4)), rng.normal(size=(2, 9, 1))
    found = compress(keys, queries, values, 2, compression, temperature=0.6)
    for r in range(2):
        errors = []
        for kind in (compression, "scores"):
            scores = keys[r] @ queries[r].T
            nearest = naive.low_rank_scores(keys[r], queries[r], 2, kind)
            weights = [np.array([naive.normalised(np.exp(row / 0.6)) for row in each.T]) for each in (nearest, scores)]
            outputs = [each @ values[r] for each in weights]
            errors.append(np.linalg.norm(outputs[0] - outputs[1]) / np.linalg.norm(outputs[1]))
            if kind == compression:
                missed = np.linalg.norm(nearest - scores) / np.linalg.norm(scores)
                assert found["score_error"][r] == pytest.approx(missed)
        assert found["output_error"][r] == pytest.approx(errors[0])
        assert found["beats_scores"][r] == (compression != "scores" and errors[0] < errors[1])
