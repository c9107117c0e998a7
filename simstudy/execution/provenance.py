"""Which code, libraries and machine produced a number: for people, and the engine as the identity of what computes."""

import ast
import functools
import hashlib
import importlib.metadata
import os
import platform
import subprocess
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

from simstudy.design.contents import named_files
from simstudy.design.own_code import own_functions
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.functions import Functions
from simstudy.design.settings.rows import Rows

PACKAGE = Path(__file__).parents[1]
NUMERIC_LIBRARIES = ("numpy", "numba", "llvmlite", "scipy")

# Sources that decide the bits of a batch, as folders and files; a test compares them with what `batch` imports.
SOURCES = (
    "attention", "data", "design/settings", "errors.py", "kernels", "replicates/batch.py", "replicates/moments.py",
    "weights.py",
)  # fmt: skip
# Of these, folders whose files serve one kind of cell each, that of their name; a test sees that nothing imports them.
APART = ("attention/learners",)

# All threads of a worker ask at once.  Python 3.11 loses count of its recursion where several parse, and each would
# parse everything.
_ASKING = threading.Lock()


def engine(device: str = "cpu", cells: Iterable[Cell] = ()) -> str:
    """Return the identity of what computes the batches of some cells, as 16 hex digits: engines are never mixed."""
    with _ASKING:
        return _engine(device, frozenset(map(own_files, cells)))


def identity_of(cell: Cell, device: str = "cpu") -> str:
    """Return the name under which the batches of a cell are stored, as computed on a device."""
    return cell.identity(engine(device, [cell]))


def own_files(cell: Cell) -> str:
    """Return the name of the files in `APART` that serve cells of this kind alone, where there are any."""
    return cell.estimator.learner.kind if cell.functions is None else "functions"


@functools.cache
def _engine(device: str, names: frozenset[str]) -> str:
    # Imported here: it compiles, which those who only digest sources need not wait for.
    from simstudy.kernels.devices import hardware

    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(sources(names)):
        digest.update(f"{path.relative_to(PACKAGE).as_posix()}\0{code_of(path)}\0".encode())
    libraries = [f"{name}={importlib.metadata.version(name)}\0" for name in NUMERIC_LIBRARIES]
    for text in (*libraries, _dispatched(), hardware(device)):
        digest.update(text.encode())
    return digest.hexdigest()


def _dispatched() -> str:
    """Return which of their codes for several processors NumPy and its library of linear algebra run here."""
    # Of the library in NumPy's wheel: others, such as PyTorch's, may be loaded or not.
    inside = np.__path__[0]
    blas = [library.get("architecture") for library in threadpool_info() if library["filepath"].startswith(inside)]
    return f"{blas} {np.lib.introspect.opt_func_info()}"


def sources(names: frozenset[str]) -> Iterator[Path]:
    """Yield the files that all cells share, and of folders in `APART` those of the names."""
    further: set[str] = set(Functions.rests_on) if "functions" in names else set()
    apart, kept = [PACKAGE / folder for folder in APART], {"__init__", *names}
    for path in (PACKAGE / entry for entry in (*SOURCES, *further)):
        for source in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            if source.parent not in apart or source.stem in kept:
                yield source


@functools.cache
def code_of(path: Path) -> str:
    """Return the digest of what a source computes: of its syntax without comments, formatting and docstrings."""
    tree = ast.parse(path.read_bytes())
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            # A constant that stands alone is a docstring, or computes as little.
            alone = [isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) for each in body]
            node.body = [each for each, drop in zip(body, alone, strict=True) if not drop]  # type: ignore[attr-defined]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


LIBRARIES = (*NUMERIC_LIBRARIES, "xarray", "dask", "distributed", "pydantic", "netCDF4", "matplotlib")


def provenance(device: str = "cpu", cells: Iterable[Cell] = ()) -> dict[str, Any]:
    """Return versions, commit and machine, as plain data; the engine is that of the cells."""
    sources = {"simstudy": _version("simstudy"), "commit": _commit(), "engine": engine(device, cells)}
    return sources | {"data": contents(cells)} | installation(device)


def installation(device: str = "cpu") -> dict[str, Any]:
    """Return versions of libraries and the machine, as plain data."""
    import psutil

    name = "CPU"
    if device != "cpu":
        # Imported here: it compiles, which those who only look need not wait for.
        from simstudy.kernels.devices import gpu_name

        name = gpu_name()
    return {
        "python": platform.python_version(),
        "libraries": {name: _version(name) for name in LIBRARIES},
        "system": platform.platform(),
        "device": name,
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_GiB": round(psutil.virtual_memory().total / 2**30, 1),
    }


# Looked up once: a process runs what it has imported, whatever is installed or committed while it does.
@functools.cache
def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def contents(cells: Iterable[Cell]) -> dict[str, str]:
    """Return digests of the contents of the files that cells name, and of functions in them, each with its file."""
    cells = list(cells)
    read = {}
    for content, path in ((getattr(cell, field), path) for cell in cells for _, path, (field, _) in named_files(cell)):
        if isinstance(content, Rows):
            read[content.digest] = path
        elif content is not None:
            read[hashlib.blake2b(np.array(content).data, digest_size=8).hexdigest()] = path
    pieces = (piece for cell in cells for _, piece in own_functions(cell))
    return read | {piece.code.label: piece.path for piece in pieces if piece.code is not None}


@functools.cache
def _commit() -> str:
    """Commit of the checkout that the package is run from, with a plus sign if files differ; empty if installed."""
    command = ["git", "-C", str(PACKAGE), "describe", "--always", "--dirty=+", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


@functools.cache
def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
