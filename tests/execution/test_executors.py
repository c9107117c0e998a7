"""Executors that cannot do the work tell so, never silence or a traceback; and none of them opens a door."""

import math
import os
import sys
import threading
from collections import deque
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from unittest.mock import AsyncMock, Mock

import dask
import numpy as np
import pytest
from builders import loaded, minimal_cell, refuses, watched
from distributed import LocalCluster, Security, SpecCluster, get_worker  # with its defaults, before any are set aside
from strangers import answering, certificates, cluster, listeners
from threadpoolctl import threadpool_info, threadpool_limits

from simstudy import study
from simstudy.errors import UserError
from simstudy.execution import clusters, executors
from simstudy.execution.clusters import PrivateNanny, PrivateScheduler, PrivateWorker
from simstudy.execution.executors import Task, open_executor, run_tasks
from simstudy.replicates.batch import simulate_batch
from simstudy.verdicts import assemble


@pytest.fixture
def local():
    """A cluster of one worker in this process."""
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster:
        yield cluster


@pytest.fixture
def executor(local):
    with open_executor(local.scheduler_address) as executor:
        yield executor


def drained(executor, tasks) -> list:
    return list(run_tasks(executor, deque([iter(tasks)])))


def batches(count: int, **settings) -> list[Task]:
    return [Task((minimal_cell(**settings),), batch) for batch in range(count)]


@pytest.mark.parametrize("protocol", [pytest.param("tcp", marks=pytest.mark.rare), "tls"])
def test_lost_scheduler__is_a_message_with_a_remedy(protocol, tmp_path, monkeypatch):
    connect = AsyncMock(side_effect=OSError("refused"))
    lost = pytest.raises(UserError, match=r"^[^\n]*scheduler is lost[^\n]*finished batches are stored$")
    with (
        cluster(tmp_path, protocol) as (address, settings, process),
        dask.config.set(settings),
        lost,
        open_executor(address) as executor,
    ):
        monkeypatch.setattr("distributed.client.connect", connect)
        for _ in run_tasks(executor, deque([iter(batches(1000, n_keys=10_000))])):
            process.kill()
    assert not connect.called


def test_silent_scheduler_and_workers_that_do_not_come_back__are_waited_for_only_so_long(monkeypatch, executor, local):
    unanswered = Mock(side_effect=OSError("Timed out trying to connect"))
    assert executor._client.rpc.timeout == clusters.BUSY_SECONDS > 30.0
    with monkeypatch.context() as silent:
        silent.setattr(executor._client, "nthreads", unanswered)
        silent.setattr(executor, "_counted", -math.inf)  # workers are counted when it opens, and once a second
        refuses(r"scheduler is lost.*finished batches are stored$", drained, executor, batches(1))
    monkeypatch.setattr(clusters, "WORKER_SECONDS", 1)
    local.scale(0)
    many, lost = batches(20, n_keys=10_000), "no workers for 1 s; start some.*finished batches are stored"
    refuses(lost, drained, executor, many)
    refuses("no workers for 1 s; start some", open_executor(local.scheduler_address).__enter__)


def test_certificates_of_another_cluster_or_of_none__are_refused_in_one_line(tmp_path):
    place, settings = {"host": "127.0.0.1", "security": Security.temporary()}, certificates(tmp_path)
    with LocalCluster(n_workers=1, processes=False, dashboard_address=":0", **place) as cluster:
        for harm, message in (
            (lambda: None, r"^executor = 'tls://[^\n]*no Dask scheduler answers[^\n]*fix the certificates$"),
            (lambda: (tmp_path / "client_key.pem").write_text("no key"), r"^executor = [^\n]*fix the certificates$"),
            ((tmp_path / "client_cert.pem").unlink, r"^executor = [^\n]*fix the certificates$"),
        ):
            harm()
            with dask.config.set(settings):
                refuses(message, open_executor(cluster.scheduler_address).__enter__)


@pytest.mark.usefixtures("warm_processes")
def test_workers_that_die__are_a_message_with_a_remedy(monkeypatch):
    # A lambda travels to the worker by value; the signature is that of `compute`.
    monkeypatch.setattr(executors, "compute", lambda task, device, engine: os._exit(1))
    told = pytest.raises(UserError, match=r"workers died.*lower batch_size")
    with dask.config.set({"distributed.scheduler.allowed-failures": 0}), open_executor("processes", 1) as found, told:
        drained(found, batches(1))


