"""Files that a user names: regular ones only, as opening another may wait for ever, and none beyond a limit."""

import errno
import io
import math
import os
import stat
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from simstudy.errors import UserError

MAX_EXPANSION = 10
"""Bytes that a byte of an archive may stand for, beyond `FREE_BYTES`: numbers are hard to compress."""
FREE_BYTES = 1 << 26
"""Bytes that an archive may expand to, however small it is."""
_HEADER_BYTES = 1 << 14
"""More than NumPy reads of a header."""
MAX_DIRECTORY_BYTES = 1 << 22
"""Largest directory of an archive: its entries take fifteen times as much in memory."""


def open_regular(path: Path, limit: int) -> BinaryIO:
    """Open a regular file of so many bytes at most."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        if getattr(error, "errno", None) == errno.ENXIO:  # a socket
            raise UserError(_IRREGULAR) from None
        raise _unreadable(error) from None
    found = os.fstat(opened)
    regular = stat.S_ISREG(found.st_mode)
    if not regular or found.st_size > limit:
        os.close(opened)
        raise UserError(f"longer than {limit} bytes; is it the right file?" if regular else _IRREGULAR)
    return open(opened, "rb")


def read_regular(path: Path, limit: int) -> bytes:
    """Return the contents of a regular file of so many bytes at most."""
    with open_regular(path, limit) as file:
        try:
            return file.read()  # not so many at most: Python would set all of them aside
        except OSError as error:
            raise _unreadable(error) from None


def read_text(path: Path, limit: int) -> str:
    """Return the text of a regular file of so many bytes at most."""
    try:
        return read_regular(path, limit).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError("not UTF-8 text; save it as UTF-8") from None


def open_archive(file: BinaryIO, limit: int) -> zipfile.ZipFile:
    """Open a ZIP archive of which all members together expand to so many bytes at most."""
    end = zipfile._EndRecData(file)  # type: ignore[attr-defined]  # the directory is read only if it is small
    if end and end[zipfile._ECD_SIZE] > MAX_DIRECTORY_BYTES:  # type: ignore[attr-defined]
        raise UserError(f"has a directory of more than {MAX_DIRECTORY_BYTES} bytes; is it the right file?")
    archive = zipfile.ZipFile(file)
    limit = min(limit, FREE_BYTES + MAX_EXPANSION * file.seek(0, os.SEEK_END))
    members = archive.infolist()
    # Before any is read; of no member is more read than it states.
    if sum(each.file_size for each in members) > limit:
        raise UserError(f"expands to more than {limit} bytes")
    if len({each.filename for each in members}) < len(members):
        raise UserError("holds two members of one name")
    if any(each.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for each in members):
        raise UserError("has a compression that NumPy cannot read; save it with numpy.savez")
    return archive


def read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    """Return the contents of a member, of which no more is expanded than it states; KeyError if there is none."""
    with archive.open(name) as member:
        return member.read(archive.getinfo(name).file_size)


def read_arrays(file: BinaryIO, limit: int) -> dict[str, NDArray]:
    """Return the arrays of a .npz file by name; raises as `open_archive` and `read_array`."""
    arrays = {}
    with open_archive(file, limit) as archive:
        for each in archive.infolist():
            with archive.open(each) as member:
                arrays[each.filename.removesuffix(".npy")] = read_array(member, each.file_size)
    return arrays


def read_array(file: Any, size: int) -> NDArray:
    """Return the array of numbers or truth values of a .npy file of so many bytes; ValueError if it is another."""
    header = io.BytesIO(file.read(_HEADER_BYTES))
    version = np.lib.format.read_magic(header)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
    shape, by_columns, kind = read(header)
    file.seek(header.tell())
    if kind.kind not in "biufSU" or min(shape, default=0) < 0 or math.prod(shape) * kind.itemsize > size:
        raise ValueError(f"promises {kind} of shape {shape} in {size} bytes")
    flat = np.frombuffer(file.read(math.prod(shape) * kind.itemsize), kind)
    return flat.reshape(shape, order="F" if by_columns else "C")


_IRREGULAR = "cannot be read: a folder, pipe, device or socket; give a regular file"


def _unreadable(error: Exception) -> UserError:
    return UserError(f"cannot be read: {getattr(error, 'strerror', None) or error}")
