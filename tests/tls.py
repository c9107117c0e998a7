"""A Dask scheduler and its workers as a user starts them: over TLS, with certificates in Dask's configuration."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from kills import ROOT, environment
from strangers import certificates, in_environment


class Cluster:
    """A scheduler on this machine, and workers of one thread each that can be killed.

    Parameters
    ----------
    place
        An empty folder.
    variables
        Of the environment of all of them.
    """

    def __init__(self, place: Path, **variables: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"tls://127.0.0.1:{free.getsockname()[1]}"
        self.environment = environment(**in_environment(certificates(place)), **variables)
        self._place = place
        self.scheduler = self._start("scheduler", "--host", self.address, "--no-dashboard")
        self.workers = [self.add_worker(), self.add_worker()]

    def add_worker(self) -> subprocess.Popen:
        scratch = ("--local-directory", str(self._place / "scratch"))
        return self._start("worker", self.address, "--nthreads", "1", "--no-dashboard", "--no-nanny", *scratch)

    def _start(self, kind: str, *arguments: str) -> subprocess.Popen:
        command = [sys.executable, "-W", "ignore", "-m", f"distributed.cli.dask_{kind}", *arguments]
        with (self._place / f"{kind}.log").open("a") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT, env=self.environment)

    def kill_worker(self) -> None:
        """Kill the older worker, and start another."""
        self.workers[0].kill()
        self.workers[0].wait()
        self.workers = [self.workers[1], self.add_worker()]

    def end(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()


@contextlib.contextmanager
def cluster(place: Path, **variables: str) -> Iterator[Cluster]:
    """Make a folder, start a cluster that uses it, and end that with the block."""
    place.mkdir()
    started = Cluster(place, **variables)
    try:
        yield started
    finally:
        started.end()
