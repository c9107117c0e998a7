"""Reading of files that a user names: only regular files, as others may block, up to a given size."""

import errno
import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from simstudy.errors import UserError

_IRREGULAR = "cannot be read: a folder, pipe, device or socket; give a regular file"


def open_regular(path: Path, limit: int) -> BinaryIO:
    """Open a regular file of at most ``limit`` bytes."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise _unreadable(error) from None
    found = os.fstat(opened)
    regular = stat.S_ISREG(found.st_mode)
    if not regular or found.st_size > limit:
        os.close(opened)
        raise UserError(f"longer than {limit} bytes; is it the right file?" if regular else _IRREGULAR)
    return open(opened, "rb")


def read_regular(path: Path, limit: int) -> bytes:
    """Return the contents of a regular file of at most ``limit`` bytes."""
    with open_regular(path, limit) as file:
        try:
            return file.read()  # read(limit) would allocate all bytes of the limit
        except OSError as error:
            raise _unreadable(error) from None


def read_text(path: Path, limit: int) -> str:
    """Return the text of a regular file of at most ``limit`` bytes."""
    try:
        return read_regular(path, limit).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError("not UTF-8 text; save it as UTF-8") from None


def read_arrays(file: BinaryIO) -> dict[str, NDArray]:
    """Return the arrays of a .npz file by name, or of a .npy file by the empty name; ValueError for other files."""
    try:
        found = np.load(file, allow_pickle=False)
        arrays = {"": found} if isinstance(found, np.ndarray) else dict(found)
    except Exception as error:  # a damaged file may raise nearly anything
        raise ValueError(f"no arrays of NumPy: {error}") from None
    for name, array in arrays.items():
        if array.dtype.kind not in "biufSU":
            raise ValueError(f"array {name!r} holds {array.dtype}")
    return arrays


def contents(cells: Iterable[Any]) -> dict[str, str]:
    """Return the path of each file that cells use, by the digest of its contents."""
    read = {}
    for cell in cells:
        for content, path in ((getattr(cell, field), path) for field, (_, path) in cell.files.items()):
            digest = None if hasattr(content, "digest") else hashlib.blake2b(np.array(content).data, digest_size=8)
            read[digest.hexdigest() if digest else content.digest] = path
        read |= {piece.code.label: piece.path for _, piece in cell.own}
    return read


def _unreadable(error: Exception) -> UserError:
    socket = getattr(error, "errno", None) == errno.ENXIO
    return UserError(_IRREGULAR if socket else f"cannot be read: {getattr(error, 'strerror', None) or error}")
