"""A sample of the kills of `make verify`, and whether the harness sees stores that are broken."""

from __future__ import annotations

import pytest
from builders import write_design
from kills import BATCHES, ENDS, FOLDER, WORK, Aim, Forks, Target

from simstudy.design import load_design
from simstudy.store import Store


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("kills")


@pytest.fixture(scope="module")
def design(place):
    path = place / "work.toml"
    path.write_text(WORK)
    return path


@pytest.fixture(scope="module")
def forks(place, design):
    with Forks(write_design(place), place / "warm", place / "log") as forks:
        forks.finish("run", design, "--output", place / "calm", "--executor", "serial")
        yield forks
    assert "Traceback" not in (place / "log").read_text()


@pytest.fixture
def target(request, place, forks):
    return Target(request.node.name, place / request.node.name / FOLDER, place / "calm" / FOLDER)


@pytest.mark.parametrize("executor", ["serial", "threads"])
def test_killed_runs__end_in_the_same_bytes(target, forks, place, design, executor):
    run = ("run", design, "--output", place / target.name, "--executor", executor)
    for _ in range(2):
        target.hit(lambda: forks.start(*run))
    target.hit(lambda: forks.start(*run), Aim("*.csv", 1), target.paths(*ENDS))
    forks.finish(*run)
    target.assert_equal()
    print(target.tried, target.effective, target.torn)
