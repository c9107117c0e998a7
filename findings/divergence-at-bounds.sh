#!/usr/bin/env bash
# Guess: a divergence of torch is infinite only if the first distribution has mass where the second has none, and 0 of a distribution from
# itself.
# Found (torch 2.14.1, scipy 1.17.1, numpy 2.4.6): not between `Uniform` and `ContinuousBernoulli`.  They count an end that both share as
# mass outside: that of a continuous Bernoulli with `probs` 0.3 from the uniform between 0 and 1 is infinite for 0.029, and 0.029 again
# from one between -0.000001 and 1.000001.  With `probs` 0.5, where both are one distribution, it is infinite in both directions.  So
# are those from uniforms between 0 and 2, or -1 and 1, and those of uniforms with one end at 0 or 1, as between 0 and 0.5 for 0.51.  By
# `Beta`, whose ends are the same, all are right, in either precision.  There is no warning.
# Documented: the pair as implemented.  Known: NaN for the uniform from a beta distribution, mended; this pair is not reported.
# Why it matters: pixels and rates lie between 0 and 1, and their first model is the uniform; a loss with this term is infinite at
# every step.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.14.1 scipy==1.17.1 numpy==2.4.6
CUDA_VISIBLE_DEVICES= "$work/venv/bin/python" - <<'PY'
import warnings

import numpy as np
import torch
from scipy import stats
from scipy.integrate import quad
from torch.distributions import Beta, ContinuousBernoulli, Uniform, kl_divergence

warnings.simplefilter("error")


def density(distribution):
    """Density of a distribution by NumPy and SciPy, and the ends of its range."""
    if isinstance(distribution, Uniform):
        low, high = float(distribution.low), float(distribution.high)
        return (lambda x: float(low <= x <= high) / (high - low)), low, high
    if isinstance(distribution, Beta):
        return stats.beta(float(distribution.concentration1), float(distribution.concentration0)).pdf, 0, 1
    probability = float(distribution.probs)
    slope = np.log(probability / (1 - probability))
    area = quad(lambda x: np.exp(slope * x), 0, 1)[0]
    return (lambda x: float(0 <= x <= 1) * np.exp(slope * x) / area), 0, 1


def right(first, second):
    (one, low, high), (other, start, end) = density(first), density(second)
    if low < start or high > end:
        return np.inf
    return quad(lambda x: one(x) * np.log(one(x) / other(x)), low, high)[0]


def study(first, second, name):
    found, by_integral = float(kl_divergence(first, second)), right(first, second)
    print(f"{name}: {found:.4f}, by integral {by_integral:.4f}")
    return found, by_integral


for precision in (torch.float32, torch.float64):
    for low, high in ((0, 1), (-1e-6, 1 + 1e-6), (-0.5, 1.5), (0, 2), (-1, 1), (0.1, 0.9), (0, 0.5), (0.5, 1)):
        uniform = Uniform(torch.tensor(low, dtype=precision), torch.tensor(high, dtype=precision))
        for probability in (0.3, 0.5):
            bernoulli = ContinuousBernoulli(torch.tensor(probability, dtype=precision))
            for first, second in ((bernoulli, uniform), (uniform, bernoulli)):
                found, by_integral = study(first, second, f"{probability} and uniform from {low} to {high}, "
                                           f"{'from' if first is bernoulli else 'of'} the uniform")
                if np.isinf(found):
                    shared = low in (0, 1) or high in (0, 1)
                    assert np.isinf(by_integral) or shared
                else:
                    assert abs(found - by_integral) < 1e-4
                if (low, high) in ((0, 1), (0, 2), (-1, 1)) and first is bernoulli:
                    assert np.isinf(found) and np.isfinite(by_integral)
                if (low, high) in ((0, 1), (0, 0.5), (0.5, 1)) and first is uniform:
                    assert np.isinf(found) and np.isfinite(by_integral)
        beta = Beta(torch.tensor(2.0, dtype=precision), torch.tensor(3.0, dtype=precision))
        for first, second in ((beta, uniform), (uniform, beta)):
            found, by_integral = study(first, second, f"Beta(2, 3) and uniform from {low} to {high}")
            assert found == by_integral or abs(found - by_integral) < 1e-4
    same = ContinuousBernoulli(torch.tensor(0.5, dtype=precision)), Uniform(*torch.tensor([0, 1], dtype=precision))
    points = torch.linspace(0, 1, 101, dtype=precision)
    assert abs(same[0].log_prob(points) - same[1].log_prob(points.clamp(max=1 - 1e-6))).max() < 1e-3
PY
