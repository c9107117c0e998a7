"""Dimensions of heads: against loops over the definition, and on keys whose dimension is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from simstudy.temperatures import Problem, best_sharpness
from simstudy.transformers.attention import GAPS, Projected, dimensions


@pytest.mark.parametrize("window", [99, 15])
@pytest.mark.parametrize("causal", [False, True])
def test_dimensions__are_those_of_loops(causal, window):
    rng = np.random.default_rng(0)
    query, key = rng.standard_normal((2, 3, 25, 4))
    back = np.subtract.outer(np.arange(25), np.arange(25))
    found = dimensions(Projected(query, key), 0.5, (np.abs(back) < window) & (back >= 0 if causal else True))
    for h in range(3):
        apparent, logs = [], {k: [] for k in GAPS}
        for t in range(2 if causal else 0, 25):
            seen = [s for s in range(t if causal else 25) if 0 < abs(s - t) < window]
            logits = [0.5 * float(query[h, t] @ key[h, s]) for s in seen]
            entries = [np.average(logits, weights=[math.exp(power * each) for each in logits]) for power in (2, 1)]
            apparent.append(4 * (entries[0] - entries[1]))
            gaps = sorted(max(logits) - each for each in logits)[1:]
            for k in GAPS:
                logs[k] += [math.log(gaps[k - 1] / each) for each in gaps[: k - 1]] if len(gaps) >= k else []
        assert found.apparent_dimension[h] == pytest.approx(np.mean(apparent), rel=1e-9)
        for k, value in zip(GAPS, found.log_gaps[h], strict=True):
            assert value == pytest.approx(np.mean(logs[k]) if logs[k] else math.nan, rel=1e-9, nan_ok=True)
        lengths = np.linalg.norm(key[h] - key[h].mean(axis=0), axis=1)
        assert found.key_length_variation[h] == pytest.approx(lengths.std() / lengths.mean())


def sphere(rng, n_tokens, d):
    key = rng.standard_normal((4, n_tokens, d))
    return key / np.linalg.norm(key, axis=-1, keepdims=True)


def test_dimension_of_the_sphere__is_found_at_four_and_not_beyond_sixteen():
    """Four draws each; at the best temperature a sphere of 63 dimensions does not look like more than 10."""
    rng, found = np.random.default_rng(1), {}
    for d in (4, 16, 64):
        key = sphere(rng, 4096, d)
        found[d] = dimensions(Projected(key, key), best_sharpness(Problem("unit", d), 4096), None)
        assert found[d].key_length_variation.max() < 0.02
    assert found[4].apparent_dimension.mean() == pytest.approx(3.0, abs=0.2)
    assert 2 / found[4].log_gaps[:, -1].mean() == pytest.approx(3.0, abs=0.5)
    assert 6.5 < found[16].apparent_dimension.mean() < found[64].apparent_dimension.mean() < 10.0
    assert found[64].log_gaps[:, 0].mean() > 2 / 5.0


def test_gaussian_keys__vary_in_length():
    key = np.random.default_rng(2).standard_normal((1, 4096, 64))
    found = dimensions(Projected(key, key), 0.1, None)
    assert found.key_length_variation == pytest.approx(1 / math.sqrt(128), rel=0.1)
