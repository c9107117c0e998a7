#!/usr/bin/env bash
# Guess: POT's `wasserstein_1d` and `sliced_wasserstein_distance` of whole numbers are the same whether these are stored as integers or floats.
# Found (POT 0.9.7.post1, scipy 1.17.1, numpy 2.4.6): of integers both are 0, whatever the numbers, and `max_sliced_wasserstein_distance` too.
# Of 200 counts with mean 5 and 200 with mean 50 the distance is 0 for 44; between two sets of numbers a million apart it is 0 too.  If only
# one sample is integer, `wasserstein_1d` gives 37 or 67, and the sliced distance 0 when it is the first.  Weights not given get the values' type,
# and one 200th is 0 as an integer.  With equal weights given as floats all are right, and so are `emd2_1d`, also of integers, and SciPy's
# `wasserstein_distance`.  There is no warning.
# Documented: uniform weights if none are given, for any array.  No report on this was found; `emd2` warns of integer weights.
# Why it matters: counts, ranks and pixels of entirely different samples seem to be equally distributed.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check POT==0.9.7.post1 scipy==1.17.1 numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import warnings

import numpy as np
import ot
from scipy import stats

warnings.simplefilter("error")
SIZE = 200
EQUAL = np.full(SIZE, 1 / SIZE)


def line(*samples, **options):
    return ot.wasserstein_1d(*(each[:, 0] if each.ndim > 1 else each for each in samples), p=1, **options).item()


def sliced(*samples):
    return float(ot.sliced_wasserstein_distance(*samples, p=1, seed=1))


def largest(*samples):
    return float(ot.max_sliced_wasserstein_distance(*samples, p=1, seed=1))


for factors in (1, 3):
    rng = np.random.default_rng(factors)
    x, y = rng.poisson(5, (SIZE, factors)), rng.poisson(50, (SIZE, factors))
    exact = np.abs(np.sort(x[:, 0]) - np.sort(y[:, 0])).mean()
    assert np.isclose(exact, stats.wasserstein_distance(x[:, 0], y[:, 0]))
    for measure in (line, sliced, largest):
        right = measure(x * 1.0, y * 1.0)
        first, second = measure(x, y * 1.0), measure(x * 1.0, y)
        print(f"{measure.__name__}, {factors} variables: floats {right:.2f}, integers {measure(x, y):.2f}, first integer {first:.2f}, second "
              f"{second:.2f}, integers with weights {measure(x, y, EQUAL, EQUAL):.2f}; on a line {exact:.2f}")
        assert right > 20 and np.isclose(measure(x, y, EQUAL, EQUAL), right)
        assert all(measure(x.astype(kind), y.astype(kind)) == 0 for kind in (np.uint8, np.int16, np.int32, np.int64))
        assert np.isclose(right, exact) or measure is not line and factors == 3
        assert first == 0 or measure is line and abs(first / right - 1) > 0.1 and abs(second / right - 1) > 0.1
    assert np.isclose(ot.emd2_1d(x[:, :1], y[:, :1], metric="cityblock"), exact)
same = np.arange(10)
print(f"ten numbers and the same plus a million: {line(same, same + 1_000_000)}, as floats {line(same * 1.0, same + 1_000_000.0)}")
assert line(same, same + 1_000_000) == 0 and np.isclose(line(same * 1.0, same + 1e6), 1e6)
PY
