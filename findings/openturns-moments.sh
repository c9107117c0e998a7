#!/usr/bin/env bash
# Guess: standard deviations, kurtoses, entropies and quantiles of OpenTURNS' distributions are those of their densities and draws.
# Found (openturns 1.27.post1, scipy 1.17.1, numpy 2.4.6): not all.  Standard deviations of a Dirichlet with weights 4, 2, 7, 1 are 0.74,
# 0.44 and 0.90 for 0.12, 0.09 and 0.13, more than values between 0 and 1 can have; with two weights of 1 they are right.  The
# kurtosis of a log-uniform from 1 to e³ is 0.19 for 2.87, less than the square of its skewness, and that of a Bernoulli too large by 12.
# The entropy of a noncentral Student with 5 degrees of freedom and parameter 3 is 0.36 for 1.91.  The median of a Rice variable
# around 50 is 5e123, so that Latin hypercubes of it have means of 4e123.  Draws, covariances, fourth moments and `computeCDF` are
# right; marginals of the Dirichlet with three weights or more and `Binomial(1, p)` are, too.  There is no warning.
# Documented: a standard deviation as root of the variance.  Known: the Dirichlet's skewness and Kendall's tau, mended in 1.23.
# Why it matters: draws are standardised by these numbers, and designs of inputs are made of quantiles.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check openturns==1.27.post1 scipy==1.17.1 numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import warnings

import numpy as np
import openturns as ot
from scipy import stats

DRAWS = 200_000
warnings.simplefilter("error")
ot.RandomGenerator.SetSeed(1)


def draws(distribution):
    return np.array(distribution.getSample(DRAWS))


for weights in ((1, 1), (1, 1, 1), (1, 2), (3, 5), (4, 2, 7, 1)):
    dirichlet = ot.Dirichlet(weights)
    found, drawn = np.array(dirichlet.getStandardDeviation()), draws(dirichlet).std(axis=0)
    variances = np.diag(np.array(dirichlet.getCovariance()))
    print(f"Dirichlet {weights}: standard deviations {found.round(3)}, of draws {drawn.round(3)}, of covariances "
          f"{np.sqrt(variances).round(3)}")
    assert abs(drawn / np.sqrt(variances) - 1).max() < 0.01
    assert np.allclose(found**2, variances) if weights == (1, 1) else (found > 1.4 * drawn).all()
    if len(weights) > 2:
        assert np.isclose(dirichlet.getMarginal(0).getStandardDeviation()[0] ** 2, variances[0])
assert found.max() > 0.9
for name, distribution, error in (
        ("log-uniform from 1 to e", ot.LogUniform(0, 1), -1.230), ("log-uniform from 1 to e³", ot.LogUniform(0, 3), -2.675),
        ("Bernoulli of 0.5", ot.Bernoulli(0.5), 12), ("Bernoulli of 0.1", ot.Bernoulli(0.1), 12),
        ("Binomial of 1 and 0.1", ot.Binomial(1, 0.1), 0), ("uniform", ot.Uniform(0, 1), 0)):
    kurtosis, skewness = distribution.getKurtosis()[0], distribution.getSkewness()[0]
    right = distribution.getCentralMoment(4)[0] / distribution.getStandardDeviation()[0] ** 4
    drawn = stats.kurtosis(draws(distribution), fisher=False)[0]
    print(f"{name}: kurtosis {kurtosis:.3f}, of draws {drawn:.3f}, by moments {right:.3f}; skewness {skewness:.3f}")
    assert abs(drawn / right - 1) < 0.03 and abs(kurtosis - right - error) < 0.01
    assert (kurtosis < 1 + skewness**2 - 1e-9) == (error < 0)
for parameter in (0.0, 3.0):
    student = ot.NonCentralStudent(5, parameter, 0)
    right = -np.mean(np.array(student.computeLogPDF(student.getSample(DRAWS))))
    print(f"noncentral Student, parameter {parameter}: entropy {student.computeEntropy():.3f}, of draws {right:.3f}")
    assert abs(student.computeEntropy() - right) > 1
for centre in (20, 50):
    rice = ot.Rice(1, centre)
    right, median = stats.rice(centre).median(), rice.computeQuantile(0.5)[0]
    cube = np.mean(np.array(ot.LHSExperiment(rice, 64).generate()))
    print(f"Rice around {centre}: median {median:.4g}, right {right:.4g}; mean of draws {draws(rice).mean():.2f}, of a Latin hypercube "
          f"{cube:.4g}")
    assert abs(rice.computeCDF(right) - 0.5) < 1e-9 and abs(draws(rice).mean() - right) < 0.05
    assert abs(median - right) < 1e-3 and abs(cube - right) < 0.1 if centre == 20 else min(median, cube) > 1e100
PY
