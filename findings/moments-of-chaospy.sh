#!/usr/bin/env bash
# Guess: moments and densities that chaospy states for a distribution are those of what it draws from it.
# Found (chaospy 4.3.21, numpoly 1.3.9, scipy 1.16.3, numpy 2.3.5): not of generalised gamma and Burr distributions.  A generalised gamma
# variable with shapes 1 and 2 has mean 0.89 and variance 0.21, as draws, SciPy and chaospy's own Gaussian quadrature have, and the stated ones
# are 2 and 2; with shapes 2 and 1.5 the mean is 1.50, and 0.74 stated.  Burr's draws are of type XII, with mean 0.83 for shapes 4 and 2, the
# stated mean, 1.39, is that of type III, and the density is that of neither: 213 at 0.5, where SciPy and differences of the distribution
# function have 0.83.  Gamma, Weibull and Fisk variables agree in all.  There is no warning.
# Documented: as generalised gamma distribution, and "Burr Type XII or Singh-Maddala distribution".  Known: in 2018 it was reported that
# Burr's functions were of two types; they were mended, and still are.
# Why it matters: expected values, and expansions that are orthogonal by them, are those of another variable than is sampled.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check chaospy==4.3.21 numpoly==1.3.9 scipy==1.16.3 numpy==2.3.5
"$work/venv/bin/python" - <<'PY'
import warnings

import chaospy
import numpy as np
from scipy import stats

warnings.simplefilter("error")
x, step = np.array([0.5, 1.5]), 1e-4
kinds = {
    "gamma, 2": (chaospy.Gamma(2), stats.gamma(2)), "Weibull, 1.5": (chaospy.Weibull(1.5), stats.weibull_min(1.5)),
    "Fisk, 8": (chaospy.Fisk(8), stats.fisk(8)),
    "generalised gamma, 1 and 2": (chaospy.GeneralizedGamma(1, 2), stats.gengamma(1, 2)),
    "generalised gamma, 2 and 1.5": (chaospy.GeneralizedGamma(2, 1.5), stats.gengamma(2, 1.5)),
    "Burr, 4 and 2": (chaospy.Burr(4, 2), stats.burr12(4, 2)), "Burr, 8 and 3": (chaospy.Burr(8, 3), stats.burr12(8, 3))}
for name, (variable, right) in kinds.items():
    draws = variable.sample(100_000, seed=1)
    stated = np.array([float(chaospy.E(variable)), float(chaospy.Var(variable))])
    true, drawn = np.array(right.stats("mv")), np.array([draws.mean(), draws.var()])
    density, slope = variable.pdf(x), (variable.cdf(x + step) - variable.cdf(x - step)) / (2 * step)
    print(f"{name}: mean and variance {stated.round(3)}, of draws {drawn.round(3)}, SciPy's {true.round(3)}; "
          f"density {density.round(3)}, SciPy's {right.pdf(x).round(3)}, slope of the distribution function {slope.round(3)}")
    assert np.allclose(drawn, true, rtol=0.03) and np.allclose(slope, right.pdf(x), rtol=1e-4)
    assert np.allclose(stated, true, rtol=1e-6) == (not name.startswith(("gen", "Burr")))
    assert np.allclose(density, right.pdf(x), rtol=1e-6) == (not name.startswith("Burr"))
    if name.startswith("gen"):
        nodes, weights = chaospy.generate_quadrature(4, variable, rule="gaussian")
        print(f"{name}: mean by chaospy's quadrature {weights @ nodes.ravel():.3f}")
        assert np.isclose(weights @ nodes.ravel(), true[0], rtol=1e-3) and abs(stated[0] / true[0] - 1) > 0.4
    if name == "Burr, 4 and 2":
        assert np.isclose(stated[0], stats.burr(4, 2).mean()) and density[0] > 200
PY
