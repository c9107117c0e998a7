"""A study as a Slurm job array: each task computes a share, and a job that waits for all puts them together.

Tasks share a file system and nothing else: no scheduler of ours, no open port.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from simstudy.design.document import Design
from simstudy.errors import UserError
from simstudy.execution.jobs import Jobs
from simstudy.execution.shares import units
from simstudy.execution.store import Store


class ArrayScripts(NamedTuple):
    """Job scripts: that of every task of the array, and that of the job that waits for them."""

    task: str
    merge: str


def array_scripts(
    design: Design, path: Path, store: Store, output: Path, jobs: Jobs, trust: Sequence[Path] = ()
) -> ArrayScripts:
    """Return the scripts of an array with a task for each job, but no more than the design has work for."""
    if jobs.system != "slurm":
        raise UserError(
            f"system = {jobs.system!r}: job arrays are written for slurm only; leave out --array, or start "
            "simstudy run --share 1/8 to 8/8, simstudy merge and simstudy run in jobs of your own"
        )
    n_tasks = min(jobs.jobs, len(units(design)))
    folder, shares = shlex.quote(str(store.folder.absolute())), shlex.quote(str(store.folder.absolute() / "shares"))
    simstudy = f"{shlex.quote(sys.executable)} -P -m simstudy"
    options = ["--profile", design.profile, "--output", str(output.absolute()), "--workers", str(jobs.threads)]
    options += [f"--trust={file.absolute()}" for file in trust]
    run = f"{simstudy} run {shlex.join([str(path.absolute()), *options])}"
    name = f"simstudy-{design.study.name}"
    task = [
        *_header(jobs, name, "%A-%a.log"),
        f"#SBATCH --array=1-{n_tasks}",
        *jobs.prologue,
        f"exec {run} --share $SLURM_ARRAY_TASK_ID/{n_tasks}",
    ]
    # A share without batches was ended before its first; the run computes whatever shares did not.
    merge = [
        *_header(jobs, f"{name}-merge", "%j.log"),
        "set -e",
        *jobs.prologue,
        "stored=()",
        f"for share in {shares}/*/; do",
        '    [ -z "$(ls "$share/batches" 2>/dev/null)" ] || stored+=("$share")',
        "done",
        # None are left if this job was lost after it had removed them, and started again.
        f'[ -z "$stored" ] || {simstudy} merge "${{stored[@]}}" --into {folder}',
        # A node that Slurm gave up may still write there; its batches are not missed.
        f"rm -rf {shares} || true",
        f"exec {run}",
    ]
    return ArrayScripts("\n".join(task) + "\n", "\n".join(merge) + "\n")


def _header(jobs: Jobs, name: str, log: str) -> list[str]:
    """Directives of both scripts; a job whose node is lost goes back into the queue."""
    asked = [
        f"--job-name={name}", jobs.slurm_log(log), "--open-mode=append", "--requeue", "--ntasks=1",
        f"--cpus-per-task={jobs.threads}", f"--mem={jobs.memory.removesuffix('B')}", f"--time={jobs.walltime}",
        *([f"--partition={jobs.queue}"] if jobs.queue else []), *jobs.directives,
    ]  # fmt: skip
    return ["#!/usr/bin/env bash", *(f"#SBATCH {directive}" for directive in asked)]


def submit_array(scripts: ArrayScripts, store: Store) -> tuple[str, str]:
    """Submit both scripts, and return the numbers of the array and of the job that waits for it."""
    _sbatch(scripts.task, "--test-only")
    # The scripts stay beside the logs, whose folder must exist before the first job starts.
    with store.locked():
        store.write_text("logs/array.sh", scripts.task)
        store.write_text("logs/merge.sh", scripts.merge)
    array = _sbatch(scripts.task)
    return array, _sbatch(scripts.merge, f"--dependency=afterany:{array}")


def _sbatch(script: str, *options: str) -> str:
    command = ["sbatch", "--parsable", *options]
    done = subprocess.run(command, input=script, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = "; ".join(re.sub(r"^sbatch: (error: )?", "", line) for line in done.stderr.strip().splitlines())
        raise UserError(f"sbatch refuses the job: {reason}; mend --queue, --walltime, --memory or --directive")
    return done.stdout.strip().split(";")[0]
