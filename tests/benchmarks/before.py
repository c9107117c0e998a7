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
FLOOR = 1024  # replicates by default, however few the precision takes
TARGETS = {"no signal": "zero", "2 sin x₁": {"kind": "ridge", "amplitude": 2.0}}
COLUMNS = [f"{name} {to}" for name in ("error²", "variance") for to in ("to any error", "to 1 %", "to 0.1 %")]


def cells() -> Any:
    for n, (heads, queries), scale in itertools.product((128, 1024, 4096), ((8, 16), (12, 4)), (1.0, 1.414, 2.0)):
        size = {"n_keys": n, "n_heads": heads, "n_features": 64 * heads, "batch_size": max(64, 2**17 // n)}
        points = {"kind": "gaussian", "count": queries, "scale": scale}
        for name, m in TARGETS.items():
            label = f"{n} keys, {heads} heads, {queries} queries, logits of variance {scale**2:.0f}, {name}"
            yield label, size | {"queries": points, "regression": m}


def measure(settings: dict[str, Any]) -> dict[str, Any]:
    """Return seconds of a replicate and relative errors of one, by each way to compute a cell."""
    from builders import minimal_cell

    from simstudy.replicates.batch import simulate_batch
    from simstudy.replicates.population import measured

    base = {"head_dim": 64, "arrangement": "orthogonal", "logits": "dot_product", "bandwidth": "attention"} | settings
    base, found = base | {"dtype": "float32"}, {}
    for way in ("none", "expansion"):
        cell = minimal_cell(**base, control=way)
        size, numbers = cell.simulation.batch_size, range(2)
        simulate_batch([cell], 2)
        start = time.process_time()
        batches = [simulate_batch([cell], number)[0] for number in numbers]
        seconds = (time.process_time() - start) / len(numbers)
        performance, root = measured(cell, batches), np.sqrt(size * len(numbers))
        relative = {name: float(performance.mcse[name] / performance.estimate[name]) * root for name in MEASURES}
        found[way] = seconds / size, relative
    return found


def needed(found: dict[str, Any], of: str, wanted: float) -> float:
    """Return the seconds that a measure takes to an error, by the faster way."""
    least = FLOOR if wanted > 1e-6 else 0
    return min(seconds * max((relative[of] / wanted) ** 2, least) for seconds, relative in found.values())


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
            wanted = itertools.product(MEASURES, (1e-9, 1e-2, 1e-3))
            ratios = [needed(theirs, *each) / needed(ours, *each) for each in wanted]
            print(f"|{label}|" + "|".join(f"{each:.3g}" for each in ratios) + "|", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        for line in sys.stdin:
            print(json.dumps(measure(json.loads(line))), flush=True)
