"""What no memory holds, no Slurm gives and no job can have is refused in one line; job scripts as text."""

import asyncio
import contextlib
import os
import shlex
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import dask
import pytest
from builders import DESIGN, minimal_cell, refuses, varied, write_design
from commands import forks, most_memory, simstudy
from distributed import LocalCluster

from simstudy.errors import UserError
from simstudy.execution import clusters, executors
from simstudy.execution.clusters import job_script
from simstudy.execution.executors import Jobs, batch_bytes, open_executor
from simstudy.execution.folder import Folder
from simstudy.replicates.batch import simulate_batch

GIB = 1 << 30
LARGE = varied(n_keys=4_000_000, n_features=28)
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


@pytest.mark.parametrize("version", [1, 2])
def test_memory__is_what_control_groups_leave(version, tmp_path, monkeypatch):
    names, quotas = executors._FILES[2 - version], executors._QUOTAS[2 - version]
    group = tmp_path / ("memory" if version == 1 else "") / "above" / "own"
    group.mkdir(parents=True)
    for folder, limit in ((group, "max"), (group.parent, str(9 << 20))):
        contents = limit, str(5 << 20), f"anon 7\n{names[2]} 1000", *"50000 100000".split(" ", 2 - version)
        for name, text in zip((*names[:2], "memory.stat", *quotas), contents, strict=True):
            (folder / name).write_text(text)
    (tmp_path / "self").write_text("5:cpu:/\n4:memory:/above/own\n" if version == 1 else "0::/above/own\n")
    monkeypatch.setattr(executors, "_GROUPS", (tmp_path / "self", tmp_path))
    assert executors.available() == (4 << 20) + 1000 and executors.cores() == 1  # of half a core


@pytest.mark.parametrize("limited_by", ["address space", "control group"])
@pytest.mark.parametrize(("size", "remedy"), [(2.4, "use at most 1 of them"), (0.7, "use fewer keys, features")])
def test_batches_that_do_not_fit__are_refused_before_anything_is_written(size, remedy, limited_by, tmp_path):
    def run(design: str, before: str) -> Any:
        path = write_design(tmp_path, design)
        return simstudy("run", path, "--output", tmp_path / "out", "--workers", 2, before=before)

    with contextlib.ExitStack() as held:
        before = LIMIT.format(int(size * GIB))
        if limited_by == "control group":
            before = JOIN.format(held.enter_context(control_group(int(size * GIB))))
        done = run(LARGE, before)
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and not (tmp_path / "out").exists(), done.stderr
        assert "error: grids.angles: a batch takes about 1.4 GiB of memory, and 2 workers have " in done.stderr
        assert remedy in done.stderr
        assert run(DESIGN, before).returncode in (0, 3)  # the control


MANY = {"n_keys": 1 << 17, "n_features": 16, "batch_size": 16, "arrangement": "aligned"}
DOT_PRODUCTS = {"logits": "dot_product", "bandwidth": 1.6, "control": "expansion", "n_keys": 500, "batch_size": 16}
LAWS = ("student_t", {"df": 5}), ("mixture", {}), ("autoregressive", {"coefficient": 0.5})


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peaks of memory are told by Linux alone")
@pytest.mark.parametrize("settings", [
    MANY,
    MANY | {"dtype": "float32", "n_features": 64},
    *(MANY | {"key_distribution": {"kind": kind, **more}} for kind, more in LAWS),
    MANY | {"key_distribution": {"kind": "gaussian", "structure": "equicorrelated", "correlation": 0.5}},
    MANY | {"noise_treatment": "drawn", "noise": {"kind": "student_t", "df": 5}},
    MANY | {"normaliser": {"kind": "entmax", "power": 1}},
    MANY | {"normaliser": {"kind": "compact", "power": 1}, "key_scale": "normalised"},
    MANY | {"reference": "attention", "n_features": 6},
    {"n_keys": 128, "n_features": 96, "n_heads": 48, "queries": {"kind": "gaussian", "count": 512}, "batch_size": 16},
    {"n_keys": 40_000, "batch_size": 256},
    {"n_features": 32, "n_heads": 8, "head_dim": 4, "queries": {"kind": "gaussian", "count": 256}, **DOT_PRODUCTS},
])  # fmt: skip
def test_estimate_of_memory__is_what_a_batch_takes(settings):
    cells = [minimal_cell(**{"arrangement": "aligned"} | settings | more) for more in ({"n_keys": 64}, {})]
    with ProcessPoolExecutor(1, forks()) as alone:
        found = alone.submit(most_memory, *(partial(simulate_batch, [cell], 0) for cell in cells)).result()
    assert 0.9 * found <= batch_bytes(cells[1]) <= 2.0 * found


def test_memory_of_dask_and_of_jobs__is_what_they_were_given(tmp_path, monkeypatch):
    reserve = Mock(side_effect=UserError("seen"))
    monkeypatch.setattr(clusters.shutil, "which", lambda name: name)
    given = {"n_workers": 2, "threads_per_worker": 2, "dashboard_address": ":0", "memory_limit": "1GB"}
    stated = {"jobqueue.slurm.memory": "3GB", "jobqueue.slurm.cores": 5, "distributed.worker.memory.pause": False}
    with dask.config.set(stated), LocalCluster(processes=False, **given) as cluster:
        for executor in (cluster.scheduler_address, Jobs(2, tmp_path)):
            refuses("seen", open_executor(executor, reserve=reserve).__enter__)
    assert [each.args for each in reserve.call_args_list] == [(2e9, 4), (3e9, 5)]


clusters._slurm(Jobs(2, Path("a")))  # so that dask-jobqueue has brought its defaults, which a change would else undo


