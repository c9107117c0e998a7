"""Private folder of entries with digests: an entry that is read was written by this user under the same key.

An entry is one file, named by the digest of its key.  It begins with a digest of key and content.  It is written under
another name and then renamed.  Files and folders that other users own, may write or may enter are not used.
"""

import contextlib
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

KEPT = 8
"""Most folders, one for each version of the code and kind of processor; the least recently used are removed."""


def seal(key: bytes, content: bytes) -> bytes:
    """Return the bytes of an entry: a digest of key and content, then the content."""
    return hashlib.sha256(hashlib.sha256(key).digest() + content).digest() + content


def unseal(key: bytes, entry: bytes) -> bytes | None:
    """Return the content of an entry; None if it is damaged or has another key."""
    content = entry[32:]
    return content if seal(key, content) == entry else None


class SealedFolder:
    """Entries in a folder that other users may not enter; least recently used sibling folders are removed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, key: bytes) -> bytes | None:
        """Return the content that was written under a key; None if there is no trusted entry."""
        try:
            with self._opened() as folder:
                file = os.open(_name(key), os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)
                with open(file, "rb") as stream:
                    _require_own(os.fstat(file), others_may_not=stat.S_IWGRP | stat.S_IWOTH)
                    return unseal(key, stream.read())
        except OSError:
            return None

    def write(self, key: bytes, content: bytes) -> None:
        """Store content under a key, read-only; do nothing if that is impossible, as on a full disk."""
        with contextlib.suppress(OSError):
            if not self.path.exists():
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.path.mkdir(mode=0o700, exist_ok=True)
                # Only folders with names of as many hexadecimal digits.
                siblings = self.path.parent.glob("[0-9a-f]" * len(self.path.name))
                for old in sorted(siblings, key=lambda path: path.stat().st_mtime, reverse=True)[KEPT:]:
                    shutil.rmtree(old, ignore_errors=True)
            aside = f".{_name(key)}-{secrets.token_hex(8)}"
            with self._opened() as folder:
                file = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode=0o400, dir_fd=folder)
                try:
                    with open(file, "wb") as stream:
                        stream.write(seal(key, content))
                        stream.flush()
                        os.fsync(file)
                    os.rename(aside, _name(key), src_dir_fd=folder, dst_dir_fd=folder)
                except BaseException:
                    os.unlink(aside, dir_fd=folder)
                    raise

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        # Entries are opened relative to this descriptor, so that the checked folder cannot be replaced by another.
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            _require_own(os.fstat(folder), others_may_not=stat.S_IRWXG | stat.S_IRWXO)
            with contextlib.suppress(OSError):
                os.utime(folder)
            yield folder
        finally:
            os.close(folder)


def _name(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()


def _require_own(status: os.stat_result, others_may_not: int) -> None:
    if status.st_uid != os.geteuid() or status.st_mode & others_may_not:
        raise PermissionError
