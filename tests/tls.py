"""A Dask scheduler and its workers as a user starts them: over TLS, with certificates of Dask's settings."""

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from kills import ROOT, environment
from strangers import certificates, in_environment


class Cluster:
    """A scheduler on this machine, and workers of one thread each that can be killed."""

    def __init__(self, place: Path, protocol: str, **variables: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"{protocol}://127.0.0.1:{free.getsockname()[1]}"
        self.settings = certificates(place) if protocol == "tls" else {}
        self.environment = environment(**in_environment(self.settings), **variables)
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
def cluster(place: Path, protocol: str = "tls", **variables: str) -> Iterator[Cluster]:
    """Make a folder, start a cluster that uses it, and end that with the block."""
    place.mkdir()
    started = Cluster(place, protocol, **variables)
    try:
        yield started
    finally:
        started.end()
