#!/usr/bin/env bash
# Guess: weights of sktime's forecast metrics average errors, so that equal weights change nothing, whatever their size.
# Found (sktime 1.2.0, scikit-learn 1.9.1, pandas 3.0.6, numpy 2.4.6): it depends on the metric.  With all weights 2, mean absolute and mean squared
# errors are doubled, the mean absolute scaled error is four times as large, a root is √2 times, and squared percentage, squared scaled and
# relative errors and medians stay.  With weights that sum to 1 over five values the first are a fifth.  There is no warning.
# Documented: `sample_weight` is "sample weights for each time point"; scikit-learn's metrics of these names take averages.  Known: that metrics use weights at
# all was mended in 2024 (#6412); nothing of their scale.
# Why it matters: weighted metrics of two methods or horizons, or two metrics of one method, have no common scale.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check sktime==1.2.0 scikit-learn==1.9.1 pandas==3.0.6 numpy==2.4.6
OMP_NUM_THREADS=1 "$work/venv/bin/python" -W ignore - <<'PY'
import numpy as np
import sktime.performance_metrics.forecasting as metrics
from sklearn.metrics import mean_absolute_error

truth, forecast = np.array([3, -0.5, 2, 7, 2]), np.array([2.5, 0.0, 2, 8, 1.25])
others = {"y_train": np.arange(10.0), "y_pred_benchmark": np.array([2.0, 1, 3, 5, 4])}
expected = {
    "MeanAbsoluteError": 2, "MeanSquaredError": 2, "MeanAbsolutePercentageError": 2, "MeanAbsoluteScaledError": 4,
    "MSEnormalizedBySD": 2**0.5, "MeanSquaredPercentageError": 1, "MeanSquaredScaledError": 1,
    "MeanRelativeAbsoluteError": 1, "MedianAbsoluteError": 1}
for name, times in expected.items():
    metric = getattr(metrics, name)()
    plain, *weighted = (float(metric(truth, forecast, **others, **how)) for how in (
        {}, {"sample_weight": np.full(5, 2.0)}, {"sample_weight": np.full(5, 0.2)}))
    print(f"{name}: weights 2 give {weighted[0] / plain:.3f} times the value, weights 0.2 {weighted[1] / plain:.3f} times")
    assert np.isclose(weighted[0] / plain, times)
assert mean_absolute_error(truth, forecast, sample_weight=np.full(5, 2.0)) == mean_absolute_error(truth, forecast)
PY
