#!/usr/bin/env bash
# Guess: `mx.random.randint(low, high)` of MLX draws each integer with equal probability.
# Found (mlx 0.32.4 on its CPU back end, numpy 2.4.6): up to 16,777,216 it does.  Integers are rounded uniform numbers of float32,
# whatever integer dtype is asked for.  Between 0 and 30 million 28 % are odd, to 100 million 8 %, to 2^31 0.3 %.  From 20,260,101 to
# 20,260,131, days of January 2026, no odd one occurs but the first and last; of seconds of a day in Unix time 676 of 86,400 do, and of
# ten numbers from a billion on one.  Of 10,000 seeds between 0 and 2^31 66 % end in seven zero bits, for 0.8 % of NumPy's.  There is no
# warning.
# Documented: equal probability.  Known: reports of July and August 2026; ends of the range were mended, the rest is closed.
# Why it matters: rows of large tables, identifiers, times and seeds of replicates are drawn so; tests with small ranges hold.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "mlx[cpu]==0.32.4" numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import warnings

import mlx.core as mx
import numpy as np

DRAWS = 200_000
warnings.simplefilter("error")
mx.set_default_device(mx.cpu)
mx.random.seed(1)
rng = np.random.default_rng(1)


def draws(low, high, dtype=mx.int32, size=DRAWS):
    found = np.array(mx.random.randint(low, high, (size,), dtype=dtype)).astype(np.int64)
    assert low <= found.min() and found.max() < high
    return found


shares = {}
for high in (1000, 10_000_000, 30_000_000, 100_000_000, 2**31 - 1):
    shares[high] = np.mean(draws(0, high) % 2)
    print(f"from 0 to {high:,}: {shares[high]:.2%} odd; by NumPy {np.mean(rng.integers(0, high, DRAWS) % 2):.2%}")
assert abs(shares[1000] - 0.5) < 0.01 and abs(shares[10_000_000] - 0.5) < 0.01
assert shares[30_000_000] < 0.3 and shares[100_000_000] < 0.1 and shares[2**31 - 1] < 0.01
for dtype in (mx.uint32, mx.int64, mx.uint64):
    assert np.mean(draws(0, 100_000_000, dtype) % 2) < 0.1
days = np.bincount(draws(20_260_101, 20_260_132) - 20_260_100, minlength=32)
print("days of January 2026, draws of each:", *days[1:])
assert not days[3:30:2].any() and days[2:30:2].all()
for name, low, high in (("seconds of a day", 1_796_000_000, 1_796_086_400), ("ten numbers", 1_000_000_000, 1_000_000_010)):
    found = len(np.unique(draws(low, high)))
    print(f"{name}: {found:,} of {high - low:,} values, by NumPy {len(np.unique(rng.integers(low, high, DRAWS))):,}")
    assert found < 0.2 * (high - low)
seeds = draws(0, 2**31 - 1, size=10_000)
print(f"10,000 seeds: {np.mean(seeds % 128 == 0):.1%} end in seven zero bits, by NumPy "
      f"{np.mean(rng.integers(0, 2**31 - 1, 10_000) % 128 == 0):.1%}")
assert np.mean(seeds % 128 == 0) > 0.4
PY
