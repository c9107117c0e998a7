#!/usr/bin/env bash
# Guess: ridge, lasso and elastic net of polars-ols leave the intercept unpenalised, so that mean predictions are mean outcomes, as scikit-learn's.
# Found (polars-ols 0.3.5, polars 2.1.0, scikit-learn 1.9.1, scipy 1.17.1, numpy 2.4.6): `add_intercept=True` adds a column of ones that is
# penalised as all others.  Of 300 temperatures near 290 ridge with α = 50 predicts 248 on average, the mean times 300 / 350, with an R² of
# -286 where scikit-learn has 0.79; elastic net with α = 0.5 predicts 232 with -563, lasso 0.5 too little.  If features have means of 3, slopes
# of 2 and -1 become 36 and 34.  Weighted ridge does the same.  Centred data are as by scikit-learn, and so is `ols`.  There is no warning.
# Documented: "whether to add an intercept column"; speeds are compared with scikit-learn's.  Known: reported of ridge in August 2026, open.
# Why it matters: shrunken regressions within a query are wrong by a share of the mean, which a look at slopes does not show.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check polars-ols==0.3.5 polars==2.1.0 scikit-learn==1.9.1 scipy==1.17.1 numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import numpy as np
import polars as pl
import polars_ols  # noqa: F401
from sklearn import linear_model

ROWS, FEATURES = 300, ["x1", "x2"]
rng = np.random.default_rng(1)
x = rng.normal(size=(ROWS, 2))
signal = 2 * x[:, 0] - x[:, 1] + rng.normal(size=ROWS)
weights = rng.uniform(0.5, 1.5, ROWS)


def fitted(method, x, y, **options):
    table = pl.DataFrame({"y": y, "x1": x[:, 0], "x2": x[:, 1], "w": weights})
    call = getattr(pl.col("y").least_squares, method)
    found = table.select(call(*map(pl.col, FEATURES), mode="coefficients", **options).alias("c"))["c"][0]
    return np.array([found[each] for each in FEATURES]), found.get("const", 0.0)


ridges = {"ridge": ({"alpha": 50.0}, linear_model.Ridge(alpha=50)), "lasso": ({"alpha": 0.5}, linear_model.Lasso(alpha=0.5)),
          "elastic_net": ({"alpha": 0.5, "l1_ratio": 0.5}, linear_model.ElasticNet(alpha=0.5, l1_ratio=0.5)),
          "ols": ({}, linear_model.LinearRegression())}
for level, shift in ((0, 0), (290, 0), (290, 3)):
    y, features = level + signal, x + shift
    for name, (options, model) in ridges.items():
        slopes, constant = fitted(name, features, y, add_intercept=True, **options)
        model.fit(features, y)
        mean = (features @ slopes + constant).mean()
        score = [1 - ((y - each) ** 2).sum() / ((y - y.mean()) ** 2).sum() for each in (features @ slopes + constant, model.predict(features))]
        print(f"{name}, level {level}, means of features {shift}: slopes {slopes.round(2)}, of scikit-learn {model.coef_.round(2)}; "
              f"mean of predictions {mean:.1f} of {y.mean():.1f}; R² {score[0]:.2f} and {score[1]:.2f}")
        assert np.isclose(model.predict(features).mean(), y.mean())
        if name == "ols":
            assert np.isclose(mean, y.mean()) and np.allclose(slopes, model.coef_)
        elif level:
            assert y.mean() - mean > 0.4 and (name == "lasso" or shift or score[0] < -50) and score[1] > 0.4
            assert shift == 0 or abs(slopes - model.coef_).max() > 0.5
        centred = fitted(name, features - features.mean(axis=0), y - y.mean(), **options)[0]
        assert np.allclose(centred, model.coef_, atol=1e-3)

y, ones = 290 + signal, np.column_stack([x, np.ones(ROWS)])
for name, w, options in (("plain", np.ones(ROWS), {}), ("weighted", weights, {"sample_weights": pl.col("w")})):
    slopes, constant = fitted("ridge", x, y, add_intercept=True, alpha=50.0, **options)
    penalised, free = (np.linalg.solve(ones.T @ (ones * w[:, None]) + 50 * np.diag([1, 1, each]), ones.T @ (y * w)) for each in (1, 0))
    print(f"{name} ridge: constant {constant:.1f}, by NumPy {penalised[2]:.1f} if penalised, {free[2]:.1f} if not")
    assert np.allclose([*slopes, constant], penalised, rtol=1e-6) and free[2] - constant > 30
PY
