"""What can happen to a study: an operation of the disk fails, the process is killed there, or the power goes after it.

`folder.py` is the one module that touches folders of studies, so what it asks of the system is all that can go wrong.
"""

import errno
import fcntl
import hashlib
import io
import os
import pickle
import shutil
import signal
from collections.abc import Callable, Iterator
from multiprocessing.util import Finalize
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, NamedTuple

from builders import DESIGN, edited
from commands import simstudy
from stored import numbers, rows

from simstudy.execution import folder as doors
from simstudy.execution.batches import payloads
from simstudy.execution.store import Store

SMALL = edited(DESIGN, "mse = 0.05", "mse = 0.01").replace("angle = [0, 45, 90]", "angle = [0, 90]")
SMALL = edited(SMALL, "max_replicates = 512", "max_replicates = 320")
UNFOLDED = "from simstudy.execution.state import RunState\nRunState.fold = lambda _: None\n"
"""Batches are compared one by one, which they are no more once they are folded together."""
ERRORS = {
    "open": errno.EMFILE, "pwrite": errno.ENOSPC, "ftruncate": errno.EIO,
    "read": errno.EIO, "write": errno.ENOSPC, "truncate": errno.EIO, "fsync": errno.EIO,
    "rename": errno.ENOSPC, "mkdir": errno.ENOSPC, "unlink": errno.EIO, "stat": errno.EIO, "fstat": errno.EIO,
    "listdir": errno.EIO, "scandir": errno.EIO, "flock": errno.ENOLCK,
}  # fmt: skip
PAGE = 4096
N_STOPS = 40
"""Operations after which the power goes, one at a time."""


class Operation(NamedTuple):
    """What was asked of the disk: files and folders by their numbers, names as (folder, name)."""

    kind: str
    file: int = 0
    place: int = 0
    content: bytes = b""
    name: tuple[int, str] = (0, "")
    former: tuple[int, str] = (0, "")


class Disk:
    """Stands between `folder.py` and the system from now on: fails or kills at one operation, tells what was done."""

    def __init__(self, at: int = 0, kills: bool = False) -> None:
        self.at, self.kills = at, kills
        self.asked: list[str] = []
        self.done: list[Operation] = []
        doors.os, doors.fcntl, doors.open = self, self, self._opened  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> Any:
        real = getattr(os if hasattr(os, name) else fcntl, name)
        if name not in ERRORS:
            return real

        def call(*given: Any, **options: Any) -> Any:
            self.ask(name)
            before = self._told(name, given, options)
            found = real(*given, **options)
            if before is not None and before.kind in ("create", "mkdir"):
                folder = options["dir_fd"]
                before = before._replace(file=os.stat(given[0], dir_fd=folder, follow_symlinks=False).st_ino)
            self.done += [before] if before is not None else []
            return found

        return call

    def ask(self, kind: str, half: Callable[[], object] = lambda: None) -> None:
        """Take note of an operation, and let it fail if it is its turn, or be the last, done by half."""
        self.asked.append(kind)
        if len(self.asked) == self.at:
            if self.kills:
                half()
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError(ERRORS[kind], os.strerror(ERRORS[kind]))

    def _told(self, name: str, given: tuple, options: dict) -> Operation | None:
        folder = options.get("dir_fd")
        match name:
            case "open" if folder is not None and given[1] & os.O_CREAT and not _there(given[0], folder):
                return Operation("create", name=(_number(folder), given[0]))
            case "mkdir":
                return None if _there(given[0], folder) else Operation("mkdir", name=(_number(folder), given[0]))
            case "rename":
                former = (_number(options["src_dir_fd"]), given[0])
                number = os.stat(given[0], dir_fd=options["src_dir_fd"]).st_ino
                return Operation("rename", number, name=(_number(options["dst_dir_fd"]), given[1]), former=former)
            case "unlink" if _there(given[0], folder):
                return Operation("unlink", name=(_number(folder), given[0]))
            case "fsync":
                return Operation("fsync", _number(given[0]))
        return None

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
                place = os.fstat(self.fileno()).st_size
                disk.done.append(Operation("write", _number(self.fileno()), place, bytes(content)))
                return super().write(content)

            def truncate(self, size: int | None = None) -> int:
                disk.ask("truncate")
                disk.done.append(Operation("truncate", _number(self.fileno()), size or 0))
                return super().truncate(size)

        file = File(opened, mode.replace("b", ""), closefd=closefd)
        return io.BufferedReader(file) if mode == "rb" else io.BufferedWriter(file)


def _there(name: str, folder: int) -> bool:
    return name in os.listdir(folder)


def _number(opened: int) -> int:
    return os.fstat(opened).st_ino


