#!/usr/bin/env bash
# Guess: samplers of emcee that are made one after another are independent, so that errors of many fits average out.
# Found (emcee 3.1.6, numpy 2.4.6): each takes a copy of the state of NumPy's global generator, which it never moves on.  Programs
# that draw with Generators leave that state alone, and all their samplers make the same moves.  Chains from one start are equal;
# errors of fits to 100 data sets are one number.  With `np.random.seed` of each fit's own number it is as guessed.
# Documented is only that the state can be set.
# Why it matters: four chains agree because they are one, and 100 replicates have the Monte Carlo error of one.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check emcee==3.1.6 numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import emcee
import numpy as np

WALKERS, STEPS, SIZE, REPLICATES = 8, 100, 50, 100
rng = np.random.default_rng(0)
start = rng.permutation(np.linspace(-1.4, 1.4, WALKERS))[:, None]


def chain(y):
    """Posterior draws of the mean of normal values with a flat prior, in standard errors from the sample's mean."""
    sampler = emcee.EnsembleSampler(WALKERS, 1, lambda mean: -0.5 * np.sum((y - mean) ** 2))
    sampler.run_mcmc(y.mean() + start / SIZE**0.5, STEPS)
    return (sampler.get_chain(flat=True) - y.mean()) * SIZE**0.5


samples = rng.normal(size=(REPLICATES, SIZE))
np.random.seed(1)
first, second = chain(samples[0]), chain(samples[0])
print("two chains for one sample are equal:", np.array_equal(first, second))
assert np.array_equal(first, second)
for name in ("made in turn", "each with its own seed"):
    errors = np.empty(REPLICATES)
    for replicate, y in enumerate(samples):
        if name != "made in turn":
            np.random.seed(replicate)
        errors[replicate] = chain(y).mean()
    spread = errors.std()
    print(f"{name}: errors of posterior means {errors.mean():.3f} on average, standard deviation {spread:.6f}")
    assert spread < 1e-6 if name == "made in turn" else (spread > 0.05 and abs(errors.mean()) < 4 * spread / REPLICATES**0.5)
PY
