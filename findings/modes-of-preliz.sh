#!/usr/bin/env bash
# Guess: `mode()` of PreliZ's distributions is the value at which their own density or probability is largest.
# Found (preliz 0.24.0, pytensor 2.38.3, pytensor-distributions 0.1.3, numpy 2.4.6, scipy 1.17.1): of 30 kinds two have another.  That of `LogitNormal` is its
# median: with location 1 and scale 1 it is 0.73, where the density is largest at 0.84; with location 0 and scale 3 it is 0.5, where the
# density is least between two peaks.  That of `DiscreteWeibull(0.8, 1.2)` is 8, with probability 0.02, where 1 has 0.20; of (0.5, 1), which is the
# geometric distribution, it is -9.2e18, with probability 0.
# Documented: nothing beyond "mode".  Known: a review of the change that added both (#636) doubted the second; no report of either was found.
# Why it matters: priors are elicited by `maxent` with a fixed mode, and described by it.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check preliz==0.24.0 pytensor==2.38.3 pytensor-distributions==0.1.3 \
    numpy==2.4.6 scipy==1.17.1 numba==0.65.1 arviz-stats==0.8.0 matplotlib==3.10.9
OMP_NUM_THREADS=1 "$work/venv/bin/python" -W ignore - <<'PY'
import numpy as np
import preliz as pz

places, counts = np.linspace(1e-6, 1 - 1e-6, 200_001), np.arange(60)
for kind, parameters, x in (
    *((pz.LogitNormal, each, places) for each in ((0.0, 0.5), (1.0, 1.0), (0.0, 3.0))),
    *((pz.DiscreteWeibull, each, counts) for each in ((0.8, 1.2), (0.9, 2.0), (0.5, 1.0))),
    (pz.Beta, (2.0, 3.5), places), (pz.NegativeBinomial, (4.0, 2.5), counts), (pz.LogNormal, (-1.0, 0.4), places),
):
    distribution = kind(*parameters)
    density, mode = np.array(distribution.pdf(x)), float(distribution.mode())
    here, best = float(distribution.pdf(mode)), x[density.argmax()]
    print(f"{kind.__name__}{parameters}: mode {mode:.4g} with density {here:.3g}; largest {density.max():.3g} at {best:.4g}")
    if kind is pz.LogitNormal:
        assert np.isclose(mode, distribution.median()) and (np.isclose(mode, best, atol=1e-3) == (parameters[0] == 0 and parameters[1] < 1))
    elif kind is pz.DiscreteWeibull:
        assert mode != best and here < 0.8 * density.max()
    else:
        assert np.isclose(here, density.max(), rtol=1e-3)
low, peaks = float(pz.LogitNormal(0.0, 3.0).pdf(0.5)), np.array(pz.LogitNormal(0.0, 3.0).pdf(np.array([0.1, 0.9])))
assert (peaks > 1.2 * low).all()
PY
