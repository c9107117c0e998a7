"""Verdict of ``make verify``: whatever is killed while it works, what follows ends in the bytes of a calm run.

The name keeps this out of the ordinary test suite, which takes one kill of each kind that needs no further process.
"""

import subprocess
from collections.abc import Callable, Iterator

import pytest
from builders import edited
from kills import BATCHES, KINDS, ROOT, WORK, Aim, Bench, Target, environment, unfolded
from strangers import cluster

N_KILLS = {"serial": 10, "threads": 10, "results": 9, "confirm": 8}
LONG = edited(WORK, "n_keys = 2_000", "n_keys = 10_000").replace("max_replicates = 512", "max_replicates = 2048")
"""Some 800 batches: workers that start anew take seconds to compile, in which others go on."""


@pytest.fixture(scope="module")
def bench(tmp_path_factory) -> Iterator[Bench]:
    bench = Bench(tmp_path_factory.mktemp("kills"), LONG)
    yield bench
    print(f"\n{'kills of':24}{'tried':>8}{'effective':>12}{'file half written':>20}")
    for target in bench.targets:
        print(f"{target.name:24}{target.tried:8}{target.effective:12}{target.torn:20}")
    print(f"{'together':24}{'':8}{sum(target.effective for target in bench.targets):12}")


@pytest.mark.parametrize("kind", KINDS)
def test_killed_work__ends_in_the_same_bytes(kind, bench):
    assert KINDS[kind](bench, N_KILLS[kind]).effective == N_KILLS[kind]


def started(bench: Bench, *arguments: object, **variables: str) -> Callable[[], subprocess.Popen]:
    def start() -> subprocess.Popen:
        with bench.log.open("a") as log:
            return subprocess.Popen(
                unfolded(*arguments), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=log, env=environment(**variables),
                start_new_session=True,
            )  # fmt: skip

    return start


def hit_in_one_run(target: Target, process: subprocess.Popen, victim: Callable[[], None], n: int, aim: Aim) -> int:
    """Kill victims that work for a process until n kills have hit; return how the process ended."""
    while process.poll() is None and target.effective < n:
        target.shoot(process, aim, target.paths(BATCHES), victim)
    assert target.effective == n, "the run ended too soon"
    return process.wait(300)


def test_killed_members_of_a_cluster__cost_nothing(bench):
    """Over TLS: workers, then clients, whose cluster stays, then the scheduler."""
    targets = [bench.target(f"TLS: {victim}") for victim in ("a worker", "client", "scheduler")]
    with cluster(bench.place / "cluster") as found:
        workers, client, scheduler = (
            started(bench, *bench.run(target.name, "--executor", found.address), **found.environment)
            for target in targets
        )
        assert hit_in_one_run(targets[0], workers(), found.kill_worker, 3, Aim(most=40, delay=0.1)) in (0, 3)
        for _ in range(3):
            targets[1].hit(client, Aim(most=60, delay=0.1))
        assert client().wait(300) in (0, 3)
        assert hit_in_one_run(targets[2], scheduler(), found.scheduler.kill, 1, Aim(most=60, delay=0.1)) == 2
    assert bench.log.read_text().count("scheduler is lost") == 1
    for target in targets:
        bench.end(target)