def outcome(folder: Path) -> dict[str, Any]:
    """What a study has come to: numbers, batches, tables and page, and the names of all its files."""
    # As the program reads them: an entry that a disk has lost may stand behind that of a whole batch.
    store = Store(folder)
    found = payloads(store.files, [each for stored in store.index.values() for each in stored.entries()])
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
        told = f"from faults import tell\ntell({str(place / 'told')!r})\n"
        ended = self.run("calm", told)
        assert ended.returncode in (0, 5), ended.stderr
        self.done, self.asked = pickle.loads((place / "told").read_bytes())
        (results,) = place.glob("calm/**/results.nc")
        self.folder = results.parent.relative_to(place / "calm")
        self.found, self.hits = outcome(results.parent), 0

    def run(self, name: str, before: str = "") -> CompletedProcess:
        """Run the study into a folder of this name, after some code."""
        given = "run", self.design, "--output", self.place / name, "--quiet", *self._options
        return simstudy(*given, before=self.before + before)

    def ends(self, name: str, before: str = "") -> str:
        """Say what is wrong with the next run in a folder; "" if it ends as one that nothing happened to."""
        ended = self.run(name, before)
        same = ended.returncode in (0, 5) and outcome(self.place / name / self.folder) == self.found
        said = f"{name}: exit code {ended.returncode} when run again: {ended.stderr}"
        return "" if same and not ended.stderr else said

    def harmed(self, at: int, kills: bool, broken: str = "") -> str:
        """Say what is wrong with a run of which an operation fails or kills, and with the next; "" if all is well."""
        name = f"{'killed' if kills else 'failed'} at {at}{f' {len(broken)}' * bool(broken)}"
        ended = self.run(name, f"{broken}from faults import Disk\nDisk({at}, {kills})\n")
        code, said, output = ended.returncode, ended.stderr, self.place / name
        expected = (0, 5, -signal.SIGKILL) if kills else (0, 2, 5)
        if code not in expected or len(said.strip().splitlines()) != (code == 2) or "Traceback" in said:
            return f"{name}: exit code {code}: {said}"
        if code in (0, 5) and outcome(output / self.folder) != self.found:
            return f"{name}: other results"
        self.hits += code not in (0, 5)
        stored = rows(output)
        wrong = self.ends(name, broken)
        if UNFOLDED in self.before and not stored.items() <= rows(output).items():
            wrong += f"{name}: a stored batch was lost or computed again"
        shutil.rmtree(output)
        return wrong


def tell(place: str) -> None:
    """Write what is asked of the disk into a file as the process ends."""
    disk = Disk()
    Finalize(None, lambda: Path(place).write_bytes(pickle.dumps((disk.done, disk.asked))), exitpriority=0)


class Tree(NamedTuple):
    """What is on a disk: contents of files by number, and names."""

    contents: dict[int, bytes]
    names: dict[tuple[int, str], int]

    def written(self, root: int, place: Path) -> str:
        """Write all that can be reached from a folder, and return its digest."""
        digest = hashlib.sha256()
        place.mkdir()
        for (above, name), number in sorted(self.names.items(), key=lambda each: each[0][1]):
            if above != root:
                continue
            if number in self.contents:
                (place / name).write_bytes(self.contents[number])
                digest.update(repr((name, self.contents[number])).encode())
            else:
                digest.update(repr((name, self.written(number, place / name))).encode())
        return digest.hexdigest()


def lost(done: list[Operation], folders: set[int], synced: bool, data: str) -> Tree:
    """What is left after these operations: names in order, all or, if ``synced``, those up to the last flush.

    Bytes that were not flushed are ``kept``, ``dropped``, ``zeroed``, or ``paged``: zeroed with the pages they lie in.
    """
    last = max((i for i, each in enumerate(done) if each.kind == "fsync"), default=-1)
    tree, flushed = Tree({}, {}), dict[int, bytes]()
    for i, each in enumerate(done):
        content = tree.contents.get(each.file, b"")
        match each.kind:
            case "write":
                tree.contents[each.file] = content[: each.place].ljust(each.place, b"\0") + each.content
            case "truncate":
                tree.contents[each.file] = content[: each.place].ljust(each.place, b"\0")
            case "create" if each.file not in tree.contents:
                tree.contents[each.file] = b""
            case "fsync" if each.file not in folders:
                flushed[each.file] = content
        if not synced or i <= last:
            _named(tree, each)
    left = {number: _left(content, flushed.get(number, b""), data) for number, content in tree.contents.items()}
    return Tree(left, tree.names)


def _left(content: bytes, before: bytes, data: str) -> bytes:
    """Return what is left of a file that was flushed before."""
    if data in ("kept", "dropped"):
        return content if data == "kept" else before
    if data == "zeroed" and content.startswith(before):
        return before.ljust(len(content), b"\0")
    pages = ((content[at : at + PAGE], before[at : at + PAGE]) for at in range(0, len(content), PAGE))
    return b"".join(now if now == then else bytes(PAGE) for now, then in pages)[: len(content)]


def _named(tree: Tree, each: Operation) -> None:
    if each.kind in ("create", "mkdir", "rename"):
        tree.names[each.name] = each.file
    if each.kind in ("rename", "unlink"):
        tree.names.pop(each.former if each.kind == "rename" else each.name, None)


def without_power(done: list[Operation], folders: set[int]) -> Iterator[Tree]:
    """Yield what may be left after each operation: of names a journal, or all but one of those not flushed."""
    for stop in range(1, len(done) + 1, max(1, len(done) // N_STOPS)):
        for synced in (False, True):
            for data in ("kept", "dropped", "zeroed", "paged"):
                yield lost(done[:stop], folders, synced, data)
        last = max((i for i in range(stop) if done[i].kind == "fsync"), default=-1)
        for gone in range(last + 1, stop):
            if done[gone].kind in ("create", "rename", "unlink"):
                yield lost(done[:gone] + done[gone + 1 : stop], folders, False, "kept")
