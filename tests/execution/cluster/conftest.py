"""A Slurm of two nodes on this machine, and a study that nothing disturbed.

SIMSTUDY_REQUIRE_SLURM=1 turns its skip where there is none into a failure.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import run, write_design
from clusters import HERE, LONG, Calm, Slurm, wait_until
from stored import FOLDER, batches, numbers


@pytest.fixture(scope="module")
def design(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_design(tmp_path_factory.mktemp("long"), LONG)


@pytest.fixture(scope="module")
def calm(design: Path, tmp_path_factory: pytest.TempPathFactory) -> Calm:
    folder = tmp_path_factory.mktemp("calm")
    how = json.loads(run(design, output=folder, executor="serial").attrs["run"])
    return Calm(numbers(folder / FOLDER / "results.nc"), batches(folder), how["batches_computed"])


@pytest.fixture(scope="package")
def slurm_daemons() -> Iterator[Slurm]:
    missing = [name for name in ("slurmctld", "slurmd", "munged", "sbatch") if shutil.which(name) is None]
    missing += [] if os.geteuid() == 0 else ["root, whom slurmd serves"]
    if missing:
        (pytest.fail if os.environ.get("SIMSTUDY_REQUIRE_SLURM") == "1" else pytest.skip)(f"no {', '.join(missing)}")
    # The path of a socket may not be long.
    with tempfile.TemporaryDirectory(prefix="slurm", dir="/tmp", ignore_cleanup_errors=True) as folder:
        script = str(HERE / "slurm.sh")
        try:
            subprocess.run([script, "start", folder], check=True, timeout=300, stdout=subprocess.DEVNULL)
            yield Slurm(Path(folder))
        finally:
            subprocess.run([script, "stop", folder], timeout=300)


@pytest.fixture
def slurm(slurm_daemons: Slurm) -> Iterator[Slurm]:
    yield slurm_daemons
    slurm_daemons("scancel", "--user=root")
    for node in slurm_daemons("sinfo", "--noheader", "--Node", "--states=down", "--format=%N").split():
        slurm_daemons("scontrol", "update", f"nodename={node}", "state=resume")
    wait_until(lambda: not slurm_daemons.known())
