"""A cluster over TLS as a user starts it, and strangers without credentials: can they run code as its owner?"""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import psutil
from commands import environment, forks
from distributed import Security, rpc


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


def answering(sockets: Iterable[Listener]) -> list[str]:
    """Addresses that answer a client, worker or peer of Dask with no credentials, or such as anybody can make.

    Whoever is answered can run code there: all that come are let in, or not, by one listener.
    """
    with ProcessPoolExecutor(1, forks()) as stranger:  # whose sockets end with it
        return stranger.submit(_answering, [f"{one.host}:{one.port}" for one in sockets]).result()


def _answering(places: list[str]) -> list[str]:
    async def answers(address: str, security: Security | None) -> bool:
        how = security.get_connection_args("client") if security else {}
        with contextlib.suppress(Exception):
            async with rpc(address, connection_args=how, timeout=5) as peer:
                return bool(await asyncio.wait_for(peer.identity(), 20))
        return False

    async def all_answers() -> list[bool]:
        return await asyncio.gather(*(answers(*each) for each in tried))

    ways = (("tcp", None), ("tls", Security.temporary()))
    tried = [(f"{kind}://{place}", security) for place in places for kind, security in ways]
    return [address for (address, _), found in zip(tried, asyncio.run(all_answers()), strict=True) if found]


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
    made, settings = Security.temporary(), {}
    parts = [f"{member}_{kind}" for member in ("client", "scheduler", "worker") for kind in ("cert", "key")]
    for name in ("ca_file", *parts):
        path = folder / f"{name}.pem"
        path.write_text(getattr(made, f"tls_{name}"))
        settings[f"distributed.comm.tls.{name.replace('_', '.' if name != 'ca_file' else '-')}"] = str(path)
    return settings


@contextlib.contextmanager
def cluster(folder: Path, protocol: str = "tls") -> Iterator[tuple[str, dict[str, str], subprocess.Popen]]:
    """A process that is scheduler and worker of one thread: its address, and Dask's settings of its certificates."""
    settings = certificates(folder) if protocol == "tls" else {}
    told = {f"DASK_{name.replace('.', '__').replace('-', '_').upper()}": text for name, text in settings.items()}
    code = (
        "from distributed import LocalCluster\nsize = {'n_workers': 1, 'threads_per_worker': 1, 'processes': False}\n"
        f"c = LocalCluster(**size, protocol='{protocol}://', dashboard_address='127.0.0.1:0')\n"
        "print(c.scheduler_address, flush=True); input()"
    )
    start, pipe = [sys.executable, "-W", "ignore", "-c", code], subprocess.PIPE
    with subprocess.Popen(start, stdin=pipe, stdout=pipe, text=True, cwd=folder, env=environment(**told)) as process:
        yield process.stdout.readline().strip(), settings, process
        process.kill()
