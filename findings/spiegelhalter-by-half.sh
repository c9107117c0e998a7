#!/usr/bin/env bash
# Guess: MAPIE's p-value of Spiegelhalter's test is small for any miscalibration, as those of its two other calibration tests are.
# Found (MAPIE 1.6.0, scikit-learn 1.9.1, scipy 1.17.1, numpy 2.4.6): it is 1 − Φ(z), so that only scores that are too extreme are found.  Scores that
# are too timid, 0.3 to 0.7 where the events have 0.1 to 0.9, have a p-value above 0.99 in each of 200 samples of 500; of both tails it is below
# 0.05 in all of them, and Kuiper's test finds 83 %.  Calibrated scores are rejected as often as promised.
# Documented: "the probability of the observed statistic under the null hypothesis"; the statistic is better the closer it is to zero, and
# nothing says that the test has one side.  No report of it was found.
# Why it matters: a model that hedges all its predictions passes the test of calibration with the best p-value there is.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check MAPIE==1.6.0 scikit-learn==1.9.1 scipy==1.17.1 numpy==2.4.6
OMP_NUM_THREADS=1 "$work/venv/bin/python" - <<'PY'
import numpy as np
from mapie.metrics.calibration import kolmogorov_smirnov_p_value, kuiper_p_value, spiegelhalter_p_value
from scipy.stats import norm

SIZE, SAMPLES = 500, 200
rng = np.random.default_rng(1)
stated = {"calibrated": lambda p: p, "timid": lambda p: 0.3 + 0.5 * (p - 0.1), "bold": lambda p: np.where(p < 0.5, 0.5 * p, 0.5 + 0.5 * p)}
share = {}
for name, score in stated.items():
    found = []
    for _ in range(SAMPLES):
        p = rng.uniform(0.1, 0.9, SIZE)
        y, s = (rng.random(SIZE) < p).astype(int), score(p)
        z = np.sum((y - s) * (1 - 2 * s)) / np.sqrt(np.sum((1 - 2 * s) ** 2 * s * (1 - s)))
        found.append((spiegelhalter_p_value(y, s), 2 * norm.sf(abs(z)), kuiper_p_value(y, s), kolmogorov_smirnov_p_value(y, s)))
    found = np.array(found)
    share[name] = (found < 0.05).mean(axis=0)
    print(f"{name}: rejected at 5 %: Spiegelhalter {share[name][0]:.2f} (of both sides {share[name][1]:.2f}), Kuiper {share[name][2]:.2f}, "
          f"Kolmogorov-Smirnov {share[name][3]:.2f}; least p-value of Spiegelhalter {found[:, 0].min():.3f}")
    if name == "timid":
        assert found[:, 0].min() > 0.9
assert share["timid"][0] == 0 and share["timid"][1] == 1 and share["timid"][2] > 0.7 and share["bold"][0] > 0.9
assert share["calibrated"][0] < 0.1
PY