def test_loop__returns_every_task_also_those_added_while_iterating_and_opens_no_socket():
    tasks, before = batches(3), listeners(os.getpid())
    streams, done = deque([iter(tasks[:2])]), set()
    with open_executor("threads", 2) as executor:
        for task, outcome in run_tasks(executor, streams):
            assert listeners(os.getpid()) <= before
            assert len(outcome.batches) == 1 and outcome.peak_MiB > 1
            if not done:
                streams.append(iter(tasks[2:]))
            done.add(task.batch)
    assert done == {0, 1, 2}


def test_short_batches__are_handed_over_several_at_a_time_and_the_next_turn_before_outcomes_are_stored(monkeypatch):
    made = minimal_cell(batch_size=16)
    with open_executor("threads", 1) as executor:
        turns = watched(monkeypatch, executor, "submit")
        found = {task.batch: outcome.batches[0] for task, outcome in drained(executor, batches(60, batch_size=16))}
    sizes = [len(tasks) for _, tasks, *_ in turns]
    assert sum(sizes) == len(found) == 60 and max(sizes) > 1
    for batch in (0, 17, 59):
        np.testing.assert_array_equal(found[batch].error_sum, simulate_batch([made], batch)[0].error_sum)
    monkeypatch.setattr(executors, "TASKS_PER_THREAD", 1)
    monkeypatch.setattr(executors, "CALL_SECONDS", 1e-9)
    with open_executor("threads", 1) as executor:
        turns = watched(monkeypatch, executor, "submit")
        outcomes = run_tasks(executor, deque([iter(batches(3, batch_size=16))]))
        next(outcomes)
        assert [len(tasks) for _, tasks, *_ in turns] == [1, 1]
        list(outcomes)


@pytest.mark.parametrize("seconds", [3600.0, 0.0])
def test_workers__are_counted_once_in_a_while_and_not_for_each_task(seconds, monkeypatch, executor):
    monkeypatch.setattr(clusters, "COUNT_SECONDS", seconds)
    monkeypatch.setattr(executor, "_counted", -math.inf)  # they are counted when it opens, too
    counted = watched(monkeypatch, executor._client, "nthreads")
    assert len(drained(executor, batches(12, batch_size=16))) == 12
    assert (len(counted) == 1) == (seconds > 0.0)  # without any time between, at each pass


def test_processes__are_as_many_as_asked_and_import_nothing_from_folders_that_others_made(tmp_path, monkeypatch):
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
    with clusters.local_cluster({"0": {}, "1": {}}, 1) as opened:
        assert list(opened._client.nthreads().values()) == [1, 1]
        found = opened._client.run(lambda dask_worker: (sys.path, os.stat(dask_worker.local_directory).st_mode & 0o777))
        assert sys.path == before
    for path, mode in found.values():
        assert not any(str(tmp_path) in entry for entry in path) and mode & 0o077 == 0
    assert not (tmp_path / "run").exists() and os.listdir(tmp_path / "tmp") == ["dask-scratch-space"]


def test_outcome_whose_worker_is_lost_just_after_it_was_fetched__counts(executor, monkeypatch):
    client, gather = executor._client, executor._client._gather

    async def lost_since(futures, **how):
        found = await gather(futures, **how)
        for state in client.futures.values():
            state.lose()
        return found

    monkeypatch.setattr(client, "_gather", lost_since)
    ((_, outcome),) = drained(executor, batches(1))
    assert len(outcome.batches) == 1


def test_threads__tell_what_a_task_raised_and_stop_at_once_and_who_cancels_calls_is_not_waited_for(monkeypatch):
    never = threading.Event()

    def compute(tasks, *_):
        if tasks[0].batch:
            never.wait(600)
        raise ZeroDivisionError("as raised there")

    monkeypatch.setattr(executors, "compute", compute)
    with pytest.raises(ZeroDivisionError, match="as raised there"), open_executor("threads", 2) as executor:
        drained(executor, [Task((minimal_cell(),), 1), Task((minimal_cell(),), 0)])
    never.set()
    (cancelled := Future()).cancel()
    with open_executor(Mock(Executor, submit=lambda *_: cancelled)) as own, pytest.raises(CancelledError):
        drained(own, batches(1))
    (lost := Future()).set_exception(BrokenExecutor("One has died."))
    for submit in (Mock(side_effect=lost.exception()), lambda *_: lost):
        told = pytest.raises(UserError, match=r"^\w+: One has died. Run again: finished batches are stored$")
        with told, open_executor(Mock(Executor, submit=submit)) as own:
            drained(own, batches(1))


