"""A worker, the client or the scheduler of a cluster is killed: the same bytes as on one undisturbed core."""

import subprocess
from pathlib import Path

import pytest
from builders import edited, write_design
from clusters import LONG, PATIENCE, Calm, wait_until
from commands import command
from stored import rows
from strangers import cluster

# They take as long as fifty other tests; `test_executors` has a lost scheduler and dead workers in the suite.
pytestmark = [pytest.mark.timeout(600), pytest.mark.rare]


@pytest.fixture(scope="module")
def design(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Half as long: workers are there before it starts."""
    return write_design(tmp_path_factory.mktemp("long"), edited(LONG, "n_keys = 20_000", "n_keys = 10_000"))


@pytest.mark.parametrize("victim", ["worker", "client", "scheduler"])
def test_killed_member__loses_no_replicate(victim: str, design: Path, calm: Calm, tmp_path: Path):
    """Over TLS; workers are killed one after another, and each has another in its place."""
    output, log = tmp_path / "out", tmp_path / "run.log"
    run = command("run", design, "--output", output, "--executor")
    with cluster(tmp_path / "cluster") as found, log.open("w") as file:
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
