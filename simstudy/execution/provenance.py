"""Provenance of results (code, libraries, machine), and the last written status of cells."""

import functools
import hashlib
import importlib.metadata
import math
import os
import platform
import re
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import FiniteFloat, ValidationError
from threadpoolctl import threadpool_info

from simstudy.design.document import Design
from simstudy.design.files import contents
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.records import Record
from simstudy.execution.folder import Missing
from simstudy.execution.store import MAX_RESULTS_BYTES, Instant, Store
from simstudy.replicates.allocation import SIZES, states_size

STATUS_FILE = ".status.json"
PACKAGE = Path(__file__).parents[1]
NUMERIC_LIBRARIES = ("numpy", "numba", "llvmlite", "scipy")

# Folders and files of code that determine the bits of a batch; a test compares them with the imports of `batch`.
SOURCES = (
    "arguments.py", "attention", "data", "design/settings", "ensemble.py", "errors.py", "formulas.py", "kernels",
    "replicates/batch.py", "replicates/intervals.py", "replicates/measures.py", "replicates/moments.py",
    "replicates/performance.py", "replicates/population.py", "weights.py",
)  # fmt: skip


def identity_of(cell: Cell, device: str = "cpu") -> str:
    """Return the name under which batches of a cell, computed on a device, are stored."""
    return cell.identity(engine(device))


@functools.cache
def engine(device: str = "cpu") -> str:
    """Return a digest of code, libraries and processor that compute batches on a device, as 16 hexadecimal digits."""
    # Imported here, as the import compiles code that digests of sources do not need.
    from simstudy.kernels.devices import gpu_name
    from simstudy.kernels.settings import processor

    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(sources()):
        digest.update(hashlib.sha256(path.read_bytes()).digest() + path.relative_to(PACKAGE).as_posix().encode())
    libraries = [f"{name}={importlib.metadata.version(name)}" for name in NUMERIC_LIBRARIES]
    # Only NumPy's own library of linear algebra, as others may or may not be loaded.
    architectures = [lib.get("architecture") for lib in threadpool_info() if lib["filepath"].startswith(np.__path__[0])]
    values, instructions = probe(), np.lib.introspect.opt_func_info()
    # Type and features of the processor, and the GPU with its compiler, may change last bits.
    hardware = processor() if device == "cpu" else f"{processor()} + {gpu_name()}"
    digest.update(repr((libraries, architectures, instructions, hardware)).encode() + values)
    return digest.hexdigest()


def probe() -> bytes:
    """Return a digest of values of elementary functions and of a product, whose last bits depend on the code that runs.

    The functions are those of the C library, which Python, kernels and SciPy call, of NumPy, and of SciPy.
    """
    from scipy import special

    x = np.arange(1, 4097) / 205.0
    once = math.exp, math.log, math.sin, math.cos, math.expm1, math.log1p, math.acos, lambda t: t**1.7
    found = [function(t / 20.0 if function is math.acos else t) for function in once for t in x.tolist()]
    arrays = [function(x) for function in (np.exp, np.log, np.sin, np.cos, np.expm1, np.log1p, np.cbrt)]
    arrays += [np.power(x, 1.7), np.hypot(x, 1.7), np.logaddexp(0.0, x), np.arccos(x / 20.0)]
    arrays += [special.gammaln(x[:512]), special.gammaincinv(x[7:520], 0.7), special.ndtr(-x[:512])]
    arrays += [np.ravel(y[:60] @ y) for y in (arrays[2].reshape(64, 64), np.float32(arrays[2]).reshape(64, 64))]
    return hashlib.sha256(np.concatenate([found, *arrays]).tobytes()).digest()


def sources() -> Iterator[Path]:
    """Yield the files of `SOURCES`."""
    for path in (PACKAGE / entry for entry in SOURCES):
        yield from path.rglob("*.py") if path.is_dir() else [path]


def provenance(device: str = "cpu", cells: Iterable[Cell] = ()) -> dict[str, Any]:
    """Return versions, commit and machine, as plain data."""
    own = {"simstudy": _version("simstudy"), "commit": _commit(), "engine": engine(device), "data": contents(cells)}
    return own | installation(device)


