"""Which code, libraries and machine produced a number."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from simstudy.design.contents import stated
from simstudy.design.own_code import own_pieces
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.rows import Rows
from simstudy.execution.engine import NUMERIC_LIBRARIES, PACKAGE, engine

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
    found = ((getattr(cell, field), path) for cell in cells for _, path, (field, _) in stated(cell))
    read = {_digest(content): path for content, path in found if content is not None}
    pieces = (piece for cell in cells for _, piece in own_pieces(cell))
    return read | {piece.code.label: piece.path for piece in pieces if piece.code is not None}


def _digest(content: Rows | tuple[Any, ...]) -> str:
    return (
        content.digest
        if isinstance(content, Rows)
        else hashlib.blake2b(np.array(content).data, digest_size=8).hexdigest()
    )


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