def test_job_script__asks_for_what_the_configuration_states(tmp_path):
    folder = tmp_path / "folder"
    assert "#SBATCH --cpus-per-task=1\n#SBATCH --mem=2G\n" in job_script(Jobs(2, folder))
    stated = {"cores": 4, "memory": "8GB", "walltime": "02:30:00", "queue": "long", "job-extra-directives": ["-X this"]}
    stated |= {"job-script-prologue": ["module load python"], "worker-extra-args": ["--lifetime", "2h"]}
    with dask.config.set({"jobqueue.slurm": dask.config.get("jobqueue.slurm") | stated}):
        lines = job_script(Jobs(2, folder)).splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    for expected in (
        "#SBATCH -p long", "#SBATCH --cpus-per-task=4", "#SBATCH --mem=8G", "#SBATCH -t 02:30:00", "#SBATCH -X this",
        "export OMP_NUM_THREADS=1", "export PYTHONSAFEPATH=1", "module load python",
        'scratch=$(mktemp -d "${TMPDIR:-/tmp}/simstudy-XXXXXXXXXX") || exit 1',
        "export DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP=11s",
    ):  # fmt: skip
        assert lines.index(expected) < len(lines) - 1
    worker = lines[-1]
    assert worker.startswith(f"{shlex.quote(sys.executable)} -m distributed.cli.dask_worker tls://SCHEDULER ")
    assert " --nthreads 4 " in worker and ' --local-directory "$scratch" ' in worker
    key = f"{folder}/.partial/KEY"
    own = "--lifetime 2h --no-dashboard --worker-class simstudy.execution.clusters.PrivateWorker"
    assert worker.endswith(f" {own} --protocol tls:// --tls-ca-file {key} --tls-cert {key} --tls-key {key}")
    assert "BEGIN" not in "".join(lines)  # of a key


@pytest.mark.parametrize("name", ["a b", 'a"b', "a\\b", "a'b", "%J", "a\nb", "a\x1b[2J", "caf\udce9"])
def test_folder_that_no_way_of_quoting_hands_on__is_refused(name):
    assert refuses("slurm cannot write logs to such a name", job_script, Jobs(2, Path(name))).isprintable()
    refuses("logs: cannot be written .Not a directory", job_script, Jobs(2, Path("/dev/null")))


def test_no_batch_system_no_extra_and_jobs_that_nobody_can_have__are_one_message(monkeypatch, tmp_path, in_process):
    for name, stated in (("memory", "much"), ("memory", 8), ("cores", "four"), ("cores", 2.5), ("interface", "eth999")):
        said = rf"jobqueue\.slurm\.{name} = '?{stated}'? in the .* of Dask: give "
        with dask.config.set({f"jobqueue.slurm.{name}": stated}):
            refuses(said, open_executor(Jobs(2, tmp_path)).__enter__)
    monkeypatch.setenv("PATH", str(tmp_path))
    refuses("sbatch: not found on the PATH; submit from a login node", open_executor(Jobs(2, tmp_path)).__enter__)
    monkeypatch.setitem(sys.modules, "dask_jobqueue", None)
    ended = in_process("submit", write_design(tmp_path), "--show")
    assert ended.returncode == 2 and "not installed; pip install 'simstudy[cluster]', or run --share" in ended.stderr


def test_key_file__is_closed_to_others_from_the_start_and_ends_with_the_block(tmp_path):
    folder = tmp_path / ".partial"
    tmp_path.chmod(0o777)
    old = os.umask(0)
    try:
        with clusters._key_file(Folder(tmp_path)) as security:
            (path,) = folder.iterdir()
            assert path.stat().st_mode & 0o777 == 0o600
            assert {security.tls_ca_file, security.tls_worker_key} == {str(path)}
    finally:
        os.umask(old)
    assert not list(folder.iterdir())


@pytest.mark.parametrize("accepted, failures, submitted", [
    (False, 99, 1), (True, 3, 4), (True, 10_000, clusters.SUBMIT_RETRIES),
])  # fmt: skip
def test_job_that_is_refused__is_submitted_again_if_another_was_taken(accepted, failures, submitted, monkeypatch):
    scripts = []

    class Job:
        async def start(self):
            scripts.append("script")
            if len(scripts) <= failures:
                raise RuntimeError("Command exited with code 1\nstderr:\nno such queue")

    monkeypatch.setattr(clusters, "SUBMIT_SECONDS", 0.0)
    kind = clusters._resubmitting(Job)
    kind.accepted = accepted
    asyncio.run(kind().start())
    assert len(scripts) == submitted and (accepted or kind.refusal.strip() == "no such queue")


@pytest.mark.parametrize("code, shown, complaint, lost", [
    (0, "17\n", "", False),  # it waits, or runs
    (0, "", "", True),
    (1, "", "slurm_load_jobs error: Invalid job id specified", True),
    (1, "", "slurm_load_jobs error: Unable to contact slurm controller", False),
])  # fmt: skip
def test_jobs_that_slurm_knows_no_more__are_told(code, shown, complaint, lost, monkeypatch, tmp_path):
    asked = []

    def squeue(command, **_):
        asked.append(command[-1])
        return subprocess.CompletedProcess(command, code, shown, complaint)

    monkeypatch.setattr(clusters.subprocess, "run", squeue)
    two = SimpleNamespace(workers={"a": SimpleNamespace(job_id="17"), "b": SimpleNamespace(job_id="18")})
    with pytest.raises(UserError, match="jobs 17,18: ended without") if lost else contextlib.nullcontext():
        clusters._require_live(Jobs(2, tmp_path), two)
    assert asked == ["--jobs=17,18"]
    clusters._require_live(Jobs(2, tmp_path), SimpleNamespace(workers={}))
