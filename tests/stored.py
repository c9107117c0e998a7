"""What a study has stored: batches one by one, and the numbers of its results."""

import os
from pathlib import Path
from threading import Lock

import xarray as xr

from simstudy.execution.folder import Folder
from simstudy.execution.store import _HEAD, index_of

FOLDER = Path("tiny") / "quick"
READING = Lock()  # netCDF is not safe for threads, nor is all that xarray asks of it
Name = tuple[str, str, int]  # of a batch: folder of its study, cell and number


def rows(folder: Path) -> dict[Name, tuple[Path, int, int]]:
    """File of each single batch below a folder, and where it begins and ends: elsewhere once it is stored again."""
    found = {}
    for path in sorted(path for path in folder.rglob("batches/*") if path.suffix != ".lock"):
        study = str(path.parent.parent.relative_to(folder))
        for identity, stored in index_of(Folder(path.parent), [path.name]).items():
            single = (entry for entry in stored.values() if entry.n_batches == 1)
            found |= {(study, identity, entry.first): (path, entry.start, entry.stop) for entry in single}
    return found


def batches(folder: Path) -> dict[Name, bytes]:
    return {name: path.read_bytes()[start:stop] for name, (path, start, stop) in rows(folder).items()}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def overwrite(folder: Path, name: Name, content: bytes, place: int = 0) -> None:
    """Put other bytes from a place of a batch on, and leave all others where they are."""
    path, start, _ = rows(folder)[name]
    with path.open("r+b") as file:
        os.pwrite(file.fileno(), content, start + place)


def remove(folder: Path, name: Name) -> None:
    """Let a batch be none, as its head is none."""
    overwrite(folder, name, b"\0", -_HEAD.size)


def numbers(results: Path) -> dict[str, str]:
    """Every variable and attribute of a file of results to the last bit, apart from what tells how its run went."""
    with READING, xr.open_datatree(results) as opened:
        return {node.path: repr(node.to_dataset().assign_attrs(run="").to_dict()) for node in opened.subtree}
