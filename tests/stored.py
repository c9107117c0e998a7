"""What a study has stored: batches one by one, named as if each had a file, and the numbers of its results."""

import os
from pathlib import Path

import xarray as xr

from simstudy.execution.batches import Entry, index_of
from simstudy.execution.folder import Folder

FOLDER = Path("tiny") / "quick"


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("batches/*") if path.suffix != ".lock")


def entries(folder: Path) -> dict[str, tuple[Path, Entry]]:
    """Names of all single batches below a folder, each with its file and place: elsewhere once it is stored again."""
    found = {}
    for path in files(folder):
        study = path.parent.parent
        name = "" if study == folder else f"{study.relative_to(folder).as_posix()}/"
        for identity, stored in index_of(Folder(path.parent), [path.name]).items():
            for entry in (each for each in stored.values() if each.n_batches == 1):
                found[f"{name}batches/{identity}/{entry.first:07d}.batch"] = path, entry
    return found


def rows(folder: Path) -> dict[str, int]:
    return {name: entry.start for name, (_, entry) in entries(folder).items()}


def batches(folder: Path) -> dict[str, bytes]:
    return {name: path.read_bytes()[entry.start : entry.stop] for name, (path, entry) in entries(folder).items()}


def record(batch: Path) -> bytes:
    path, entry = _place(batch)
    return path.read_bytes()[entry.start : entry.stop]


def overwrite(batch: Path, content: bytes) -> None:
    """Put other bytes in the place of a batch; those that lack are zero, as of a block that a disk has lost."""
    path, entry = _place(batch)
    _put(path, entry.start, content[: entry.size].ljust(entry.size, b"\0"))


def flip(batch: Path, place: int = 0) -> None:
    content = bytearray(record(batch))
    content[place] ^= 1
    overwrite(batch, bytes(content))


def remove(batch: Path) -> None:
    """Let a batch be none, and all others be where they are."""
    path, entry = _place(batch)
    _put(path, entry.start - len(entry.head()), b"\0")


def _put(path: Path, place: int, content: bytes) -> None:
    with path.open("r+b") as file:
        os.pwrite(file.fileno(), content, place)


def _place(batch: Path) -> tuple[Path, Entry]:
    study = batch.parent.parent.parent
    return entries(study)[batch.relative_to(study).as_posix()]


def numbers(results: Path) -> dict[str, str]:
    """Every variable and attribute of a file of results to the last bit, apart from what tells how its run went."""
    with xr.open_datatree(results) as opened:
        return {node.path: repr(node.to_dataset().assign_attrs(run="").to_dict()) for node in opened.subtree}
