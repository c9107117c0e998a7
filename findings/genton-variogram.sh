#!/usr/bin/env bash
# Guess: variograms by scikit-gstat's robust `genton` estimator have the level of those by its other estimators.
# Found (scikit-gstat 1.0.26, scipy 1.16.3, numpy 2.4.6): they have 0.28 of it.  The estimator takes a quantile of the distances between
# differences, and is given absolute differences, without their signs.  White noise has the semivariance 0.23 where `matheron`, `cressie` and
# `dowd` have 0.80 to 0.86, a field 0.85 for 3.0 to 3.1, so that kriging states 0.28 times the variances that it states with `matheron`.
# Genton's estimator by hand has 0.83 and 3.0, and 0.23 and 0.85 of absolute differences, as an integral says: 0.280.  There is no warning.
# Documented: as Genton's estimator, and `abs(xi - x[i+h])` as what the function takes.  Known: other faults of this estimator were reported and
# mended in 2018 and 2022; on the signs no report was found.
# Why it matters: kriging's standard errors are half of what they are, if an estimator is chosen that outliers do not harm.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check scikit-gstat==1.0.26 pandas==2.3.3 numba==0.68.1 scipy==1.16.3 numpy==2.4.6
MPLBACKEND=Agg "$work/venv/bin/python" - <<'PY'
import warnings

import numpy as np
from scipy import integrate, optimize, stats
from scipy.spatial.distance import pdist
from skgstat import OrdinaryKriging, Variogram

warnings.simplefilter("error")
POINTS = 150


def genton(differences):
    """Half the square of 2.219 times the first quartile of distances between differences."""
    return 0.5 * (2.219 * np.quantile(pdist(differences[:, None]), 0.25)) ** 2


def closer(q):
    """Probability that two absolute normal values differ by at most q."""
    return integrate.quad(lambda x: stats.halfnorm.pdf(x) * (stats.halfnorm.cdf(x + q) - stats.halfnorm.cdf(x - q)), 0, 10)[0]


expected = (2.219 * optimize.brentq(lambda q: closer(q) - 0.25, 0, 5)) ** 2
random = np.random.default_rng(1)
places = random.uniform(0, 100, (POINTS, 2))
lags = pdist(places)
first, second = np.triu_indices(POINTS, 1)
covariance = 4 * np.exp(-np.linalg.norm(places[:, None] - places, axis=2) / 10) + 1e-9 * np.eye(POINTS)
fields = {"white noise": random.normal(size=POINTS), "field": np.linalg.cholesky(covariance) @ random.normal(size=POINTS)}
for name, values in fields.items():
    levels, errors = {}, {}
    for way in ("matheron", "cressie", "dowd", "genton"):
        variogram = Variogram(places, values, estimator=way, model="exponential", n_lags=5, maxlag=50)
        levels[way] = variogram.experimental.mean()
        if name == "field":
            kriging = OrdinaryKriging(variogram, min_points=5, max_points=15)
            kriging.transform(np.array([30.0, 50, 70]), np.array([40.0, 60, 35]))
            errors[way] = kriging.sigma.mean()
    edges = np.r_[0, variogram.bins]
    signed = [(values[first] - values[second])[(lags > low) & (lags <= high)][:3000] for low, high in zip(edges, edges[1:], strict=False)]
    by_hand, unsigned = np.mean([genton(d) for d in signed]), np.mean([genton(np.abs(d)) for d in signed])
    print(f"{name}: semivariances {({w: round(float(x), 3) for w, x in levels.items()})}, variances of kriging "
          f"{({w: round(float(x), 3) for w, x in errors.items()})}; by hand {by_hand:.3f}, of absolute differences {unsigned:.3f}")
    assert all(abs(level / by_hand - 1) < 0.12 for way, level in levels.items() if way != "genton")
    assert abs(levels["genton"] / unsigned - 1) < 0.05 and abs(levels["genton"] / by_hand - expected) < 0.03
print(f"level of absolute normal differences {expected:.3f}; kriging {errors['genton'] / errors['matheron']:.3f}")
assert abs(expected - 0.28) < 0.01 and errors["genton"] < 0.35 * errors["matheron"]
PY
