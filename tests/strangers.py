"""A cluster over TLS as a user starts it, and a second user, without credentials: can he run code as its owner?"""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
from commands import ROOT, environment

NOBODY = 65534
# Each way in is tried at each address, with no credentials (tcp) and with those that anybody can make (tls).  What gets
# in as a client runs code there, which leaves a file; what gets in as a worker would be sent the owner's code.
# He may read all files, wherever Python and its libraries lie: what keeps him out must not be a closed home.
SECOND_USER = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(8, 1, 0, 0, 0)  # PR_SET_KEEPCAPS
os.setgroups([]); os.setgid(NOBODY); os.setuid(NOBODY)
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
sets = (ctypes.c_uint32 * 6)(1 << 2, 1 << 2)  # CAP_DAC_READ_SEARCH: effective, permitted
if libc.capset(header, sets):
    raise SystemExit("a second user cannot be made here: " + os.strerror(ctypes.get_errno()))
""".replace("NOBODY", str(NOBODY))
BREAK_IN = """
import asyncio, os, sys
import distributed
from distributed import Client, Security, Worker, rpc
ports, folder, kinds, seconds = sys.argv[1].split(","), sys.argv[2], sys.argv[3].split(","), float(sys.argv[4])
own = Security.temporary()
import distributed.protocol.pickle, distributed.comm.tcp, tempfile
SECOND_USER
import wave  # from files that he has to read now
print("started")
os.environ["HOME"] = os.environ["TMPDIR"] = tempfile.tempdir = folder
os.chdir(folder)

def mark(name):
    import os
    open(os.path.join(name, f"uid-{os.getuid()}"), "w").close()

async def as_client(address, security):
    async with Client(address, security=security, asynchronous=True, timeout=seconds) as client:
        await client.run_on_scheduler(mark, folder)

async def as_worker(address, security):
    async with Worker(address, security=security, nthreads=1, death_timeout=seconds):
        return

async def as_peer(address, security):
    # Workers and nannies run what they are sent, too.
    async with rpc(address, connection_args=security.get_connection_args("client") if security else {}) as peer:
        await peer.identity()

async def attempt(way, protocol, port):
    security = own if protocol == "tls" else None
    try:
        await asyncio.wait_for(way(f"{protocol}://{port}", security), 4 * seconds)
    except Exception:
        return
    print(way.__name__, protocol)
    inside.add(way)

async def main():
    ways = (as_client, as_worker, as_peer)
    trying = {asyncio.ensure_future(attempt(way, kind, port)) for way in ways for kind in kinds for port in ports}
    # Who got in by every way need not wait for the doors at which that way leads nowhere.
    while trying and inside != set(ways):
        _, trying = await asyncio.wait(trying, return_when=asyncio.FIRST_COMPLETED)

inside = set()
asyncio.run(main())
sys.stdout.flush()
os._exit(0)
""".replace("SECOND_USER", SECOND_USER)


class Listener(NamedTuple):
    """A socket on which a process accepts connections."""

    pid: int
    host: str
    port: int


def listeners(pid: int) -> set[Listener]:
    """Sockets on which a process or one that it started accepts connections, of any kind."""
    found = set()
    with contextlib.suppress(psutil.NoSuchProcess):
        owner = psutil.Process(pid)
        for process in (owner, *owner.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                for socket in process.net_connections("inet"):
                    if socket.status == psutil.CONN_LISTEN:
                        found.add(Listener(process.pid, *socket.laddr))
    return found


def require_second_user() -> None:
    if os.geteuid() != 0:
        pytest.skip("not root, who can become another user")


def break_in(
    sockets: Iterable[Listener], kinds: Iterable[str] = ("tcp", "tls"), seconds: float = 5.0
) -> tuple[list[str], list[str]]:
    """Try to join as a second user: return the ways that led in, and the files of those as whom code was run.

    Who is refused tries again for some seconds; who must get in, on a busy machine as well, is given more of them.
    """
    doors = ",".join(sorted(f"{one.host}:{one.port}" for one in sockets))
    # Folders of pytest are closed to others.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o777)
        command = [sys.executable, "-W", "ignore", "-c", BREAK_IN, doors, folder, ",".join(kinds), str(seconds)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        # An attacker who cannot start is kept out by nothing.
        if "a second user cannot be made here" in done.stderr:
            pytest.skip(done.stderr.strip().splitlines()[-1])
        assert done.returncode == 0, done.stderr
        started, *ways = done.stdout.splitlines()
        assert started == "started", done.stdout
        return sorted(ways), sorted(path.name for path in Path(folder).glob("uid-*"))


def readable_by_others(folder: Path) -> list[Path]:
    """Files below a folder that a second user may read once he is let into it."""
    code = (
        "import os, sys; os.setgroups([]); os.setgid(65534); os.setuid(65534)\nfor p in sys.argv[1:]:\n"
        "    try: open(p).close(); print(p)\n    except PermissionError: pass"
    )
    paths = [str(path) for path in sorted(folder.rglob("*")) if path.is_file()]
    done = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, text=True, check=True)
    return [Path(line) for line in done.stdout.splitlines()]


def certificates(folder: Path) -> dict[str, str]:
    """Write the certificate of a cluster, as its owner would, and return Dask's settings that name it."""
    from distributed import Security

    made, settings = Security.temporary(), {}
    for name in (
        "ca_file",
        *(f"{member}_{kind}" for member in ("client", "scheduler", "worker") for kind in ("cert", "key")),
    ):
        path = folder / f"{name}.pem"
        path.write_text(getattr(made, f"tls_{name}"))
        settings[f"distributed.comm.tls.{name.replace('_', '.' if name != 'ca_file' else '-')}"] = str(path)
    return settings


def in_environment(settings: dict[str, str]) -> dict[str, str]:
    return {f"DASK_{name.replace('.', '__').replace('-', '_').upper()}": text for name, text in settings.items()}


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
