"""Time of a build before over ours, to one Monte Carlo error: ``python tests/benchmarks/before.py COMMIT``.

Cells are heads as transformers have them: 64 dimensions, dot products at temperature √64.  Each build runs in a process
of its own; they take turns, cell by cell.  A build takes the faster of control and plain replicates.
"""

import itertools
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from subprocess import PIPE, Popen, run
from typing import Any

import numpy as np

MEASURES = ("mse", "ensemble_variance")  # as of `allocation`
WANTED = {"to any error": (1e-9, 0), "to 1 %": (1e-2, 1024), "to 0.1 %": (1e-3, 1024), "from 64 to 1 %": (1e-2, 64)}
"""Errors, and replicates however few these take: 1024 by default, 64 at least (four batches of 16 blocks of one)."""
TARGETS = {"no signal": "zero", "2 sin x₁": {"kind": "ridge", "amplitude": 2.0}}
COLUMNS = [f"{name} {error}" for name in ("error²", "variance") for error in WANTED]


def cells() -> Any:
    for n, (heads, queries), scale in itertools.product((128, 1024, 4096), ((8, 16), (12, 4)), (1.0, 1.414, 2.0)):
        size = {"n_keys": n, "n_heads": heads, "n_features": 64 * heads, "batch_size": max(64, 2**17 // n)}
        for name, m in TARGETS.items():
            label = f"{n} keys, {heads} heads, {queries} queries, logits of variance {scale**2:.0f}, {name}"
            yield label, size | {"queries": {"kind": "gaussian", "count": queries, "scale": scale}, "regression": m}


def measure(settings: dict[str, Any]) -> dict[str, Any]:
    """Return seconds of what all replicates share and of one, and relative errors of one, by way to compute a cell."""
    from builders import minimal_cell

    from simstudy.replicates.batch import simulate_batch
    from simstudy.replicates.population import measured

    base = {"head_dim": 64, "arrangement": "orthogonal", "logits": "dot_product", "bandwidth": "attention"} | settings
    base, found = base | {"dtype": "float32"}, {}
    for way in ("none", "expansion"):
        cell, size = minimal_cell(**base, control=way), base["batch_size"]
        other = minimal_cell(**base, control=way, seed=8 + len(found))  # whose queries and known means are new
        times, batches = [time.process_time()], []
        for job, number in ((cell, 2), (cell, 0), (cell, 1), (other, 0)):
            batches += simulate_batch([job], number)
            times.append(time.process_time())
        *_, first, second, whole = np.diff(times)
        seconds, batches = (first + second) / 2, batches[1:3]
        performance, root = measured(cell, batches), np.sqrt(size * len(batches))
        relative = {name: float(performance.mcse[name] / performance.estimate[name]) * root for name in MEASURES}
        found[way] = max(0.0, whole - seconds), seconds / size, relative
    return found


def needed(found: dict[str, Any], of: str, wanted: float, least: int) -> float:
    """Return the seconds that a measure takes to an error, by the faster way; of few replicates with what all share."""
    ways = ((once * (least == 64), each, (relative[of] / wanted) ** 2) for once, each, relative in found.values())
    return min(shared + each * max(replicates, least) for shared, each, replicates in ways)


def main(commit: str) -> None:
    here, environment = Path(__file__).resolve().parents[2], {**os.environ, "OMP_NUM_THREADS": "1"}
    environment["OPENBLAS_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as before:
        packed = run(["git", "-C", here, "archive", commit], check=True, capture_output=True).stdout
        run(["tar", "-x", "-C", before], input=packed, check=True)
        builds: list[Any] = []
        for place in (here, Path(before)):
            where = environment | {"PYTHONPATH": f"{place}{os.pathsep}{place / 'tests'}"}
            builds.append(Popen([sys.executable, __file__], env=where, stdin=PIPE, stdout=PIPE, text=True))
        print("||" + "|".join(COLUMNS) + "|\n|---|" + "---|" * len(COLUMNS), flush=True)
        for label, settings in cells():
            found = []
            for build in builds:
                print(json.dumps(settings), file=build.stdin, flush=True)
                found.append(json.loads(build.stdout.readline()))
            ours, theirs = found
            wanted = [(of, *each) for of in MEASURES for each in WANTED.values()]
            ratios = [needed(theirs, *each) / needed(ours, *each) for each in wanted]
            print(f"|{label}|" + "|".join(f"{each:.3g}" for each in ratios) + "|", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        for line in sys.stdin:
            print(json.dumps(measure(json.loads(line))), flush=True)
