#!/usr/bin/env bash
# Guess: an executor runs a function as often as it is submitted, as those of concurrent.futures do.
# Found (distributed 2026.8.0): Client.submit and the executor of Client.get_executor run equal calls once and hand all
# callers the same result, so that replicates of an unseeded simulation are copies; pure=False runs each.
# Why it matters: the spread of copies is 0, and a Monte Carlo standard error with it.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check distributed==2026.8.0 numpy
cd "$work" && "$work/venv/bin/python" - <<'PY'
import concurrent.futures

import distributed
import numpy as np


def simulate(n):
    return float(np.random.default_rng().standard_normal(n).mean())


if __name__ == "__main__":
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        threads = {pool.submit(simulate, 10).result() for _ in range(5)}
    with distributed.Client(processes=False, dashboard_address=None) as client:
        submitted = {each.result() for each in [client.submit(simulate, 10) for _ in range(5)]}
        with client.get_executor() as executor:
            executed = {each.result() for each in [executor.submit(simulate, 20) for _ in range(5)]}
        with client.get_executor(pure=False) as executor:
            impure = {each.result() for each in [executor.submit(simulate, 20) for _ in range(5)]}
    print(f"distributed {distributed.__version__}: different results of five equal calls: threads {len(threads)}, "
          f"Client.submit {len(submitted)}, get_executor {len(executed)}, get_executor(pure=False) {len(impure)}")
    assert (len(threads), len(submitted), len(executed), len(impure)) == (5, 1, 1, 5)
PY
