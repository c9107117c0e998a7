#!/usr/bin/env bash
# Guess: change points in a linear model, with ruptures, minimise the squared residuals of the segments, whatever the covariates.
# Found (ruptures 1.1.10, scipy 1.16.3, numpy 2.4.6): they do not.  The cost of a segment is the residual sum that `numpy.linalg.lstsq` returns,
# which is empty, and so totals 0, where covariates are collinear: with a constant and an input that is switched on and off, each stretch without
# a switch costs 0, by hand 22 to 44 with 40 rows.  In 200 rows that follow one model without change, `Pelt`, with a penalty of 30, finds 4
# changes, all of them the input's own switches, and `Dynp` puts true changes at 60 and 140 at the switches 40 and 160.  With the constant
# alone, or an input that varies, costs and changes are as by hand.  There is no warning.
# Documented: the cost is the least squares residual; nothing on collinear covariates.  No report on this was found.
# Why it matters: changes of an input are reported as changes of the model.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check ruptures==1.1.10 scipy==1.16.3 numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import numpy as np
import ruptures as rpt
from ruptures.costs import CostLinear

ROWS, PENALTY = 200, 30.0
random = np.random.default_rng(1)
switches = np.repeat([0.0, 1, 0, 1, 0], ROWS // 5)
noise = random.normal(size=ROWS)
inputs = {"varying": random.normal(size=ROWS), "switched": switches, "none": None}


def by_hand(signal):
    """Costs of all segments: squared distances to the projections on the covariates."""
    costs = np.full((ROWS + 1, ROWS + 1), np.inf)
    for start in range(0, ROWS, 5):
        for end in range(start + 5, ROWS + 1, 5):
            y, covariates = signal[start:end, 0], signal[start:end, 1:]
            costs[start, end] = np.sum((y - covariates @ np.linalg.pinv(covariates) @ y) ** 2)
    return costs


def best(costs, changes):
    """Smallest total of costs with a number of changes, and where they are."""
    found = {0: (0.0, [])}
    for _ in range(changes + 1):
        found = {end: min((total + costs[start, end], [*places, end]) for start, (total, places) in found.items() if start < end)
                 for end in range(5, ROWS + 1, 5) if any(start < end for start in found)}
    return found[ROWS]


true = [60, 140]
jump = 1.2 * ((np.arange(ROWS) >= true[0]) & (np.arange(ROWS) < true[1]))
for name, extra in inputs.items():
    covariates = np.ones((ROWS, 1)) if extra is None else np.column_stack([np.ones(ROWS), extra])
    signal = np.column_stack([covariates.sum(axis=1) + noise, covariates])
    costs = by_hand(signal)
    cost = CostLinear().fit(signal)
    starts = range(0, ROWS, 40)
    found, right = ([way(start, start + 40) for start in starts] for way in (cost.error, lambda *ends: costs[ends]))
    print(f"input {name}: costs of fifths {np.round(found, 1)}, by hand {np.round(right, 1)}; of all {cost.error(0, ROWS):.1f}, by hand {costs[0, ROWS]:.1f}")
    assert np.isclose(cost.error(0, ROWS), costs[0, ROWS])
    assert np.array_equal(found, np.zeros(5)) and min(right) > 20 if name == "switched" else np.allclose(found, right)
    none = rpt.Pelt(model="linear", min_size=5, jump=5).fit(signal).predict(pen=PENALTY)
    fewest = min((best(costs, changes)[0] + PENALTY * (changes + 1), changes) for changes in range(6))[1]
    print(f"    without a change: Pelt's segments end at {[int(each) for each in none]}, by hand there are {fewest} changes")
    assert fewest == 0 and none == ([40, 80, 120, 160, 200] if name == "switched" else [200])
    signal[:, 0] += jump
    two = rpt.Dynp(model="linear", min_size=5, jump=5).fit(signal).predict(n_bkps=2)
    places = best(by_hand(signal), 2)[1]
    print(f"    changes at {true}: Dynp's segments end at {[int(each) for each in two]}, by hand {places}")
    assert np.allclose(places, [*true, ROWS], atol=10) and two == ([40, 160, 200] if name == "switched" else places)
PY
