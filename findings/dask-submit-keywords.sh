#!/usr/bin/env bash
# Guess: submit(function, x, retries=5) calls function(x, retries=5), as executors of concurrent.futures do.
# Found (distributed 2026.8.0): Client.submit and the executor of Client.get_executor keep retries, priority, key and others for
# themselves; the function runs with its defaults.  Two calls of one key have the result of the first.
# Why it matters: a simulation with a parameter of such a name runs at its default in every cell, without an error.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check distributed==2026.8.0
cd "$work" && "$work/venv/bin/python" - <<'PY'
import concurrent.futures

import distributed


def simulate(x, retries=0, priority=1):
    return x, retries, priority


if __name__ == "__main__":
    given = {"retries": 5, "priority": 7}
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        found = {"threads": pool.submit(simulate, 1, **given).result()}
    with distributed.Client(processes=False, dashboard_address=None) as client:
        found["Client.submit"] = client.submit(simulate, 2, **given).result()
        with client.get_executor() as executor:
            found["get_executor"] = executor.submit(simulate, 3, **given).result()
        first, second = (client.submit(simulate, x, key="one") for x in (4, 5))
        found["one key"] = first.result()[0], second.result()[0]
    print(f"distributed {distributed.__version__}: {found}")
    assert [*found.values()] == [(1, 5, 7), (2, 0, 1), (3, 0, 1), (4, 4)]
PY
