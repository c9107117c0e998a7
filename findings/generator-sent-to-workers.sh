#!/usr/bin/env bash
# Guess: a generator that is handed to each call of a pool is pickled for each, so that all calls draw the same numbers: a
# mistake that one sees at once.
# Found (numpy 2.4.6, joblib 1.6.0, distributed 2026.8.0): calls that travel together share one copy.  400 replicates are 100, 50
# or 25 different ones by 1, 2 or 4 processes of Pool.map, as many as `batch_size` of joblib, and one or all by dask's scheduler.
# Why it matters: each number occurs several times, so that a Monte Carlo standard error is too small by a factor of 2 to 4 that
# depends on the machine, and nothing looks alike.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6 joblib==1.6.0 distributed==2026.8.0
cat > "$work/draws.py" <<'PY'
import concurrent.futures
import multiprocessing

import dask
import joblib
import numpy as np


def draw(generator):
    return float(generator.standard_normal())


if __name__ == "__main__":
    found = {}
    for processes in (1, 2, 4):
        with multiprocessing.get_context("spawn").Pool(processes) as pool:
            found[f"Pool({processes})"] = pool.map(draw, [np.random.default_rng(1)] * 400)
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        found["ProcessPoolExecutor"] = [*pool.map(draw, [np.random.default_rng(1)] * 400)]
    calls = [joblib.delayed(draw)(each) for each in [np.random.default_rng(1)] * 400]
    found["joblib, batch_size=40"] = joblib.Parallel(2, batch_size=40)(calls)
    for scheduler in ("sync", "processes"):
        generator = np.random.default_rng(1)
        calls = [dask.delayed(draw)(generator, dask_key_name=f"draw-{number}") for number in range(400)]
        found[f"dask, {scheduler}"] = dask.compute(*calls, scheduler=scheduler)
    for name, numbers in found.items():
        print(f"{name}: {len(numbers)} numbers, {len({*numbers})} different")
    assert [len({*each}) for each in found.values()] == [100, 50, 25, 1, 40, 400, 1]
PY
cd "$work" && venv/bin/python draws.py
