"""The queue on a Dask cluster that cannot do the work: a message, never silence or a traceback."""

import os
import sys
import threading
import time

import dask
import distributed  # noqa: F401  # its defaults must be there before any are set aside
import numpy as np
import pytest
from builders import minimal_cell, write_design
from strangers import certificates, cluster
from threadpoolctl import threadpool_info, threadpool_limits

from simstudy import study
from simstudy.design.load import load_design
from simstudy.errors import UserError
from simstudy.execution import clients
from simstudy.execution import queue as queue_module
from simstudy.execution.queue import Task, open_queue
from simstudy.replicates.batch import simulate_batch
from simstudy.verdicts import assemble


@pytest.fixture
def local():
    """A cluster of one worker in this process."""
    from distributed import LocalCluster

    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster:
        yield cluster


@pytest.fixture
def queue(local):
    with open_queue(local.scheduler_address) as queue:
        yield queue


def batches(count: int, **settings) -> list[Task]:
    return [Task((minimal_cell(**settings),), batch) for batch in range(count)]


def test_scheduler_without_workers__is_refused_after_a_while(monkeypatch):
    from distributed import LocalCluster

    monkeypatch.setattr(clients, "WORKER_SECONDS", 1)
    with (
        LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as cluster,
        pytest.raises(UserError, match="no workers for 1 s; start some"),
        open_queue(cluster.scheduler_address),
    ):
        raise AssertionError("opened")


def test_workers_that_do_not_come_back__are_waited_for_only_so_long(monkeypatch, local, queue):
    monkeypatch.setattr(queue_module, "WORKER_SECONDS", 1)
    local.scale(0)
    queue.add(batches(20, n_keys=10_000))
    with pytest.raises(UserError, match=r"no workers for 1 s; start some.*finished batches are stored"):
        list(queue)


@pytest.mark.parametrize("protocol", [pytest.param("tcp", marks=pytest.mark.rare), "tls"])
def test_lost_scheduler__is_a_message_with_a_remedy(protocol, tmp_path, monkeypatch):
    """Killed, as by the end of its job; its workers leave by themselves, and nobody connects to it again."""
    again = []

    async def connect(address, **_):
        again.append(address)
        raise OSError("refused")

    lost = pytest.raises(UserError, match=r"^[^\n]*scheduler is lost[^\n]*finished batches are stored$")
    with (
        cluster(tmp_path / "cluster", protocol) as found,
        dask.config.set(found.settings),
        lost,
        open_queue(found.address) as queue,
    ):
        queue.add(batches(1000, n_keys=10_000))
        monkeypatch.setattr("distributed.client.connect", connect)
        for _ in queue:
            found.scheduler.kill()
    assert not again


def test_scheduler_that_is_silent__is_waited_for_and_then_lost(monkeypatch, queue):
    def unanswered():
        raise OSError("Timed out trying to connect")

    assert queue._client.rpc.timeout == clients.BUSY_SECONDS > 30.0
    queue.add(batches(1))
    monkeypatch.setattr(queue._client, "nthreads", unanswered)
    with pytest.raises(UserError, match=r"scheduler is lost.*finished batches are stored$"):
        list(queue)


def test_busy_scheduler__is_waited_for_at_connection_as_later(monkeypatch):
    """One that took more than 10 s to answer beside other work was no scheduler."""
    waited = []

    def connect(_, timeout, **__):
        waited.append(timeout)
        raise OSError("Timed out trying to connect")

    monkeypatch.setattr("simstudy.execution.nodes.FirmClient", connect)
    with pytest.raises(UserError, match="no Dask scheduler answers there"), open_queue("tcp://127.0.0.1:9"):
        raise AssertionError("opened")
    assert waited == [clients.BUSY_SECONDS]


