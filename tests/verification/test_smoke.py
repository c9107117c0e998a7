"""A few configurations of ``make verify``, so that the ordinary test suite notices when it breaks."""

from __future__ import annotations

import numpy as np
import pytest
from configurations import configuration
from scipy import stats
from zscores import exact, judge, leading, noise_only, simulated, z_score

# With noise integrated out, so that fewer kernels are compiled.
NUMBERS = (1, 3, 14, 15, 16, 19)


@pytest.fixture(scope="module")
def runs():
    chosen = [configuration(number)._replace(n_batches=4) for number in NUMBERS]
    return [(one, simulated(one)) for one in chosen]


def test_exact_moments_agree_with_simulation(runs):
    z = [z_score(measured, exact(chosen)) for chosen, measured in runs]
    assert np.abs(z).max() < stats.norm.isf(0.01 / (2 * len(z)))


@pytest.mark.parametrize(("wrong", "number"), [(leading, 3), (noise_only, 1)])
def test_a_wrong_theory_is_caught(runs, wrong, number):
    chosen, measured = runs[NUMBERS.index(number)]
    assert abs(z_score(measured, wrong(chosen))) > stats.norm.isf(0.0005)


def test_verdict_is_strict_but_accepts_normal_scores():
    z = stats.norm.ppf((np.arange(250) + 0.5) / 250)
    assert judge(z).failures == []
    assert judge(z + 0.5).failures
    assert judge(1.3 * z).failures
    assert "largest |z|" in judge(np.append(z, 5.0)).failures
