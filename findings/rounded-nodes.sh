#!/usr/bin/env bash
# Guess: chaospy's Gaussian quadrature is exact for the means of discrete variables, as of continuous ones.
# Found (chaospy 4.3.21, numpoly 1.3.9, scipy 1.16.3, numpy 2.3.5): it is not.  Its nodes are rounded to integers, and keep the weights that
# belong to them as they were.  Of a binomial variable with mean 1.5 and variance 1.05, two to five nodes have the means 1.81, 1.57, 1.40 and
# 1.36, and the variances 0.96, 1.53, 1.34 and 0.84; of a number from 1 to 4, three nodes have 2.30 for 2.5.  By hand, from the eigenvalues
# of the recurrence's matrix, all are exact, and rounded they are chaospy's.  An expansion of the second degree that is fitted by three nodes to
# x squared of the first is wrong by 0.68 on average, where it can be exact.  Of a gamma variable all are exact.  There is no warning.
# Documented: "Create Gaussian quadrature nodes and weights".  No report on this was found.
# Why it matters: means and sensitivities of models with counts as inputs are wrong, however smooth the model.
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


def by_hand(places, probabilities, size):
    """Gaussian nodes and weights from the eigenvalues of the matrix of the recurrence of orthogonal polynomials."""
    before, now, norms, middles = np.zeros(len(places)), np.ones(len(places)), [1.0], []
    for _ in range(size):
        norms.append(probabilities @ now**2)
        middles.append(probabilities @ (places * now**2) / norms[-1])
        before, now = now, (places - middles[-1]) * now - norms[-1] / norms[-2] * before
    sides = np.sqrt(np.array(norms[2:]) / norms[1:-1])
    nodes, vectors = np.linalg.eigh(np.diag(middles) + np.diag(sides, 1) + np.diag(sides, -1))
    return nodes, vectors[0] ** 2


def moments(nodes, weights):
    return float(weights @ nodes), float(weights @ nodes**2 - (weights @ nodes) ** 2)


places = np.arange(21)
fine = stats.gamma.ppf((np.arange(200_000) + 0.5) / 200_000, 2)
kinds = {
    "binomial, 5 of 0.3": (chaospy.Binomial(5, 0.3), places[:6], stats.binom.pmf(places[:6], 5, 0.3)),
    "binomial, 20 of 0.2": (chaospy.Binomial(20, 0.2), places, stats.binom.pmf(places, 20, 0.2)),
    "1 to 4": (chaospy.DiscreteUniform(1, 4), places[1:5], np.full(4, 0.25)), "gamma": (chaospy.Gamma(2), fine, np.full(200_000, 1 / 200_000))}
for name, (variable, values, probabilities) in kinds.items():
    right = moments(values, probabilities)
    errors = []
    for size in (2, 3, 4, 5)[:3 if name == "1 to 4" else 4]:
        nodes, weights = chaospy.generate_quadrature(size - 1, variable, rule="gaussian")
        found, hand, rounded = moments(nodes.ravel(), weights), *(
            moments(each, weights_by_hand) for nodes_by_hand, weights_by_hand in [by_hand(values, probabilities, size)]
            for each in (nodes_by_hand, np.round(nodes_by_hand)))
        print(f"{name}, {size} nodes: mean and variance {np.round(found, 3)}, by hand {np.round(hand, 3)}, rounded {np.round(rounded, 3)}; "
              f"true {np.round(right, 3)}")
        assert np.allclose(hand, right) and np.allclose(found, right if name == "gamma" else rounded, rtol=1e-2)
        errors.append(abs(found[0] / right[0] - 1))
    assert (max(errors) > 0.05) == (name != "gamma")
    nodes, weights = chaospy.generate_quadrature(2, variable, rule="gaussian")
    expansion = chaospy.generate_expansion(2, variable)
    fit = chaospy.fit_quadrature(expansion, nodes, weights, nodes.ravel() ** 2)
    error = probabilities @ np.abs(fit(values) - values**2)
    print(f"{name}: an expansion for x squared by 3 nodes is wrong by {error:.2g} on average")
    assert (error > 0.1) == (name != "gamma")
PY
