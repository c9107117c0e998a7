"""All access to folders of studies: their contents are data, and links in them are never followed.

A folder is opened anew for each operation, from the path that the user named, which may contain links.  Names below it
are opened by the descriptor of their parent, and none may be a link: no change after a check has an effect.
"""

import contextlib
import errno
import fcntl
import functools
import os
import re
import stat
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from simstudy.errors import UserError

PARTIAL = ".partial"
"""Folder of incomplete files, and of files that only the holder of the lock needs."""
_CHECKED = "figures", PARTIAL, "logs", "replays", "batches"
"""Folders of a study that are searched for links before anything is computed."""
_DELETED = re.compile(r"batches/[0-9]+-of-[0-9]+|\.partial/([0-9a-f]{32}|tls-\w+\.pem)")
"""The only files that the program deletes."""
_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_ABSENT = (FileNotFoundError, NotADirectoryError, ValueError)  # ValueError for a name with a zero byte
_REMEDIES = dict.fromkeys((errno.EMFILE, errno.ENFILE), "allow more open files (ulimit -n 256)") | dict.fromkeys(
    (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP),
    "mount it with file locks (flock), or choose an --output on another",
)


class Missing(UserError):
    """A file does not exist."""


class LockHeld(UserError):
    """Another process holds the lock."""


def due(began: float, seconds: float, share: float = 0.02) -> float:
    """Return the time at which to repeat an action: after ``seconds``, or later to take at most this share of time."""
    ended = time.monotonic()
    return ended + max(seconds, (ended - began) / share)


