"""No executor opens a door: what listens while it runs, and a second user who knocks."""

import os

import pytest
from builders import minimal_cell, write_design
from commands import simstudy
from strangers import break_in, listeners, require_second_user

from simstudy.errors import UserError
from simstudy.execution import clients
from simstudy.execution.queue import Task, open_queue

pytestmark = pytest.mark.usefixtures("warm_processes")


@pytest.mark.parametrize("executor", ["serial", "threads"])
def test_executors_of_one_process__open_no_socket(executor):
    before = listeners(os.getpid())
    with open_queue(executor, 2) as queue:
        queue.add([Task((minimal_cell(),), batch) for batch in range(4)])
        assert [listeners(os.getpid()) - before for _ in queue] == [set()] * 4


def test_threads__run_without_the_library_that_could_listen(tmp_path):
    told = "import sys; sys.exit = lambda code: print(code, 'distributed' in sys.modules)"
    arguments = ("run", write_design(tmp_path), "--output", tmp_path, "--executor", "threads", "--workers", 2)
    assert simstudy(*arguments, before=told).stdout.splitlines()[-1] in ("0 False", "3 False")


@pytest.mark.parametrize("executor", ["processes", pytest.param("cuda", marks=pytest.mark.rare)])
def test_local_cluster__listens_on_loopback_and_refuses_a_second_user(executor, monkeypatch):
    require_second_user()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr(clients, "cuda_problem", lambda: "")
    monkeypatch.setattr(clients, "visible_gpus", lambda: ["0"])
    before = listeners(os.getpid())
    with open_queue(executor, 1) as queue:
        opened = listeners(os.getpid()) - before
        # Scheduler, nanny and worker, and nothing that serves pages.
        assert len(opened) == 3 and {one.host for one in opened} == {"127.0.0.1"}
        assert break_in(opened) == ([], [])
        assert queue.workers() == 1


def test_plain_cluster__lets_a_second_user_in():
    """The control: without TLS the same attempts succeed."""
    from distributed import Client, Nanny, Scheduler, SpecCluster

    require_second_user()
    place = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    nannies = {"0": {"cls": Nanny, "options": {**place, "nthreads": 1}}}
    before = listeners(os.getpid())
    with SpecCluster(nannies, {"cls": Scheduler, "options": place}, silence_logs=50) as cluster, Client(cluster):
        opened = listeners(os.getpid()) - before
        assert len(opened) == 5  # with the pages of scheduler and worker
        ways, users = break_in(opened, ["tcp"], seconds=100.0)
    assert {"as_client tcp", "as_peer tcp", "as_worker tcp"} <= set(ways) and users == ["uid-0"]


@pytest.mark.parametrize("address", ["tcp://10.77.0.1:8786", "tcp://host:8786", "tcp://127.0.0.1.org:1", "ws://host:1"])
def test_scheduler_elsewhere_without_tls__needs_a_word_of_trust(address):
    with pytest.raises(UserError, match=r"anybody on the network can run code as you; use tls://.*--trust-network"):
        clients._credentials(address, False)
    assert clients._credentials(address, True)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "tcp://127.9.9.9:1", "tcp://[::1]:1", "tcp://localhost:1"])
def test_scheduler_on_this_machine__needs_none(address):
    assert clients._credentials(address, False)


def test_scheduler_with_tls__wants_certificates_of_the_configuration():
    with pytest.raises(UserError, match=r"certificates are missing; set distributed.comm.tls.ca-file and"):
        clients._credentials("tls://host:8786", False)