def test_certificates_of_another_cluster_or_of_none__are_refused_in_one_line(tmp_path):
    from distributed import LocalCluster, Security

    place, settings = {"host": "127.0.0.1", "security": Security.temporary()}, certificates(tmp_path)
    with LocalCluster(n_workers=1, processes=False, dashboard_address=":0", **place) as cluster:
        for harm, message in (
            (lambda: None, r"^executor = 'tls://[^\n]*no Dask scheduler answers[^\n]*mend the certificates$"),
            (lambda: (tmp_path / "client_key.pem").write_text("no key"), r"^executor = [^\n]*mend the certificates$"),
            ((tmp_path / "client_cert.pem").unlink, r"^executor = [^\n]*mend the certificates$"),
        ):
            harm()
            refused = pytest.raises(UserError, match=message)
            with dask.config.set(settings), refused, open_queue(cluster.scheduler_address):
                raise AssertionError("opened")


@pytest.mark.usefixtures("warm_processes")
def test_workers_that_die__are_a_message_with_a_remedy(monkeypatch):
    # A lambda travels to the worker by value; the signature is that of `compute`.
    monkeypatch.setattr(queue_module, "compute", lambda task, device, engine: os._exit(1))
    with dask.config.set({"distributed.scheduler.allowed-failures": 0}), open_queue("processes", 1) as queue:
        queue.add(batches(1))
        with pytest.raises(UserError, match=r"workers died.*lower batch_size"):
            list(queue)


def test_queue__returns_every_task_also_those_added_while_iterating():
    tasks = batches(3)
    with open_queue("threads", 2) as queue:
        queue.add(tasks[:2])
        done = set()
        for task, outcome in queue:
            assert len(outcome.batches) == 1 and outcome.peak_MiB > 1
            if not done:
                queue.add(tasks[2:])
            done.add(task.batch)
    assert done == {0, 1, 2}


def test_short_batches__are_handed_over_several_at_a_time_and_each_keeps_its_own(monkeypatch):
    made, turns = minimal_cell(batch_size=16), []
    with open_queue("threads", 1) as queue:
        start = queue._start

        def spy(tasks):
            turns.append(len(tasks))
            start(tasks)

        monkeypatch.setattr(queue, "_start", spy)
        queue.add(Task((made,), batch) for batch in range(60))
        found = {task.batch: outcome.batches[0] for task, outcome in queue}
    assert sum(turns) == len(found) == 60 and max(turns) > 1
    for batch in (0, 17, 59):
        np.testing.assert_array_equal(found[batch].error_sum, simulate_batch([made], batch)[0].error_sum)


def test_next_turn__is_handed_out_before_outcomes_are_stored(monkeypatch):
    started = []
    monkeypatch.setattr(queue_module, "TASKS_PER_THREAD", 1)
    monkeypatch.setattr(queue_module, "TURN_SECONDS", 1e-9)
    with open_queue("threads", 1) as queue:
        start = queue._start
        monkeypatch.setattr(queue, "_start", lambda tasks: started.append(len(tasks)) or start(tasks))
        queue.add(batches(3, batch_size=16))
        outcomes = iter(queue)
        next(outcomes)
        assert started == [1, 1]
        list(outcomes)


@pytest.mark.parametrize("seconds", [3600.0, 0.0])
def test_workers__are_counted_once_in_a_while_and_not_for_each_task(seconds, monkeypatch, queue):
    """To ask the scheduler for them takes as long as a short batch."""
    monkeypatch.setattr(queue_module, "COUNT_SECONDS", seconds)
    counted, original = [], queue._client.nthreads
    monkeypatch.setattr(queue._client, "nthreads", lambda: counted.append(1) or original())
    queue.add(batches(12, batch_size=16))
    assert len(list(queue)) == 12
    assert (len(counted) == 1) == (seconds > 0.0)  # without any time between, at each pass


GO_ON = threading.Event()


def when_told(*_: object) -> list:
    """In the place of `compute`: what travels to workers goes by its name."""
    GO_ON.wait(600)
    return []


