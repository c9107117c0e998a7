"""Files that a user names: regular ones only, as opening another may wait for ever, and none beyond a limit."""

from __future__ import annotations

import stat
import zipfile
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from simstudy.errors import UserError


def require_regular(path: Path, limit: int) -> None:
    """Refuse what is no regular file of so many bytes at most, without opening it.

    Raises
    ------
    UserError
        If it is a folder, pipe, device or socket, if it is larger, or if there is none.
    """
    try:
        found = path.stat()
    except (OSError, ValueError) as error:
        raise _unreadable(error) from None
    if not stat.S_ISREG(found.st_mode):
        raise UserError("cannot be read: a folder, pipe, device or socket; give a regular file")
    if found.st_size > limit:
        raise UserError(f"longer than {limit} bytes; is it the right file?")


def read_regular(path: Path, limit: int) -> bytes:
    """Return the contents of a regular file of so many bytes at most.

    Raises
    ------
    UserError
        As `require_regular`, or if it cannot be read.
    """
    require_regular(path, limit)
    try:
        with path.open("rb") as file:
            return file.read()  # not so many at most: Python would set all of them aside
    except OSError as error:
        raise _unreadable(error) from None


def read_arrays(file: BinaryIO, limit: int) -> dict[str, NDArray]:
    """Return the arrays of a .npz file by name.

    Raises
    ------
    UserError
        If they expand to more bytes than the limit; what NumPy and zipfile raise of a damaged file.
    """
    with zipfile.ZipFile(file) as archive:
        # Before any is read: members may expand beyond any bound.
        if sum(each.file_size for each in archive.infolist()) > limit:
            raise UserError(f"expands to more than {limit} bytes")
    file.seek(0)
    return dict(np.load(file, allow_pickle=False))


def _unreadable(error: Exception) -> UserError:
    return UserError(f"cannot be read: {getattr(error, 'strerror', None) or error}")
