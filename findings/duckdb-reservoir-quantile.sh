#!/usr/bin/env bash
# Guess: DuckDB's `reservoir_quantile` is the quantile of a random sample of 8,192 rows: with a standard error of 0.0055 for a median rank.
# Found (duckdb 2.0.1, numpy 2.4.6): the answer depends on the rows' order.  The "median" of 10,000 rows in order has rank 0.456 in each call, 19
# standard errors off, and that of 16,384 has 0.389, 28 off.  By two or more threads a million rows in order get medians of ranks between about
# 0.3 and 0.9, another one in most calls, with samples of 1,000 and 10,000 too.  By one thread the rank is 0.516, and of shuffled rows between
# 0.48 and 0.51; `approx_quantile` is within 0.01, `median` exact.  There is no warning.
# Documented: "gives an approximate quantile using reservoir sampling, the sample size is optional and uses 8192 as a default size".  Known: one
# project left it as inaccurate in 2022; no report on order or threads was found.
# Why it matters: results are stored in order of time or parameter, and medians then tell of a part of them that changes with each call.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check duckdb==2.0.1 numpy==2.4.6
"$work/venv/bin/python" - <<'PY'
import warnings

import duckdb
import numpy as np

warnings.simplefilter("error")
SAMPLE, MILLION = 8192, 1_000_000


def ranks(database, rows, order="i", call="reservoir_quantile(r, 0.5)", repeats=1):
    database.execute(f"create or replace table numbers as select (i + 0.5) / {rows} as r from range({rows}) as t(i) order by {order}")
    return np.array([database.execute(f"select {call} from numbers").fetchall()[0][0] for _ in range(repeats)])


one = duckdb.connect(config={"threads": 1})
for rows in (10_000, SAMPLE * 2, 100_000, MILLION):
    error = 0.5 * ((1 - SAMPLE / rows) / SAMPLE) ** 0.5
    found, mixed = ranks(one, rows, repeats=5), ranks(one, rows, "hash(i)")[0]
    by_numpy = np.median(np.random.default_rng(1).choice((np.arange(rows) + 0.5) / rows, (SAMPLE,), replace=False))
    print(f"one thread, {rows:,} rows in order: median rank {found[0]:.3f}, {(found[0] - 0.5) / error:.1f} standard errors off; "
          f"shuffled {mixed:.3f}, of a sample by NumPy {by_numpy:.3f}")
    assert len(set(found)) == 1 and abs(by_numpy - 0.5) < 4 * error and abs(mixed - 0.5) < 0.025
    assert found[0] < 0.5 - 8 * error if rows < 20_000 else abs(found[0] - 0.5) < 0.05
for threads in (2, 4):
    database = duckdb.connect(config={"threads": threads})
    for size in ("", ", 1000", ", 10000"):
        found = ranks(database, MILLION, call=f"reservoir_quantile(r, 0.5{size})", repeats=60)
        error = 0.5 / int(size[2:] or SAMPLE) ** 0.5
        print(f"{threads} threads, a million rows in order, sample{size or ' not given'}: median ranks {found.min():.3f} to {found.max():.3f}, "
              f"{len(set(found))} different; standard error {error:.4f}")
        assert abs(found - 0.5).max() > 8 * error
    mixed = ranks(database, MILLION, "hash(i)", repeats=20)
    others = {call: ranks(database, MILLION, call=call, repeats=5) for call in ("approx_quantile(r, 0.5)", "median(r)")}
    ranges = ", ".join(f"{call} {each.min():.4f} to {each.max():.4f}" for call, each in others.items())
    print(f"  shuffled {mixed.min():.3f} to {mixed.max():.3f}; {ranges}")
    assert abs(mixed - 0.5).max() < 0.05 and all(abs(each - 0.5).max() < 0.02 for each in others.values())
PY
