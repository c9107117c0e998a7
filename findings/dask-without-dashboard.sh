#!/usr/bin/env bash
# Guess: `LocalCluster(dashboard_address=None)` opens no port for pages: its documentation says that this disables them.
# Found (distributed 2026.8.0): the scheduler serves its pages on all interfaces at port 8787, the workers as well at
# others, also of threads alone; only with an address of the loopback are those of the scheduler for this machine alone.
# Why it matters: a simulation on a shared machine shows its tasks, workers and logs to everybody on the network.
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check distributed==2026.8.0 dask==2026.8.0 psutil==7.1.3
cat > "$work/served.py" <<'PY'
import inspect
import urllib.request

import psutil
from distributed import LocalCluster


def served(address):
    """Addresses at which a cluster of one worker, of threads, listens; and those of them that tell of its workers."""
    with LocalCluster(n_workers=1, processes=False, dashboard_address=address):
        listening = [each.laddr for each in psutil.Process().net_connections("tcp4") if each.status == "LISTEN"]
        pages = []
        for ip, port in listening:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/info/main/workers.html", timeout=10) as page:
                    pages += [(ip, port)] * (b"orker" in page.read())
            except OSError:
                pass
    return listening, pages


if __name__ == "__main__":
    assert "``None`` to disable the dashboard" in " ".join(inspect.getdoc(LocalCluster).split())
    without, local = served(None), served("127.0.0.1:0")
    print("dashboard_address=None: listens at", *without[0], "; pages of workers at", *without[1])
    print("dashboard_address='127.0.0.1:0': listens at", *local[0], "; pages of workers at", *local[1])
    assert [ip for ip, _ in without[1]] == ["0.0.0.0"] and [ip for ip, _ in local[1]] == ["127.0.0.1"]
    assert {ip for ip, _ in local[0]} == {"0.0.0.0", "127.0.0.1"}
PY
"$work/venv/bin/python" -W ignore "$work/served.py"
