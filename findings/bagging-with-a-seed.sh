#!/usr/bin/env bash
# Guess: `random_state` of skpro's `BaggingRegressor` makes its members repeatable, each from a bootstrap sample of its own.
# Found (skpro 2.16.0, scikit-learn 1.9.1, numpy 2.4.6): the integer is the seed of each member's sample, so that all are fitted to one.
# Ten trees without pruning, fitted to 100 noisy values of a sine, are one tree, with 1.9 times the squared error of ten different ones,
# and their predictions at a point have no spread.  Features are drawn so too.  Without `random_state` members differ; it also seeds
# NumPy's global generator, so that draws after two fits are equal.  scikit-learn's `BaggingRegressor` is as guessed.  There is no
# warning.
# Documented: an integer is the seed of the random number generator.  Known: a seed of `BootstrapRegressor` that did nothing, mended; no
# report on this was found.
# Why it matters: a seed is set for results that can be repeated; bagging then neither averages nor shows uncertainty.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check skpro==2.16.0 scikit-learn==1.9.1 pandas==3.0.6 scipy==1.17.1 numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import warnings

import numpy as np
import pandas as pd
from sklearn.ensemble import BaggingRegressor as OtherBagging
from sklearn.tree import DecisionTreeRegressor
from skpro.regression.ensemble import BaggingRegressor
from skpro.regression.residual import ResidualDouble

warnings.simplefilter("error")
grid = pd.DataFrame({"x": np.linspace(0.1, 0.9, 81)})
truth = np.sin(6 * grid.x.to_numpy())
tree, errors, spreads = DecisionTreeRegressor(random_state=0), {}, {}
for replicate in range(5):
    rng = np.random.default_rng(replicate)
    x = pd.DataFrame({"x": rng.uniform(size=100)})
    y = pd.DataFrame({"y": np.sin(6 * x.x) + 0.5 * rng.normal(size=100)})
    predictions = {}
    for seed in (1, None):
        np.random.seed(replicate)
        model = BaggingRegressor(ResidualDouble(tree), n_estimators=10, random_state=seed).fit(x, y)
        predictions[f"random_state={seed}"] = np.array([each.predict(grid).to_numpy().ravel() for each in model.estimators_])
    other = OtherBagging(tree, n_estimators=10, random_state=1).fit(x, y.y)
    predictions["scikit-learn, random_state=1"] = np.array([each.predict(grid.to_numpy()) for each in other.estimators_])
    for name, members in predictions.items():
        errors.setdefault(name, []).append(np.mean((members.mean(axis=0) - truth) ** 2))
        spreads.setdefault(name, []).append(members.std(axis=0).mean())
for name in errors:
    print(f"{name}: mean squared error {np.mean(errors[name]):.3f}, spread of members {np.mean(spreads[name]):.3f}")
seeded, free, other = (np.mean(each) for each in errors.values())
assert max(spreads["random_state=1"]) < 1e-9 and min(spreads["random_state=None"]) > 0.2
assert seeded > 1.4 * free and abs(free / other - 1) < 0.3

drawn = []
for size in (50, 60):
    BaggingRegressor(ResidualDouble(tree), n_estimators=2, random_state=1).fit(x[:size], y[:size])
    drawn.append(np.random.uniform())
print("NumPy's next number after fits to 50 and 60 values:", *drawn)
assert drawn[0] == drawn[1]
wide = pd.DataFrame(np.random.default_rng(1).normal(size=(50, 8)), columns=list("abcdefgh"))
model = BaggingRegressor(ResidualDouble(tree), n_estimators=10, n_features=4, random_state=1).fit(wide, wide[["a"]])
print("features of ten members:", {"".join(sorted(each)) for each in model.cols_})
assert len({tuple(each) for each in model.cols_}) == 1
PY
