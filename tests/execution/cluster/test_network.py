"""A scheduler and two workers, on hosts of their own: a link that breaks and a kill change no byte."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
import xarray as xr
from builders import edited, write_design
from clusters import HERE, LONG, PATIENCE, Calm, skip_without, wait_until
from commands import UNDRAWN, command, environment
from stored import FOLDER, rows
from strangers import certificates, in_environment
from strangers import cluster as local_cluster

from simstudy.execution.executors import TCP_TIMEOUT

# Together they take as long as fifty other tests; `test_queue` has a lost scheduler and dead workers in the suite.
pytestmark = [pytest.mark.timeout(600), pytest.mark.rare]
SETTINGS = environment(DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP=TCP_TIMEOUT, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
RUN = f"{UNDRAWN}from simstudy.__main__ import main; main()"


def script(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([str(HERE / "hosts.sh"), *arguments], capture_output=True, text=True)


@pytest.fixture(scope="module")
def design(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Half as long: workers are there before it starts.

    Its ceiling stays above what every cell needs, or the command would end with exit code 3; a quarter of it is below.
    """
    return write_design(tmp_path_factory.mktemp("long"), edited(LONG, "n_keys = 20_000", "n_keys = 10_000"))


@pytest.fixture
def hosts() -> Iterator[str]:
    name = f"simstudy{os.getpid()}"
    missing = ["ip of iproute2"] if shutil.which("ip") is None else []
    skip_without("SIMSTUDY_REQUIRE_NETNS", missing if os.geteuid() == 0 else ["root, who may make networks"])
    made = script("up", name)
    try:
        skip_without(
            "SIMSTUDY_REQUIRE_NETNS", [f"network of our own ({made.stderr.strip()})"] if made.returncode else []
        )
        yield name
    finally:
        script("down", name)


@contextlib.contextmanager
def started(host: str, arguments: list[str], log: Path, settings: dict[str, str]) -> Iterator[subprocess.Popen]:
    """Run a command on a host, and end it with the block."""
    with log.open("w") as file:
        inside = ["ip", "netns", "exec", host, *arguments]
        with subprocess.Popen(inside, stdout=file, stderr=file, env=SETTINGS | settings) as process:
            try:
                yield process
            finally:
                process.terminate()


@contextlib.contextmanager
def cluster(hosts: str, address: str, settings: dict[str, str], folder: Path) -> Iterator[list[subprocess.Popen]]:
    """A scheduler and two workers without nannies; yields the workers."""
    dask = [sys.executable, "-W", "ignore", "-m"]
    host = [*dask, "distributed.cli.dask_scheduler", "--host", address, "--no-dashboard"]
    with contextlib.ExitStack() as all_of_them:
        all_of_them.enter_context(started(f"{hosts}-s", host, folder / "scheduler.log", settings))
        workers = []
        for i in (1, 2):
            hand = [*dask, "distributed.cli.dask_worker", address, "--host", f"10.77.0.1{i}", "--nthreads", "1"]
            hand += ["--no-dashboard", "--no-nanny", "--local-directory", str(folder / f"scratch{i}")]
            workers.append(
                all_of_them.enter_context(started(f"{hosts}-{i}", hand, folder / f"worker{i}.log", settings))
            )
        wait_until(lambda: (folder / "scheduler.log").read_text().count("Register worker") == 2)
        yield workers


def removals(log: Path) -> list[float]:
    """When the scheduler gave up the second worker."""
    pattern = r"^(\S+ \S+) - distributed.scheduler - INFO - Remove worker addr: t[cl][ps]://10\.77\.0\.12"
    found = re.findall(pattern, log.read_text(), flags=re.MULTILINE)
    return [datetime.strptime(text, "%Y-%m-%d %H:%M:%S,%f").timestamp() for text in found]


@pytest.mark.parametrize(
    ("seconds", "protocol"), [(5.0, "tcp"), (None, "tls")], ids=["for-5-s", "for-good-with-certificates"]
)
def test_cut_link__loses_no_replicate(
    hosts: str, design: Path, calm: Calm, tmp_path: Path, seconds: float | None, protocol: str
):
    output, log = tmp_path / "out", tmp_path / "run.log"
    address = f"{protocol}://10.77.0.1:8786"
    trust, settings = (["--trust-network"], {}) if protocol == "tcp" else ([], in_environment(certificates(tmp_path)))
    arguments = [sys.executable, "-W", "ignore", "-c", RUN, "run", design, "--output", output]
    arguments = [*map(str, arguments), "--executor", address, *trust]
    with (
        cluster(hosts, address, settings, tmp_path) as workers,
        started(f"{hosts}-s", arguments, log, settings) as process,
    ):
        wait_until(lambda: len(rows(output)) >= 24, process)
        script("cut", hosts, "2")
        cut, before = time.time(), len(rows(output))
        assert before < calm.n_batches, "the study had ended before its link was cut"
        if seconds is not None:
            time.sleep(seconds)
            # Tasks that the second worker holds are still missing, and nobody else may compute them yet.
            assert process.poll() is None
            script("mend", hosts, "2")
        assert process.wait(PATIENCE) == 0, log.read_text()
        given_up = [moment - cut for moment in removals(tmp_path / "scheduler.log")]
        assert workers[0].poll() is None
    calm.assert_equals(output)
    print(f"cut after {before} of {calm.n_batches} batches, ended {time.time() - cut:.1f} s later; {given_up = }")
    # Over a wire that came back the second worker is still one of us; behind one that did not it is given up once.
    assert len(given_up) == (seconds is None), "a cut for good after which nobody is given up hit no work"
    assert all(waited > 5.0 for waited in given_up)
    with xr.open_dataset(output / FOLDER / "results.nc") as results:
        assert json.loads(results.attrs["run"])["batches_computed"] == calm.n_batches


@pytest.mark.parametrize("victim", ["worker", "client", "scheduler"])
def test_killed_member__loses_no_replicate(victim: str, design: Path, calm: Calm, tmp_path: Path):
    """Over TLS; workers are killed one after another, and each has another in its place."""
    output, log = tmp_path / "out", tmp_path / "run.log"
    run = command("run", design, "--output", output, "--executor")
    with local_cluster(tmp_path / "cluster") as found, log.open("w") as file:
        with subprocess.Popen([*run, found.address], stdout=file, stderr=file, env=found.environment) as process:
            kill = {"worker": found.kill_worker, "client": process.kill, "scheduler": found.scheduler.kill}[victim]
            for count in (12, 36, 60)[: 3 if victim == "worker" else 1]:
                wait_until(lambda count=count: len(rows(output)) >= count, process)
                kill()
            assert process.wait(PATIENCE) == {"worker": 0, "client": -9, "scheduler": 2}[victim], log.read_text()
        before = rows(output)
        assert victim == "worker" or 0 < len(before) < calm.n_batches
        address = "serial" if victim == "scheduler" else found.address
        subprocess.run([*run, address], check=True, stdout=file, stderr=file, env=found.environment)
    calm.assert_equals(output)
    assert "Traceback" not in (said := log.read_text()) and said.count("scheduler is lost") == (victim == "scheduler")
