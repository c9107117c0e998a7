"""Benchmarks against the limits of the machine and against other libraries: ``python tests/benchmarks``.

Writes a table to ``outputs/benchmarks``.  Everything runs in one process on one core,
except where threads are the subject.
"""

import argparse
import os
import sys
from pathlib import Path

# Numerical libraries read these when they are imported.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"
# An older kernel of OpenBLAS, or a smaller cache, would slow the peers.
for _name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    os.environ.pop(_name, None)
# Not all obey the above; none has more threads than cores that it may use.
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[2])]

import contests  # noqa: E402
import recorded  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds of each contest")
    parser.add_argument("--output", type=Path, default=Path("outputs/benchmarks"))
    options = parser.parse_args()
    print(recorded.HEAD, flush=True)
    rows = []
    for row in contests.all_rows(contests.workloads.SIZES, options.rounds):
        rows.append(row)
        print(recorded.line(row), flush=True)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "table.md").write_bytes("\n".join([recorded.HEAD, *map(recorded.line, rows), ""]).encode())
    if found := recorded.lost(rows):
        sys.exit("\n".join(["slower than recorded:", *found]))


if __name__ == "__main__":
    main()
