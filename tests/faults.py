"""What can happen to a study: an operation of the disk fails, or the process is killed there.

`folder.py` is the one module that touches folders of studies, so what it asks of the system is all that can go wrong.
"""

import errno
import fcntl
import io
import json
import os
import shutil
import signal
from collections.abc import Callable
from multiprocessing.util import Finalize
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from builders import varied
from commands import simstudy
from stored import numbers, rows

from simstudy.execution import folder as doors
from simstudy.execution.store import Store, payloads

SMALL = varied(mse=0.01, angle=[0, 90], max_replicates=320)
UNFOLDED = "from simstudy.execution.state import RunState\nRunState.fold = lambda _: None\n"
"""Batches are compared one by one, which they are no more once they are folded together."""
STEADY = "from simstudy.execution import state, store\nstate.STATUS_SECONDS = store.FLUSH_SECONDS = 1e9\n"
"""What is asked of the disk does not depend on how fast the machine is."""
ERRORS = {
    "open": errno.EMFILE, "pwrite": errno.ENOSPC, "ftruncate": errno.EIO, "read": errno.EIO, "write": errno.ENOSPC,
    "fsync": errno.EIO, "rename": errno.ENOSPC, "mkdir": errno.ENOSPC, "unlink": errno.EIO, "stat": errno.EIO,
    "fstat": errno.EIO, "listdir": errno.EIO, "scandir": errno.EIO, "flock": errno.ENOLCK,
}  # fmt: skip


class Disk:
    """Stands between `folder.py` and the system from now on: fails or kills at one operation."""

    def __init__(self, at: int = 0, kills: bool = False) -> None:
        self.at, self.kills = at, kills
        self.asked: list[str] = []
        doors.os, doors.fcntl, doors.open = self, self, self._opened  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> Any:
        real = getattr(os if hasattr(os, name) else fcntl, name)
        half = (lambda to, content: real(to, content[: len(content) // 2])) if name == "write" else lambda *_: None
        return real if name not in ERRORS else lambda *a, **k: self.ask(name, lambda: half(*a)) or real(*a, **k)

    def ask(self, kind: str, half: Callable[[], object] = lambda: None) -> None:
        """Take note of an operation, and let it fail if it is its turn, or be the last, done by half."""
        self.asked.append(kind)
        if len(self.asked) == self.at:
            if self.kills:
                half()
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError(ERRORS[kind], os.strerror(ERRORS[kind]))

    def _opened(self, opened: int, mode: str, closefd: bool = True) -> Any:
        disk = self

        class File(io.FileIO):
            def readinto(self, buffer: Any) -> Any:
                disk.ask("read")
                return super().readinto(buffer)

            def readall(self) -> bytes:
                disk.ask("read")
                return super().readall()

            def write(self, content: Any) -> Any:
                disk.ask("write", lambda: super(File, self).write(bytes(content)[: len(content) // 2]))
                return super().write(content)

        file = File(opened, mode.replace("b", ""), closefd=closefd)
        return io.BufferedReader(file) if mode == "rb" else io.BufferedWriter(file)


def outcome(folder: Path) -> dict[str, Any]:
    """What a study has come to: numbers, batches, tables and page, and the names of all its files."""
    # As the program reads them: an entry that a disk has lost may stand behind that of a whole batch.
    store = Store(folder)
    found = payloads(store.files, [each for stored in store.index.values() for each in stored.values()])
    return {
        "batches": {(entry.identity, entry.n_batches, entry.first): payload for entry, payload in found},
        "numbers": [numbers(folder / f"{name}.nc") for name in ("results", "details")],
        "texts": [path.read_bytes() for path in sorted(folder.iterdir()) if path.suffix in (".csv", ".html")],
        "names": sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*")),
    }


class Calm:
    """A study that nothing happens to, what it came to, and what it asked of the disk."""

    def __init__(self, place: Path, before: str = "", *options: object) -> None:
        self.place, self.design, self.before = place, place / "design.toml", before
        self._options = options or ("--executor", "serial")
        self.design.write_text(SMALL)
        ended = self.run("calm", f"from faults import tell\ntell({str(place / 'told')!r})\n")
        assert ended.returncode in (0, 5), ended.stderr
        self.asked = json.loads((place / "told").read_text())
        (results,) = place.glob("calm/**/results.nc")
        self.folder = results.parent.relative_to(place / "calm")
        self.found, self.hits = outcome(results.parent), 0

    def run(self, name: str, before: str = "") -> CompletedProcess:
        """Run the study into a folder of this name, after some code."""
        given = "run", self.design, "--output", self.place / name, *self._options
        return simstudy(*given, before=STEADY + self.before + before)

    def harmed(self, at: int, kills: bool) -> str:
        """Say what is wrong with a run of which an operation fails or kills, and with the next; "" if all is well."""
        name = f"{'killed' if kills else 'failed'} at {at}"
        ended = self.run(name, f"from faults import Disk\nDisk({at}, {kills})\n")
        code, said, output = ended.returncode, ended.stderr, self.place / name
        expected = (0, 5, -signal.SIGKILL) if kills else (0, 2, 5)
        if code not in expected or len(said.strip().splitlines()) != (code == 2) or "Traceback" in said:
            return f"{name}: exit code {code}: {said}"
        if code in (0, 5) and outcome(output / self.folder) != self.found:
            return f"{name}: other results"
        self.hits += code not in (0, 5)
        stored = rows(output)
        ended, wrong = self.run(name), ""
        if ended.stderr or ended.returncode not in (0, 5) or outcome(output / self.folder) != self.found:
            wrong = f"{name}: exit code {ended.returncode} when run again: {ended.stderr}"
        if UNFOLDED in self.before and not stored.items() <= rows(output).items():
            wrong += f"{name}: a stored batch was lost or computed again"
        shutil.rmtree(output)
        return wrong


def tell(place: str) -> None:
    """Write what is asked of the disk into a file as the process ends."""
    disk = Disk()
    Finalize(None, lambda: Path(place).write_text(json.dumps(disk.asked)), exitpriority=0)
