#!/usr/bin/env bash
# Guess: arch's `SPA` divides means of loss differences by their deviations if `studentize=True`, which is the default, as Hansen's test does.
# Found (arch 8.0.0, scipy 1.17.1, numpy 2.4.6): it never does.  `studentize` and `nested` change the text that describes the test, and no
# digit of its three p-values.  A model that is better than the benchmark by 0.2 with deviation 1 has an upper p-value below 0.05 in 94 % of
# 200 studies of 250 losses if it is compared alone, and in 3 % if a useless model with deviation 20 is compared as well; studentised by
# hand in 88 %, and by hand without that in 3 %.  There is no warning.
# Documented: "Flag indicating to studentize loss differentials. Default is True", and `nested` as a way to estimate their variances.  No
# report on this was found.
# Why it matters: one noisy model among many hides all others that are better than a benchmark.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check arch==8.0.0 pandas==2.3.3 statsmodels==0.15.0 scipy==1.17.1 numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import warnings

import numpy as np
from arch.bootstrap import SPA

warnings.simplefilter("error")
LENGTH, REPLICATES, STUDIES = 250, 300, 200


def by_arch(benchmark, models, seed, **options):
    test = SPA(benchmark, models, 1, REPLICATES, seed=seed, **options)
    test.compute()
    return test.pvalues


def by_hand(better, random, deviations):
    """Upper p-value of the largest mean over its deviation, by a bootstrap of rows around the means."""
    rows = random.integers(LENGTH, size=(REPLICATES, LENGTH))
    drawn = (better[rows].mean(axis=1) - better.mean(axis=0)) / deviations
    return np.mean(drawn.max(axis=1) > (better.mean(axis=0) / deviations).max())


random = np.random.default_rng(1)
found = []
for study in range(STUDIES):
    benchmark = random.chisquare(1, size=LENGTH)
    good, noisy = benchmark - 0.2 + random.normal(size=LENGTH), benchmark + 20 * random.normal(size=LENGTH)
    both = np.stack([good, noisy], axis=1)
    default, nested, plain = (
        by_arch(benchmark, both, study, **options) for options in ({}, {"studentize": True, "nested": True}, {"studentize": False}))
    assert default.equals(nested) and default.equals(plain)
    better = benchmark[:, None] - both
    found.append([
        default["upper"], by_hand(better, random, 1), by_hand(better, random, better.std(axis=0)),
        by_arch(benchmark, good, study)["upper"]])
names = ("arch, studentised or not", "by hand, not studentised", "by hand, studentised", "arch, better model alone")
shares = dict(zip(names, (np.array(found) < 0.05).mean(axis=0), strict=True))
for name, share in shares.items():
    print(f"{name}: p < 0.05 in {share:.1%} of studies")
as_stated, plain, studentised, alone = shares.values()
assert as_stated < 0.12 and abs(as_stated - plain) < 0.05 and studentised > 0.65 and alone > 0.75
PY