def origin_of(design: Design) -> str:
    """Return a digest of all that determines results except batches: design and its files, code, installation."""
    # Without the engine, which needs compiled code and depends on these sources.
    read = contents(planned.cell for planned in design.cells), installation()
    decide = "NUMBA_", "NPY_", "OPENBLAS_CORETYPE", "CUDA_VISIBLE_DEVICES"  # may change last bits
    settings = sorted((name, value) for name, value in os.environ.items() if name.startswith(decide))
    stated = repr((design.text, design.profile, design.confirmation, design.claims, read, settings))
    files = (path for path in sorted(PACKAGE.rglob("*")) if path.is_file() and path.suffix != ".pyc")
    return hashlib.sha256(b"".join([stated.encode(), *(path.read_bytes() for path in files)])).hexdigest()


def installation(device: str = "cpu") -> dict[str, Any]:
    """Return versions of libraries and the machine, as plain data."""
    name = "CPU"
    if device != "cpu":
        from simstudy.kernels.devices import gpu_name

        name = gpu_name()
    libraries = *NUMERIC_LIBRARIES, "xarray", "dask", "distributed", "pydantic", "netCDF4", "matplotlib"
    about = Path("/proc/cpuinfo")
    named = re.search("model name\\s*: *(.*)", about.read_text() if about.exists() else "")
    return {
        "python": platform.python_version(),
        "libraries": {name: _version(name) for name in libraries},
        "system": platform.platform(),
        "device": name,
        "processor": named[1].strip() if named else platform.processor(),
        "cores": os.cpu_count(),
    }


# Cached: a process runs the modules that it has imported, even if their files change.
@functools.cache
def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


@functools.cache
def _commit() -> str:
    """Return the commit of the checkout, with a plus sign if files differ; empty for an installed package."""
    command = ["git", "-C", str(PACKAGE), "describe", "--always", "--dirty=+", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


class CellStatus(Record):
    """Status of one cell."""

    identity: str  # Name under which its batches are stored
    batch_size: int  # Replicates in one batch
    stored: int  # Stored batches, of those required so far
    target: int  # Batches required so far
    expected: int  # Batches that the precision will need
    finished: bool = False  # No more batches are required
    reached: bool = False  # The target precision is reached
    cut: bool = False  # The budget stopped the cell
    defined: bool = False  # There are estimates
    failed: int = 0  # Replicates without a defined estimate
    first_failed: int | None = None
    measure: str | None = None  # Measure whose error is furthest from its target; None before a look
    mcse: float | None = None
    wanted: float | None = None


class Status(Record):
    """Status of all cells of a study, in the order of the design."""

    origin: str  # Digest of design, code and installation; empty if batches were only counted
    as_of: Instant  # Time of writing
    seconds_left: FiniteFloat | None = None  # Expected remaining time of the run; None if unknown
    cells: tuple[CellStatus, ...]
    results: str = ""  # Digest of batches and results; empty before results are written

    @property
    def finished(self) -> int:
        """Number of finished cells."""
        return sum(cell.finished for cell in self.cells)


def read_status(design: Design, store: Store) -> Status | None:
    """Return the status that the last run wrote; None if design or code have changed since, or batches are lost."""
    try:
        status = Status.model_validate_json(store.files.read(STATUS_FILE, MAX_RESULTS_BYTES))
    except (Missing, ValidationError):
        return None
    if len(status.cells) != len(design.cells) or status.origin != origin_of(design):
        return None
    now = [store.stored(cell.identity).count(cell.target) for cell in status.cells]
    cells = tuple(cell.model_copy(update={"stored": n}) for cell, n in zip(status.cells, now, strict=True))
    lost = any(n < cell.stored for cell, n in zip(status.cells, now, strict=True))
    return None if lost else status.model_copy(update={"cells": cells})


def counted(design: Design, store: Store) -> Status:
    """Return a status with the numbers of stored batches, without evaluating them."""
    cells = []
    for cell in (planned.cell for planned in design.cells):
        # If a pilot of the first run chooses the batch size, it is the size of the stored batches.
        sizes = [{}] if states_size(cell) else [{"batch_size": size} for size in SIZES.tolist()]
        sized = [cell.with_simulation(**size, **way) for size in sizes for way in ({}, {"control": "none"})]
        rows = ((store.stored(name := identity_of(each)).count(), each.simulation.batch_size, name) for each in sized)
        n, size, identity = max(rows)
        cells.append(CellStatus(identity=identity, batch_size=size, stored=n, target=n, expected=n))
    return Status(origin="", as_of=time.time(), cells=tuple(cells))


def is_done(status: Status, store: Store, device: str) -> bool:
    """Return true if a run would only write the same results again."""
    finished = status.results != "" and all(cell.finished and not cell.cut for cell in status.cells)
    return finished and store.is_whole() and status.results == store.digest(device)