def numerical_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_numerical_library__has_one_thread_wherever_something_is_computed(tmp_path, monkeypatch):
    seen, original = [], assemble.assemble
    monkeypatch.setattr(assemble, "assemble", lambda *given: seen.append(numerical_threads()) or original(*given))
    with threadpool_limits(2):
        study.complete(loaded(tmp_path), output=tmp_path, executor="serial")
        for executor in ("serial", "threads", "processes"):
            with open_executor(executor, 1):
                assert numerical_threads() == {1}
            assert numerical_threads() == {2}
        executors.compute(batches(1), "cpu", executors.engine())  # as in a worker that somebody else started
        assert numerical_threads() == {1}
    assert seen == [{1}]


def test_worker_of_another_engine__is_excluded_while_others_remain(monkeypatch, local, executor):
    local.scale(2)
    executor._client.wait_for_workers(2)
    unlike = []

    def engine(device):
        try:
            address = get_worker().address
        except ValueError:
            return "that of the client"
        unlike[:] = unlike or [address]
        return "that of the worker" if address in unlike else "that of the client"

    monkeypatch.setattr(executors, "engine", engine)
    assert sorted(task.batch for task, _ in drained(executor, batches(12, batch_size=16))) == [*range(12)]
    (note,) = executor.notes
    assert "would give other last bits (engine that of the worker) and computed nothing; install the same" in note
    unlike += executor._client.nthreads()
    refuses(r"other last bits .engine that of the worker., and no other worker is left", drained, executor, batches(1))


@pytest.mark.parametrize("workers", [0, True, "2", 1025])
def test_workers_that_no_machine_has__are_refused_and_by_default_are_those_of_the_job(workers, monkeypatch):
    refuses("must be a whole number from 1 to 1024", open_executor("threads", workers).__enter__)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {7}, raising=False)  # as a batch system does
    with open_executor("threads") as opened:
        assert opened.workers() == 1


@pytest.mark.usefixtures("warm_processes")
def test_local_cluster__listens_on_loopback_and_refuses_strangers():
    before = listeners(os.getpid())
    with open_executor("processes", 1) as started:
        opened = listeners(os.getpid()) - before
        # Scheduler, nanny and worker, and nothing that serves pages.
        assert len(opened) == 3 and {one.host for one in opened} == {"127.0.0.1"}
        assert answering(opened) == [] and started.workers() == 1
    # The control: without TLS the same attempts succeed.
    place = {"host": "127.0.0.1", "dashboard_address": None}
    nanny = {"cls": PrivateNanny, "options": {"host": "127.0.0.1", "worker_class": PrivateWorker}}
    before = listeners(os.getpid())
    with SpecCluster({"0": nanny}, {"cls": PrivateScheduler, "options": place}, silence_logs=50):
        opened = listeners(os.getpid()) - before
        assert len(answering(opened)) == len(opened) == 3


def test_scheduler_elsewhere__needs_tls_with_certificates(monkeypatch):
    client = Mock(side_effect=OSError("asked"))
    monkeypatch.setattr("simstudy.execution.clusters.NoReconnectClient", client)
    network = r"anybody on the network can run code as you; use tls://.*a Client of your own"
    certified = r"certificates are missing; set distributed.comm.tls.ca-file and"
    elsewhere = "tcp://10.77.0.1:1", "tcp://host:1", "tcp://127.0.0.1.org:1", "tcp://localhost.org:1", "ws://host:1"
    here = "tcp://127.0.0.1:1", "tcp://127.9.9.9:1", "tcp://[::1]:1", "tcp://localhost:1"
    for address, told in (
        *((address, network) for address in elsewhere), ("tls://host:8786", certified),
        *((address, r"no Dask scheduler answers.*\(asked\)") for address in here),
    ):  # fmt: skip
        refuses(told, open_executor(address).__enter__)
    # One that took more than 10 s to answer beside other work was no scheduler.
    assert {asked.kwargs["timeout"] for asked in client.call_args_list} == {clusters.BUSY_SECONDS}
