#!/usr/bin/env bash
# Guess: entropies of SciPy's `Mixture` are minus the mean log density of its draws, whatever is added to all values.
# Found (scipy 1.17.1, numpy 2.4.6): one integral over the whole line misses components that are far from 0 or narrow.  Two normals of
# deviation 1 at 0 and 1000 have 1.056 for 2.112, half of it; at 1000 and 1003 2.109 for 1.946, at 3000 and 3003 0.  Beside a standard
# normal one at 3 of deviation 0.02 or less does not count: 1.056 for 0.154, and for -0.192 at 0.01.  A mixture of one normal at 1000 has
# 0.15 for 1.42 of that normal.  Two uniforms with a gap between them have NaN.  Mean, variance, median and draws are right, and so is the
# entropy within 200 of 0.  The integral takes its part for the whole, or its value is used although it did not converge: there is no
# warning.
# Documented: the definition, and that modes may be local ones; not that entropies may be of a part.  No report was found.
# Why it matters: information gained is a difference of entropies; here one that falls as data become more certain stays as it is.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check scipy==1.17.1 numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import warnings

import numpy as np
from scipy import integrate, stats

DRAWS = 200_000
warnings.simplefilter("error")
rng = np.random.default_rng(1)


def study(*components):
    """Entropy of equal parts of normals, minus their mean log density by draws, and by one integral around each mean."""
    mixture = stats.Mixture([stats.Normal(mu=mean, sigma=deviation) for mean, deviation in components])
    found = float(mixture.entropy())
    drawn = mixture.sample(DRAWS, rng=rng)
    by_draws = -np.mean(mixture.logpdf(drawn))
    right = np.mean([integrate.quad(lambda z: -stats.norm.pdf(z) * float(mixture.logpdf(mean + deviation * z)), -12, 12, limit=400)[0]
                     for mean, deviation in components])
    print(f"normals {components}: entropy {found:.3f}, of draws {by_draws:.3f}, by integrals {right:.3f}")
    assert abs(by_draws - right) < 0.02
    scale = drawn.std()
    assert abs(mixture.mean() - drawn.mean()) < 0.01 * scale and abs(mixture.standard_deviation() / scale - 1) < 0.01
    assert abs(mixture.cdf(mixture.median()) - 0.5) < 1e-6
    return found, right


for components in (((0, 1), (10, 1)), ((0, 1), (100, 1)), ((0, 1), (200, 1)), ((100, 1), (103, 1)), ((0, 1), (3, 0.03))):
    found, right = study(*components)
    assert abs(found - right) < 1e-3
for distance in (500, 1000, 100_000):
    found, right = study((0, 1), (distance, 1))
    assert abs(found / right - 0.5) < 0.01
for components in (((1000, 1), (1003, 1)), ((3000, 1), (3003, 1)), ((1000, 1),), ((0, 1), (3, 0.02)), ((0, 1), (3, 0.01))):
    found, right = study(*components)
    assert abs(found - right) > 0.1
assert abs(stats.Normal(mu=1000, sigma=1).entropy() - stats.norm.entropy()) < 1e-12
with warnings.catch_warnings(action="ignore"):
    gap = float(stats.Mixture([stats.Uniform(a=0, b=1), stats.Uniform(a=5, b=6)]).entropy())
print(f"uniforms from 0 to 1 and from 5 to 6: entropy {gap:.3f}, right {np.log(2):.3f}")
assert np.isnan(gap)
PY
