#!/usr/bin/env bash
# Guess: `LinearGAM(scale=...)` with the known standard deviation of the noise is smoothed alike in any units, and near the best.
# Found (pygam 0.12.0, scipy 1.16.3, numpy 2.4.6): it is not.  UBRE, by which `gridsearch` chooses, takes the standard deviation for the
# variance: 200 values of a sine with noise 0.5 get 5 degrees of freedom and an error of 0.09; in units a hundred times as large 3, and 0.33; in
# units of hundredths 20, and 0.13.  Without `scale`, and by hand with the variance, they get 6 in all units, and 0.07.  There is no warning.
# Documented: `scale` is "scale/standard deviation of the distribution"; UBRE is used "for models with known scale".  No report on this was found.
# Why it matters: knowing the noise makes estimates worse, the more, the further its deviation is from 1.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check pygam==0.12.0 scipy==1.16.3 numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import numpy as np
from pygam import LinearGAM, s

ROWS, NOISE, GAMMA = 200, 0.5, 1.4
random = np.random.default_rng(1)
x = random.uniform(size=(ROWS, 1))
truth = np.sin(6 * x[:, 0])
y = truth + NOISE * random.normal(size=ROWS)
grid = np.logspace(-3, 3, 11)
errors, freedom = {}, {}
for unit in (1, 0.01, 100):
    scores = {}
    for lam in grid:
        model = LinearGAM(s(0, lam=lam), scale=NOISE * unit).fit(x, y * unit)
        edof, rest = model.statistics_["edof"], np.mean((y * unit - model.predict(x)) ** 2)
        scores[lam] = [rest + 2 * GAMMA * edof * (NOISE * unit) ** power / ROWS for power in (1, 2)] + [edof]
        constant = model.statistics_["UBRE"] - scores[lam][0]
        assert np.isclose(constant, 2 * NOISE * unit)
    wrong, right = (min(grid, key=lambda lam, way=way: scores[lam][way]) for way in (0, 1))
    for name, scale in (("given", NOISE * unit), ("estimated", None)):
        model = LinearGAM(s(0), scale=scale).gridsearch(x, y * unit, lam=grid, progress=False)
        errors[unit, name] = np.sqrt(np.mean((model.predict(x) / unit - truth) ** 2))
        freedom[unit, name] = model.statistics_["edof"]
        print(f"units of {1 / unit:g}, scale {name}: penalty {model.lam[0][0]:.3g}, degrees of freedom {freedom[unit, name]:.2f}, "
              f"error {errors[unit, name]:.3f}")
    print(f"    by hand, with the deviation: penalty {wrong:.3g}, degrees of freedom {scores[wrong][2]:.2f}; "
          f"with the variance: {right:.3g}, {scores[right][2]:.2f}")
    assert np.isclose(freedom[unit, "given"], scores[wrong][2], rtol=1e-3)
    assert np.allclose([freedom[unit, "estimated"], scores[right][2]], freedom[1, "estimated"], rtol=1e-3)
assert freedom[0.01, "given"] < 3.5 and freedom[100, "given"] > 18
assert errors[0.01, "given"] > 4 * errors[1, "estimated"] and errors[100, "given"] > 1.7 * errors[1, "estimated"]
PY
