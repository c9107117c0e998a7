#!/usr/bin/env bash
# Guess: rows of SciPy's `MultinomialQMC` are draws from the multinomial distribution, as rows of `MultivariateNormalQMC` are normal.
# Found (scipy 1.17.1, numpy 2.4.6): each row counts as many successive points of one sequence as it has trials, which are spread evenly.
# Of 64 trials with probabilities 0.05, 0.2, 0.25 and 0.5 the variances of counts over 2,000 seeds are 0.15, 0.15, 0 and 0 for 3, 10, 12
# and 16; the last two counts are 16 and 32 in each row.  Of 20 trials the first category is missing in 15 % of 8,192 rows for 36 %, and
# the largest count is 10 on average for 10.2.  A chi-squared test of each row has the mean 0.4 (64 trials: 0.06) for 3, and rejects none.
# Halton's points give the same.  Means are right, and normal rows have the right covariance.
# Documented: as sampling from a multinomial distribution by quasi-Monte Carlo.  No report on this was found.
# Why it matters: bootstrap weights, spreads and extremes of counts, and chances that a category is empty, are none of a multinomial.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check scipy==1.17.1 numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import warnings

import numpy as np
from scipy import stats
from scipy.stats import qmc

warnings.simplefilter("error")
warnings.filterwarnings("ignore", "The balance properties")  # of rows whose trials are no power of 2
P = np.array([0.05, 0.2, 0.25, 0.5])
SEEDS = 2000


def over_seeds(trials, engine):
    return np.concatenate([qmc.MultinomialQMC(P, trials, engine=engine(seed)).random(1) for seed in range(SEEDS)])


for name, engine in (("Sobol", lambda seed: qmc.Sobol(1, rng=seed)), ("Halton", lambda seed: qmc.Halton(1, rng=seed))):
    for trials in (20, 64):
        counts, right = over_seeds(trials, engine), trials * P * (1 - P)
        test = stats.chisquare(counts, trials * P, axis=1)
        print(f"{name}, {trials} trials, over seeds: means {counts.mean(axis=0).round(2)} for {trials * P}; variances "
              f"{counts.var(axis=0).round(2)} for {right.round(2)}; chi-squared {test.statistic.mean():.2f} for 3, p ≤ 0.05 in "
              f"{np.mean(test.pvalue <= 0.05):.1%}")
        assert np.allclose(counts.mean(axis=0), trials * P, atol=0.1) and (counts.var(axis=0) < 0.4 * right).all()
        assert np.mean(test.pvalue <= 0.05) < 0.001
        assert trials < 64 or (counts.var(axis=0) < 0.1 * right).all() and (counts[:, 2:] == [16, 32]).all()

rows = 8192
drawn = np.random.default_rng(1).multinomial(20, P, size=rows)
even = qmc.MultinomialQMC(P, 20, rng=1).random(rows)
for name, counts in (("multinomial", drawn), ("by quasi-Monte Carlo", even)):
    print(f"{rows} rows {name}: first category missing in {np.mean(counts[:, 0] == 0):.1%} for {0.95**20:.1%}; largest count "
          f"{counts.max(axis=1).mean():.2f}; variances {counts.var(axis=0).round(2)}")
assert abs(np.mean(drawn[:, 0] == 0) - 0.95**20) < 0.03 and np.mean(even[:, 0] == 0) < 0.2
assert drawn.max(axis=1).mean() > 10.15 and (even.max(axis=1) == 10).all()

normal = qmc.MultivariateNormalQMC(np.zeros(2), [[2, 0.5], [0.5, 1]], rng=1).random(rows)
print("normal rows have the covariance", np.cov(normal.T).round(3).tolist())
assert np.allclose(np.cov(normal.T), [[2, 0.5], [0.5, 1]], atol=0.02)
PY