@dataclass(frozen=True)
class Folder:
    """A folder that the user named, or one below it; only the path of the former may contain links."""

    root: Path
    below: tuple[str, ...] = ()

    @functools.cached_property
    def path(self) -> Path:
        """Path of the folder, for messages."""
        return self.root.joinpath(*self.below)

    def at(self, *names: str) -> "Folder":
        """Return a folder below this one."""
        return Folder(self.root, self.below + names)

    def names(self) -> list[str]:
        """Return the sorted names in this folder; empty if there is no such folder."""
        with self.reporting(), contextlib.suppress(*_ABSENT), self._parent() as (folder, _):
            return sorted(os.listdir(folder))
        return []

    @contextlib.contextmanager
    def reading(self, name: str) -> Iterator[BinaryIO]:
        """Open a regular file for reading; Missing if there is none, UserError if it cannot be read."""
        with self.reporting(name), self._file(name, os.O_RDONLY) as opened, open(opened, "rb", closefd=False) as file:
            yield file

    def read(self, name: str, limit: int) -> bytes:
        """Return the contents of a regular file of at most ``limit`` bytes; raises as `reading`."""
        with self.reading(name) as file:
            if os.fstat(file.fileno()).st_size > limit:
                raise UserError(f"{self.path / name}: cannot be read: longer than {limit} bytes; move it")
            return file.read()

    @contextlib.contextmanager
    def appending(self, name: str, stop: int) -> Iterator[Callable[[bytes], int]]:
        """Yield a function that appends to a file, which is new or truncated first, and returns the new length."""

        def append(content: bytes) -> int:
            with self.reporting(name, "written"):
                while content:
                    content = content[os.write(opened, content) :]
                return os.lseek(opened, 0, os.SEEK_CUR)

        with self.reporting(name, "written"), self._file(name, os.O_RDWR | os.O_APPEND | os.O_CREAT) as opened:
            os.ftruncate(opened, min(stop, os.fstat(opened).st_size))
            yield append

    def write(self, name: str, content: bytes | Iterable[bytes], flush: bool = True, mode: int = 0o666) -> Path:
        """Write a file under another name and rename it; a failure leaves nothing behind."""
        temporary = uuid.uuid4().hex
        with (
            self.reporting(name, "written"),
            self._parent(f"{PARTIAL}/{temporary}", make=True) as (partial, _),
            self._parent(name, make=True) as (folder, last),
        ):
            self._require_own(name, folder, last)
            try:
                opened = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, mode, dir_fd=partial)
                with open(opened, "wb") as file:
                    file.writelines([content] if isinstance(content, bytes) else content)
                    file.flush()
                    if flush:
                        os.fsync(opened)
                os.rename(temporary, last, src_dir_fd=partial, dst_dir_fd=folder)
                if flush:
                    _flush(folder)
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=partial)
        return self.path / name

    def delete(self, name: str) -> None:
        """Delete a file if the program may delete files of this name; ignore failures."""
        if _DELETED.fullmatch(name):
            with contextlib.suppress(OSError, UserError), self._parent(name) as (folder, last):
                os.unlink(last, dir_fd=folder)

    def flush(self, name: str) -> None:
        """Wait until a file and its name are on disk; UserError if the disk fails."""
        with self.reporting(name, "written"), self._parent(name) as (folder, _), self._file(name, os.O_RDONLY) as file:
            _flush(file)
            _flush(folder)

    @contextlib.contextmanager
    def locked(self, name: str, content: bytes) -> Iterator[None]:
        """Hold a lock on a file, with a content that names the holder; LockHeld if another process has the lock."""
        with contextlib.ExitStack() as stack:
            with self.reporting(name, "written"):
                opened = stack.enter_context(self._file(name, os.O_RDWR | os.O_CREAT))
                try:
                    fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise LockHeld(f"{self.path}: in use") from None
                stack.callback(fcntl.flock, opened, fcntl.LOCK_UN)  # also for processes forked meanwhile
                os.ftruncate(opened, 0)
                os.pwrite(opened, content, 0)
            try:
                yield
            finally:
                with self.reporting(name, "written"):
                    os.ftruncate(opened, 0)

    def require_own_files(self) -> None:
        """Raise a UserError for links, pipes and files of other users in folders to which the program writes."""
        for folder in (self, *map(self.at, _CHECKED)):
            with folder.reporting(), contextlib.suppress(*_ABSENT), folder._parent() as (opened, _):
                for entry in sorted(os.listdir(opened)):
                    folder._require_own(entry, opened, entry, folders=True)

    @contextlib.contextmanager
    def reporting(self, name: str = "", action: str = "read") -> Iterator[None]:
        """Replace an error of the system by a UserError with the file and a remedy."""
        try:
            yield
        except (OSError, ValueError) as error:
            if action == "read" and isinstance(error, _ABSENT):
                raise Missing(f"{self.path / name}: cannot be read: No such file or directory") from None
            to_write = "free space, fix permissions or name another folder"
            usual = to_write if action == "written" else "check the disk and its permissions"
            remedy = _REMEDIES.get(getattr(error, "errno", 0) or 0, usual)
            reason = getattr(error, "strerror", None) or error
            raise UserError(f"{self.path / name}: cannot be {action} ({reason}); {remedy}, and run again") from error

    def _require_own(self, name: str, folder: int, at: str | int, folders: bool = False, writes: bool = True) -> None:
        """Raise a UserError for a file that is not regular, or is to be written but belongs to another user."""
        with contextlib.suppress(FileNotFoundError):
            found = os.fstat(at) if isinstance(at, int) else os.stat(at, dir_fd=folder, follow_symlinks=False)
            if not (stat.S_ISREG(found.st_mode) or (folders and stat.S_ISDIR(found.st_mode))):
                raise _wrong_kind(self.path / name, found.st_mode)
            if writes and found.st_uid not in (os.geteuid(), os.fstat(folder).st_uid):
                raise UserError(f"{self.path / name}: belongs to another user; move it, or name another folder")

    @contextlib.contextmanager
    def _file(self, name: str, flags: int) -> Iterator[int]:
        writes = flags & os.O_ACCMODE != os.O_RDONLY
        with self._parent(name, make=writes) as (folder, last):
            try:
                opened = os.open(last, flags | _FLAGS, 0o666, dir_fd=folder)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
                    self._require_own(name, folder, last)
                raise
            try:
                self._require_own(name, folder, opened, writes=writes)
                yield opened
            finally:
                os.close(opened)

    @contextlib.contextmanager
    def _parent(self, name: str = "", make: bool = False) -> Iterator[tuple[int, str]]:
        """Open the folder that contains a name, step by step; a link below the root is refused."""
        *between, last = name.split("/")
        path = self.root
        with contextlib.ExitStack() as stack:
            if make:
                path.mkdir(parents=True, exist_ok=True)
            opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, opened)
            for each in (*self.below, *between):
                path, parent = path / each, opened
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(each, dir_fd=parent)
                try:
                    opened = os.open(each, os.O_RDONLY | os.O_DIRECTORY | _FLAGS, dir_fd=parent)
                except OSError as error:
                    if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                        raise
                    found = os.stat(each, dir_fd=parent, follow_symlinks=False)
                    raise _wrong_kind(path, found.st_mode, "folder") from None
                stack.callback(os.close, opened)
            yield opened, last


def _flush(opened: int) -> None:
    try:
        os.fsync(opened)
    except OSError as error:
        # Some network file systems cannot flush folders.
        if error.errno != errno.EINVAL or not stat.S_ISDIR(os.fstat(opened).st_mode):
            raise


def _wrong_kind(path: Path, mode: int, expected: str = "file") -> UserError:
    kinds = {stat.S_IFLNK: "link", stat.S_IFDIR: "folder", stat.S_IFIFO: "pipe", stat.S_IFREG: "file"}
    found = kinds.get(stat.S_IFMT(mode), "device or socket")
    remedy = "move it; only the folder that --output or the command names may be a link"
    return UserError(f"{path}: a {found} is in the place of a {expected}; {remedy}")
