#!/usr/bin/env bash
# Guess: p-values of mlxtend's `permutation_test` are the same in whatever unit, as they depend on the order of statistics alone.
# Found (mlxtend 0.25.0, scipy 1.17.1, numpy 2.4.6): they are 1 if the statistic is below 1e-8.  Of two samples of ten, three standard deviations
# apart, p is 0.001 in seconds and 1 if the same values are billionths of a second; exact and drawn, paired or not, with each hypothesis
# and with an own function; in hundred-millionths the exact p is 0.03 for 0.002.  Permuted statistics count as extreme if `np.isclose` to
# the observed one, and that allows 1e-8 in whatever unit.  With a tolerance relative to the observed one, and by SciPy's
# `permutation_test`, units change nothing.  There is no warning.
# Documented: no tolerance.  Known: in 2020 and 2021 that equal ones must count, not what this does to small ones.
# Why it matters: no difference of latencies, of small losses, gradients or probabilities is ever significant.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check mlxtend==0.25.0 scipy==1.17.1 numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import warnings
from itertools import combinations

import numpy as np
from mlxtend.evaluate import permutation_test
from scipy import stats

warnings.simplefilter("error")
rng = np.random.default_rng(1)
X, Y = rng.normal(size=10) + 3, rng.normal(size=10)


def apart(x, y):
    return abs(np.mean(x) - np.mean(y))


def by_hand(x, y):
    values, observed = np.concatenate([x, y]), apart(x, y)
    firsts = [np.isin(range(len(values)), first) for first in combinations(range(len(values)), len(x))]
    return np.mean([apart(values[first], values[~first]) >= observed * (1 - 1e-9) for first in firsts])


DRAWN = {"method": "approximate", "num_rounds": 2000, "seed": 1}
WAYS = {
    "exact": lambda x, y: permutation_test(x[:6], y[:6], method="exact"),
    "exact, own function": lambda x, y: permutation_test(x[:6], y[:6], method="exact", func=apart),
    "exact, paired": lambda x, y: permutation_test(x, y, method="exact", paired=True),
    "drawn": lambda x, y: permutation_test(x, y, **DRAWN),
    "drawn, greater": lambda x, y: permutation_test(x, y, func="x_mean > y_mean", **DRAWN),
    "drawn, paired": lambda x, y: permutation_test(x, y, paired=True, **DRAWN),
    "by hand": lambda x, y: by_hand(x[:6], y[:6]),
    "SciPy": lambda x, y: stats.permutation_test((x[:6], y[:6]), apart, alternative="greater", n_resamples=np.inf).pvalue,
}
found = {name: [way(X * unit, Y * unit) for unit in (1e9, 1, 1e-6, 1e-8, 1e-9, 1e-12)] for name, way in WAYS.items()}
for name, p in found.items():
    print(f"{name}: p {np.round(p, 4)}")
    assert np.ptp(p[:3]) == 0 and p[0] < 0.005
    if name in ("by hand", "SciPy"):
        assert np.ptp(p) == 0 and np.isclose(p[0], found["exact"][0])
    else:
        assert p[3] > 2 * p[0] and p[4:] == [1, 1]
losses = rng.gamma(1, 1e-9, size=(2, 200)) * [[1], [5]]
ours, right = permutation_test(*losses, **DRAWN), stats.mannwhitneyu(*losses).pvalue
print(f"losses with the means {losses.mean(axis=1)}: p {ours:.3f}, Mann and Whitney's {right:.1g}")
assert ours == 1 and right < 1e-20
PY
