"""What a disk can do to a study: the n-th operation fails, or the power goes after it.

`folder.py` is the one module that touches folders of studies, so what it asks of the system is all that can go wrong.
"""

import errno
import fcntl
import hashlib
import io
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

from builders import DESIGN, edited
from kills import FOLDER, numbers

from simstudy.execution import folder as doors
from simstudy.execution.batches import payloads
from simstudy.execution.store import Store

SMALL = edited(DESIGN, "mse = 0.05", "mse = 0.01").replace("angle = [0, 45, 90]", "angle = [0, 90]")
SMALL = edited(SMALL, "max_replicates = 512", "max_replicates = 320")
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
    """Stands between `folder.py` and the system: counts, fails at one operation, and tells what was done."""

    def __init__(self, fails_at: int = 0) -> None:
        self.fails_at, self.count = fails_at, 0
        self.done: list[Operation] = []

    def __enter__(self) -> Self:
        doors.os, doors.fcntl, doors.open = self, self, self._opened  # type: ignore[attr-defined]
        return self

    def __exit__(self, *_: object) -> None:
        doors.os, doors.fcntl = os, fcntl
        del doors.open  # type: ignore[attr-defined]

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

    def ask(self, kind: str) -> None:
        """Take note of an operation, and let it fail if it is its turn."""
        self.count += 1
        if self.count == self.fails_at:
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
                disk.ask("write")
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


def in_fork(work: Callable[[], str]) -> str:
    """Return what work says in a process of its own; "" if all is well."""
    read, wrote = os.pipe()
    if not (child := os.fork()):
        try:
            said = work()
        except BaseException as error:
            said = repr(error)
        os.write(wrote, said.encode()[:60_000])
        os._exit(0)
    os.close(wrote)
    with open(read) as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return said


def ran(design: Path, output: Path, disk: Disk | None = None) -> tuple[int, str]:
    """Run a study as the command does, and return its exit code and what it printed as errors."""
    from simstudy.__main__ import _outcome
    from simstudy.report import page

    before = page.figure_files, page.render
    page.figure_files, page.render = lambda *_: {}, lambda *_: "page"  # which take longest
    sys.argv = ["simstudy", "run", str(design), "--output", str(output), "--executor", "serial", "--quiet"]
    log = output.with_name(f"{output.name}.log")
    kept = sys.stderr
    with log.open("w") as sys.stderr, disk or Disk():
        try:
            code = _outcome()
        except SystemExit as end:
            code = int(end.code or 0)
    sys.stderr = kept
    page.figure_files, page.render = before
    return code, log.read_text()


def outcome(output: Path) -> dict[str, Any]:
    """What a study has come to: numbers, batches and tables."""
    folder = output / FOLDER
    texts = {name: (folder / name).read_bytes() for name in ("verdicts.csv", "comparisons.csv", "cells.csv")}
    # As the program reads them: an entry that a disk has lost may stand behind that of a whole batch.
    store = Store(folder)
    found = payloads(store.files, [each for stored in store.index.values() for each in stored.entries()])
    stored = {(entry.identity, entry.n_batches, entry.first): payload for entry, payload in found}
    return {"results": numbers(folder / "results.nc"), "batches": stored, **texts}


def failing(design: Path, place: Path, calm: dict[str, Any], fails_at: int) -> str:
    """Say what is wrong with a run of which an operation fails, and with the next; "" if all is well."""
    output = place / f"fails at {fails_at}"
    output.mkdir()
    code, said = ran(design, output, Disk(fails_at))
    if code not in (0, 2, 5) or "Traceback" in said or (code == 2 and len(said.strip().splitlines()) != 1):
        return f"{fails_at}: exit code {code}: {said}"
    if code != 2 and outcome(output) != calm:
        return f"{fails_at}: other results"
    code, said = ran(design, output)
    wrong = code not in (0, 5) or outcome(output) != calm
    shutil.rmtree(output)
    return f"{fails_at}: exit code {code} when run again: {said}" if wrong else ""


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
