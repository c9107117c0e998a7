#!/usr/bin/env bash
# Guess: scikit-survival's confidence intervals of the incidence of any event, among competing risks, have the level that is given.
# Found (scikit-survival 0.28.0, scikit-learn 1.9.1, scipy 1.16.3, numpy 2.4.6): they are of 95 % for all levels, and upside down: the first
# limit is the upper one.  Those of single risks have the level, and are in order.  Of 500 studies of 150 lives, with a level of 50 %, the
# limits of any event lie on both sides of the true incidence in 95 %, those of the two risks in 50 % each; with 99 % in 95 %, 99 % and 99.6 %.
# No first limit of any event is below the second.  By hand, from Greenwood's formula with the level, it is 51 % and 99 %.  There is no
# warning.
# Documented: "The level for a two-sided confidence interval on the cumulative incidence curves", and "the lower and upper confidence interval".
# No report on this was found.
# Why it matters: intervals that are taken as lower and upper contain nothing, and none has another level than 95 %.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check \
  scikit-survival==0.28.0 scikit-learn==1.9.1 pandas==2.3.3 scipy==1.16.3 numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import warnings

import numpy as np
from scipy import stats
from sksurv.nonparametric import cumulative_incidence_competing_risks

warnings.simplefilter("error")
STUDIES, LIVES, TIME = 500, 150, 0.8
RATES = np.array([1.0, 0.5])
random = np.random.default_rng(1)
total = 1 - np.exp(-RATES.sum() * TIME)
truth = np.array([total, *total * RATES / RATES.sum()])


def by_hand(event, time, level):
    """Limits of the incidence of any event, by the logarithm of minus the logarithm of survival."""
    order = np.argsort(time)
    at_risk = np.arange(LIVES, 0, -1)[(time[order] <= TIME) & (event[order] > 0)]
    survival = np.prod(1 - 1 / at_risk)
    error = np.sqrt(np.sum(1 / (at_risk * (at_risk - 1)))) / np.log(survival)
    return 1 - survival ** np.exp(stats.norm.ppf([(1 - level) / 2, (1 + level) / 2]) * error)


for level in (0.5, 0.8, 0.95, 0.99):
    found, right = [], []
    for _ in range(STUDIES):
        times = np.column_stack([random.exponential(1 / RATES, size=(LIVES, 2)), random.exponential(2, size=LIVES)])
        event, time = np.array([1, 2, 0])[times.argmin(axis=1)], times.min(axis=1)
        places, _, limits = cumulative_incidence_competing_risks(event, time, conf_level=level, conf_type="log-log")
        found.append(limits[:, :, np.searchsorted(places, TIME, side="right") - 1])
        right.append(by_hand(event, time, level))
    found, right = np.array(found), np.array(right)
    in_order = (found[:, :, 0] < found[:, :, 1]).mean(axis=0)
    cover = ((found.min(axis=2) <= truth) & (truth <= found.max(axis=2))).mean(axis=0)
    hand = ((right.min(axis=1) <= total) & (total <= right.max(axis=1))).mean()
    print(f"level {level:.0%}: between the limits in {cover[0]:.1%} for any event, {cover[1]:.1%} and {cover[2]:.1%} for the two risks; by hand "
          f"{hand:.1%}; limits in order {in_order}; widths {np.ptp(found, axis=2).mean(axis=0).round(3)}, by hand {np.ptp(right, axis=1).mean():.3f}")
    assert list(in_order) == [0, 1, 1] and abs(cover[0] - 0.95) < 0.03 and np.abs(cover[1:] - level).max() < 0.07 and abs(hand - level) < 0.07
    assert np.allclose(np.sort(found[:, 0]), np.sort(right)) == (level == 0.95)
PY
