"""Stored batches one by one: names as if each had a file, ``batches/<cell identity>/<number>.batch``."""

import contextlib
import functools
import json
from pathlib import Path

from simstudy.design.settings.cell import Cell
from simstudy.execution.batch_files import ENTRY, LENGTH, Segment, record_of, segments
from simstudy.execution.folder import Folder

PATTERN = "batches/*/*.batch"


def rows(folder: Path) -> dict[str, int]:
    """Names of all batches below a folder, and where each stands: elsewhere once it is stored again."""
    found = {}
    for cell in sorted({path.parent for path in folder.rglob("*.index")}):
        name = cell.relative_to(folder).as_posix()
        for segment in segments(Folder(cell)):
            found |= {f"{name}/{batch:07d}.batch": row for batch, row in segment.batches().items()}
    return found


def batches(folder: Path) -> dict[str, bytes]:
    return {name: record(folder / name) for name in sorted(rows(folder))}


def record(batch: Path) -> bytes:
    path, first, last = _place(batch)
    return path.read_bytes()[first:last]


def overwrite(batch: Path, content: bytes) -> None:
    """Put other bytes in the place of a batch; those that lack are zero, as of a block that a disk has lost."""
    path, first, last = _place(batch)
    with path.open("r+b") as file:
        file.seek(first)
        file.write(content[: last - first].ljust(last - first, b"\0"))


def flip(batch: Path, place: int = 0) -> None:
    content = bytearray(record(batch))
    content[place] ^= 1
    overwrite(batch, bytes(content))


def remove(batch: Path) -> None:
    """Let a batch be none, and all others be where they are."""
    segment, row = _row(batch)
    with segment.path("index").open("r+b") as file:
        file.seek(row * ENTRY.itemsize)
        file.write(b"\xff" * 8)


def torn(folder: Path) -> list[str]:
    """Files below a folder with bytes behind the last whole batch: some are being written, or were."""
    found = []
    for segment in (segment for cell in folder.glob("batches/*") for segment in segments(Folder(cell))):
        n_whole, rest = divmod(segment.path("index").stat().st_size, ENTRY.itemsize)
        with contextlib.suppress(FileNotFoundError):  # the index is there first
            if rest or segment.path("records").stat().st_size > n_whole * _size(segment.folder.path):
                found.append(segment.path("records").name)
    return found


def _row(batch: Path) -> tuple[Segment, int]:
    number = int(batch.stem)
    segment = Segment(Folder(batch.parent), number // LENGTH)
    return segment, segment.batches()[number]


def _place(batch: Path) -> tuple[Path, int, int]:
    segment, row = _row(batch)
    size = _size(batch.parent)
    return segment.path("records"), row * size, (row + 1) * size


@functools.cache
def _size(cell: Path) -> int:
    """Bytes of a batch of the cell with this folder."""
    return record_of(stated_cell(cell)).itemsize


def stated_cell(folder: Path) -> Cell:
    """What the cell with this folder of batches is; JSON has no tuples."""
    return Cell.model_validate(json.loads((folder / "cell.json").read_text())["cell"], strict=False)
