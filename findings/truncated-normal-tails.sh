#!/usr/bin/env bash
# Guess: a normal distribution truncated to a tail has draws that lie there as they should, wherever the library lets one truncate.
# Found (jax 0.10.2, scipy 1.17.1, numpyro 0.22.0, torch 2.13.0, numpy 2.4.6): between 6 and 7 draws of `jax.random.truncated_normal` are
# all 6.9999995, the end far from the mean, and between 5 and 6 there are ten values.  `scipy.stats.truncate`, new in 1.15, gives
# draws below 8 between 8 and 9, and infinity between 10 and 11; its mean is right, and so is the lower tail.  There is no warning.
# truncnorm of SciPy, numpyro, and trunc_normal_ of torch are as guessed.  jax has an open report of 2022; not documented.
# Why it matters: importance sampling, censored outcomes and selection after a test draw from such tails.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 scipy==1.17.1 numpyro==0.22.0 torch==2.13.0 numpy==2.4.6
JAX_PLATFORMS=cpu CUDA_VISIBLE_DEVICES= "$work/venv/bin/python" -W ignore - <<'PY'
import jax
import numpy as np
import numpyro.distributions
import torch
from scipy import stats

SIZE = 100_000
generator = torch.Generator().manual_seed(0)
draws = {
    "jax": lambda low, high: jax.random.truncated_normal(jax.random.key(0), low, high, (SIZE,)),
    "truncate of scipy": lambda low, high: stats.truncate(stats.Normal(), low, high).sample(SIZE, rng=0),
    "truncnorm of scipy": lambda low, high: stats.truncnorm(low, high).rvs(SIZE, random_state=0),
    "numpyro": lambda low, high: numpyro.distributions.TruncatedNormal(low=low, high=high).sample(jax.random.key(0), (SIZE,)),
    "torch": lambda low, high: torch.nn.init.trunc_normal_(torch.empty(SIZE), a=low, b=high, generator=generator),
}
bad = {}
for name, draw in draws.items():
    for low, high in ((3.0, 4.0), (5.0, 6.0), (6.0, 7.0), (8.0, 9.0), (10.0, 11.0), (-11.0, -10.0)):
        if name in ("numpyro", "torch") and abs(low) > 6:
            continue
        found, right = np.asarray(draw(low, high), float), stats.truncnorm(low, high).mean()
        outside, values = np.mean((found < low) | (found > high)), len(np.unique(found))
        print(f"{name}, {low:g} to {high:g}: mean {found.mean():.4f} for {right:.4f}, {values} values, outside {outside:.3f}")
        if outside or values < SIZE / 100 or not abs(found.mean() - right) < 0.005:
            bad.setdefault(name, []).append(low)
print(bad)
assert bad == {"jax": [5.0, 6.0, 8.0, 10.0, -11.0], "truncate of scipy": [8.0, 10.0]}
assert np.allclose(draws["jax"](6.0, 7.0), 7, atol=1e-6) and np.isinf(draws["truncate of scipy"](10.0, 11.0)).all()
assert np.isclose(stats.truncate(stats.Normal(), 10, 11).mean(), stats.truncnorm(10, 11).mean())
PY
