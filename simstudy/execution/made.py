"""What was made of what: files that need not be made again as long as they, and all that decides them, are the same.

A record states the digest of everything that went into the files of a study (sources of the whole package, versions of
libraries, the machine, the design, stored batches) and that of each file.  If any of these differs, was damaged, or
cannot be read, the record says nothing, and the files are made anew.  Records lie in the user's cache, not beside the
files: whoever forges results in a folder cannot say that they were made here.  Where the folder lies does not count,
as long as the design lies where it did from there: a checkout may be moved or copied with its results.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from simstudy.design.document import Design
from simstudy.execution.engine import PACKAGE
from simstudy.execution.folder import Missing
from simstudy.execution.netcdf import MAX_RESULTS_BYTES
from simstudy.execution.provenance import contents, installation
from simstudy.execution.store import Store

if TYPE_CHECKING:
    import xarray as xr

_SOURCES = (".py", ".html", ".css", ".js")
_DRAWING = ("pandas", "jinja2", "pillow")
"""Libraries that decide pages and pictures, beside those of which the provenance tells."""


def origin_of(design: Design, store: Store, device: str, *further: Any) -> str:
    """Return the digest of what decides all that is made of a design here, and of further things, by their `repr`.

    The design's file counts by its path from the results: both may move together.

    The engine is not asked for, as to compile takes longer than to read all sources, on which it depends.
    """
    machine = {**installation(device), "data": contents([planned.cell for planned in design.cells])}
    machine |= {name: value for name, value in os.environ.items() if name.startswith("NUMBA_")}
    versions = [importlib.metadata.version(name) for name in _DRAWING]
    path = design.path and os.path.relpath(design.path, store.folder)
    stated = design.text, design.profile, design.confirmation, path, json.dumps(machine), versions, *further
    return hashlib.sha256(repr((_package(), stated)).encode()).hexdigest()


@functools.cache
def _package() -> str:
    """Digest of the sources and templates of the package, as they were when this process first asked."""
    digest = hashlib.sha256()
    for path in sorted(path for path in PACKAGE.rglob("*") if path.suffix in _SOURCES):
        digest.update(f"{path.relative_to(PACKAGE).as_posix()}\0{_digest(path.read_bytes())}\0".encode())
    return digest.hexdigest()


def is_made(store: Store, name: str, origin: str, batches: Callable[[], str] = str) -> bool:
    """Whether files of this name stand as they were made of this origin, and of batches with this digest.

    That of batches is asked for last: to read them may take a second.
    """
    folder = _records()
    content = folder.read(_key(name, origin)) if folder else None
    if content is None:
        return False
    told, files = json.loads(content)
    return all(_stands(store, file, digest) for file, digest in files.items()) and told == batches()


def _stands(store: Store, file: str, digest: str) -> bool:
    try:
        return _digest(store.files.read(file, MAX_RESULTS_BYTES)) == digest
    except Missing:
        return False


def note_made(store: Store, name: str, origin: str, files: Iterable[str], batches: str = "") -> None:
    """Keep of what these files of a study have just been made."""
    if folder := _records():
        digests = {file: _digest(store.files.read(file, MAX_RESULTS_BYTES)) for file in files}
        folder.write(_key(name, origin), json.dumps([batches, digests]).encode())


def _records() -> Any:
    # Imported here: the rest of that room compiles.
    from simstudy.kernels.sealed import kept

    return kept("made", lambda: _package()[:32])


def _key(name: str, origin: str) -> bytes:
    return f"{name} {origin}".encode()


def digest_of(dataset: xr.Dataset) -> str:
    """Return the digest of all names, values and attributes: netCDF may write the same ones as other bytes."""
    digest = hashlib.sha256(repr((dataset.sizes, dataset.attrs)).encode())
    for name in sorted(dataset.variables, key=str):
        variable = dataset.variables[name]
        values = variable.values.tolist() if variable.dtype.hasobject else variable.values.tobytes()
        digest.update(repr((name, variable.dims, variable.dtype, variable.attrs, values)).encode())
    return digest.hexdigest()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
