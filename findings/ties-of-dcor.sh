#!/usr/bin/env bash
# Guess: permutation tests of dcor count permutations whose statistic equals that of the data as extreme, so that their level holds for binary data.
# Found (dcor 0.7, scipy 1.17.1, numpy 2.4.6): they count larger ones alone.  Of eight pairs with four ones each, three of which fall on ones, the
# test of distance covariance gives p = 0.03.  Fisher's exact test, all 70 permutations and scipy's `permutation_test` of dcor's own statistic
# give 0.486.  At level 5 % it rejects 46 % of independent samples of four ones each, and so does the energy test of two such groups that vary.
# Of binary samples that vary it is 29 % with eight pairs and 8 % with twenty; of normal numbers 5 %.
# Documented: a p-value by permutations, without a word on ties.  No report was found.
# Why it matters: a few binary or ordinal outcomes are exactly what tests without a normal law are taken for.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check dcor==0.7 scipy==1.17.1 numpy==2.4.6
OMP_NUM_THREADS=1 "$work/venv/bin/python" -W ignore - <<'PY'
from itertools import combinations

import dcor
import numpy as np
from scipy import stats

ONES = np.repeat([0.0, 1.0], 4)
covariance = dcor.independence.distance_covariance_test
data = np.array([1.0, 0, 0, 0, 1, 1, 1, 0])  # three of its four ones on ones
reported = covariance(ONES, data, num_resamples=4999, random_state=1).pvalue
every = [dcor.distance_covariance_sqr(ONES, np.isin(range(8), chosen).astype(float)) for chosen in combinations(range(8), 4)]
observed = dcor.distance_covariance_sqr(ONES, data)
exact, strict = np.mean(np.array(every) >= observed - 1e-12), np.mean(np.array(every) > observed + 1e-12)
fisher = stats.fisher_exact([[3, 1], [1, 3]]).pvalue
by_scipy = stats.permutation_test(
    (data,), lambda y: dcor.distance_covariance_sqr(ONES, y), permutation_type="pairings", alternative="greater", n_resamples=4999, rng=1
).pvalue
print(f"dcor p = {reported:.3f}; all 70: at least as large {exact:.3f}, larger {strict:.3f}; Fisher {fisher:.3f}; scipy {by_scipy:.3f}")
assert abs(reported - strict) < 0.02 and abs(exact - fisher) < 1e-12 and abs(by_scipy - exact) < 0.03 and exact > 0.48


def rejected(test, draw, rounds=600):
    rng = np.random.default_rng(2)
    pairs = (draw(rng) for _ in range(rounds))
    values = [test(*pair, num_resamples=199, random_state=i).pvalue for i, pair in enumerate(pairs) if np.ptp(pair[0]) * np.ptp(pair[1]) > 0]
    return np.mean(np.array(values) <= 0.05)


binary = {n: rejected(covariance, lambda rng, n=n: rng.integers(0, 2, (2, n)).astype(float)) for n in (8, 20)}
fixed, normal = rejected(covariance, lambda rng: (ONES, rng.permutation(ONES))), rejected(covariance, lambda rng: rng.normal(size=(2, 20)))
halves = rejected(dcor.homogeneity.energy_test, lambda rng: rng.permutation(ONES).reshape(2, 4))
print(f"rejected at 5 %: four ones each {fixed:.3f}, binary {binary[8]:.3f} (8), {binary[20]:.3f} (20), normal {normal:.3f}; energy test {halves:.3f}")
assert fixed > 0.4 and binary[8] > 0.2 and binary[20] > 0.06 and halves > 0.4 and normal < 0.07
PY