def test_end_of_a_task__wakes_the_client_before_it_counts_workers_again(monkeypatch, queue):
    monkeypatch.setattr(queue_module, "COUNT_SECONDS", 20.0)
    monkeypatch.setattr(queue_module, "compute", when_told)
    start = time.monotonic()
    queue._start(batches(1))
    threading.Timer(0.3, GO_ON.set).start()
    queue._next_ended()
    assert GO_ON.is_set() and time.monotonic() - start < 15.0


def test_processes__are_as_many_as_asked_and_import_nothing_from_folders_that_others_made(tmp_path, monkeypatch):
    """Neither from the current one nor from one that waits in the place of Dask's."""
    here, scratch = tmp_path / "here", tmp_path / "tmp" / "dask-scratch-space"
    for folder in (here, scratch):
        folder.mkdir(parents=True)
        for name in (*sys.stdlib_module_names, "numpy", "numba", "distributed", "simstudy", "sitecustomize"):
            (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'run')!r}, 'w')")
    scratch.chmod(0o777)
    if os.geteuid() == 0:  # else it is one's own
        os.chown(scratch, 65534, 65534)
    monkeypatch.chdir(here)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    before = list(sys.path)
    with clients.local_client({"0": {}, "1": {}}) as client:
        assert list(client.nthreads().values()) == [1, 1]
        found = client.run(lambda dask_worker: (sys.path, os.stat(dask_worker.local_directory).st_mode & 0o777))
        assert sys.path == before
    for path, mode in found.values():
        assert not any(str(tmp_path) in entry for entry in path) and mode & 0o077 == 0
    assert not (tmp_path / "run").exists() and os.listdir(tmp_path / "tmp") == ["dask-scratch-space"]


def test_threads__tell_what_a_task_raised_and_stop_at_once(monkeypatch):
    """A turn that runs for long, as of large batches, keeps neither the error nor the end of the queue back."""
    never = threading.Event()

    def compute(tasks, *_):
        if tasks[0].batch:
            never.wait(600)
        raise ZeroDivisionError("as raised there")

    monkeypatch.setattr(queue_module, "compute", compute)
    with pytest.raises(ZeroDivisionError, match="as raised there"), open_queue("threads", 2) as queue:
        queue.add([Task((minimal_cell(),), 1), Task((minimal_cell(),), 0)])
        list(queue)
    never.set()


def numerical_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.mark.parametrize("executor", ["serial", "threads", "processes"])
def test_numerical_library__has_one_thread_where_a_run_is_judged(executor):
    """Last bits of theory depended on how many there were, so that executors gave different results."""
    with threadpool_limits(2):
        with open_queue(executor, 1):
            assert numerical_threads() == {1}
        assert numerical_threads() == {2}


def test_numerical_library__has_one_thread_in_a_worker_that_somebody_else_started():
    task = batches(1)
    with threadpool_limits(2):
        queue_module.compute(task, "cpu", queue_module.engine_of(task, "cpu"))
        assert numerical_threads() == {1}


def test_numerical_library__has_one_thread_where_a_run_ends(tmp_path, monkeypatch):
    """The queue is closed by then; a design without claims meets theory here first."""
    seen, original = [], assemble.assemble

    def spied(*given):
        seen.append(numerical_threads())
        return original(*given)

    monkeypatch.setattr(assemble, "assemble", spied)
    with threadpool_limits(2):
        study.run(load_design(write_design(tmp_path)), output=tmp_path, executor="serial")
    assert seen == [{1}]


def test_worker_of_another_engine__is_refused(monkeypatch, queue):
    """Such a worker would store its bits under the name of ours."""
    asked = iter(["that of the client"])
    monkeypatch.setattr(queue_module, "engine", lambda device, cells: next(asked, "that of the worker"))
    queue.add(batches(1))
    with pytest.raises(UserError, match=r"other bits \(engine that of the worker on .*that of the client wanted\)"):
        list(queue)


@pytest.mark.parametrize("workers", [0, True, "2", 1025])
def test_workers_that_no_machine_has__are_refused(workers):
    """A thread that cannot be started was called a defect of simstudy."""
    with pytest.raises(UserError, match="must be a whole number from 1 to 1024"), open_queue("threads", workers):
        pass
