"""What no memory holds is refused in one line before the first batch, instead of killed without a word."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from builders import DESIGN, edited, minimal_cell, write_design
from commands import simstudy

from simstudy.design.load import load_design
from simstudy.errors import UserError
from simstudy.execution import executors
from simstudy.execution.executors import Jobs, open_executor
from simstudy.execution.memory import require_memory, taken

GIB = 1 << 30
LARGE = edited(edited(DESIGN, "n_keys = 40", "n_keys = 4_000_000"), "n_features = 6", "n_features = 28")
STUDENT = edited(LARGE, "n_keys = 4_000_000", 'n_keys = 1_000_000\nkey_distribution = { kind = "student_t", df = 5 }')
"""A replicate of 0.24 GiB, which is held three times while it is drawn."""
LIMIT = """
import psutil, resource
limit = psutil.Process().memory_info().vms + {}
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
"""
JOIN = "import os\nopen({!r}, 'w').write(str(os.getpid()))\n"


@contextlib.contextmanager
def control_group(limit: int):
    """A group of processes with a limit of memory, and the file to join it by; skipped where none can be made."""
    lines = (line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines())
    version, path = next((controllers, path) for _, controllers, path in lines if controllers in ("memory", ""))
    group = Path("/sys/fs/cgroup", version, path[1:], f"simstudy-{os.getpid()}")
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here ({error})")
    try:
        try:
            (group / ("memory.limit_in_bytes" if version else "memory.max")).write_text(str(limit))
        except OSError as error:
            pytest.skip(f"control groups here have no limit of memory ({error})")
        yield str(group / "cgroup.procs")
    finally:
        group.rmdir()


@pytest.mark.parametrize("limited_by", ["address space", "control group"])
@pytest.mark.parametrize(
    ("text", "size", "taken", "remedy"),
    [
        (LARGE, 1.8, "1.32", "use at most 1 of them"),
        (LARGE, 0.7, "0.834", "a smaller batch_size takes as much: use fewer keys, features"),
        (STUDENT, 1.1, "0.688", "use at most 1 of them"),
    ],
)
def test_batches_that_do_not_fit__are_refused_before_anything_is_written(
    text, size, taken, remedy, limited_by, tmp_path
):
    def run(design: str, before: str):
        # The process that commands are forked from holds some memory of its own group.
        path, output = write_design(tmp_path, design), tmp_path / "out"
        return simstudy("run", path, "--output", output, "--workers", 2, before=before)

    with contextlib.ExitStack() as held:
        before = LIMIT.format(int(size * GIB))
        if limited_by == "control group":
            before = JOIN.format(held.enter_context(control_group(int(size * GIB))))
        done = run(text, before)
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and not (tmp_path / "out").exists(), done.stderr
        assert f"error: grids.angles: a batch takes {taken} GiB of memory, and 2 workers have " in done.stderr
        assert remedy in done.stderr
        assert run(DESIGN, before).returncode in (0, 3)  # the control


MANY = {"n_keys": 1 << 17, "n_features": 16, "batch_size": 16}
CELLS = [
    MANY,
    MANY | {"dtype": "float32", "n_features": 64},
    MANY | {"key_distribution": {"kind": "student_t", "df": 5}},
    MANY | {"key_distribution": {"kind": "mixture"}},
    MANY | {"key_distribution": {"kind": "autoregressive", "coefficient": 0.5}},
    MANY | {"key_distribution": {"kind": "gaussian", "structure": "equicorrelated", "correlation": 0.5}},
    MANY | {"noise_treatment": "drawn", "noise": {"kind": "student_t", "df": 5}},
    MANY | {"normaliser": {"kind": "entmax", "power": 1}},
    MANY | {"normaliser": {"kind": "compact", "power": 1}, "key_scale": "normalised"},
    MANY | {"reference": "attention", "n_features": 6},
    {"n_keys": 128, "n_features": 96, "n_heads": 48, "queries": {"kind": "gaussian", "count": 512}},
    {"n_keys": 40_000, "batch_size": 256},
]
MEASURE = """
import os, sys
from simstudy.design.settings.cell import Cell
from simstudy.execution.memory import taken
from simstudy.replicates.batch import simulate_batch

def counted(name):
    return int(open("/proc/self/status").read().split(name + ":")[1].split()[0]) * 1024

def take(cell):
    open("/proc/self/clear_refs", "w").write("5")
    before = counted("VmRSS")
    simulate_batch([cell], 0)
    return counted("VmHWM") - before

cells = [Cell.model_validate_json(text) for text in sys.stdin]
for cell in cells:  # what is imported and compiled does not count
    few = cell.model_copy(update={"data": cell.data.model_copy(update={"n_keys": 64})})
    taken([few])
    simulate_batch([few], 0)
for cell in cells:
    for told in (lambda cell: taken([cell])[0]), take:
        if not os.fork():  # what another took is not kept for this one
            print(told(cell), flush=True)
            os._exit(0)
        os.wait()
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peaks of memory are told by Linux alone")
def test_estimates_of_memory__are_what_batches_take():
    cells = [minimal_cell(**{"arrangement": "aligned", "batch_size": 16} | settings) for settings in CELLS]
    given = "".join(f"{cell.model_dump_json()}\n" for cell in cells)
    done = subprocess.run([sys.executable, "-c", MEASURE], input=given, capture_output=True, text=True, check=True)
    estimates, found = np.array(done.stdout.split(), float).reshape(len(CELLS), 2).T
    print(estimates / found)
    assert ((estimates >= 0.9 * found) & (estimates <= 2.0 * found)).all(), (estimates / found).tolist()


def test_batch_size_that_is_named__fits(tmp_path):
    def planned(batch_size: int) -> tuple:
        text = edited(edited(DESIGN, "n_keys = 40", "n_keys = 40_000"), "size = 32", f"size = {batch_size}")
        return load_design(write_design(tmp_path, edited(text, "max_replicates = 512", "max_replicates = 4096"))).cells

    free = 0.6 * taken([each.cell for each in planned(256)])[0]
    with pytest.raises(UserError, match=r"use one of them and batch_size = [0-9]+, or more memory") as refused:
        require_memory(planned(256), free, 2)
    named = int(str(refused.value).split("batch_size = ")[1].split(",")[0])
    assert named > 16 and named % 16 == 0
    require_memory(planned(named), free, 1)


def test_memory_of_dask_and_of_jobs__is_what_they_were_given(monkeypatch):
    from distributed import LocalCluster

    seen = []

    def claim(*given):
        seen.append(given)
        raise UserError("seen")

    monkeypatch.setattr(executors.shutil, "which", lambda name: name)
    with LocalCluster(
        n_workers=2, threads_per_worker=2, processes=False, dashboard_address=":0", memory_limit="1GB"
    ) as cluster:
        for executor in (cluster.scheduler_address, Jobs(memory="3GB", threads=5)):
            with pytest.raises(UserError, match="seen"), open_executor(executor, claim=claim):
                raise AssertionError("opened")
    assert seen == [(2e9, 4), (3e9, 5)]
