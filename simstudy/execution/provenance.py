"""Which code, libraries and machine produced a number."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from simstudy.design.own_code import own_pieces
from simstudy.design.settings.cell import Cell
from simstudy.design.settings.processes import FileKeys
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
    """Return digests of rows that cells draw keys from and of functions of the user's own, each with its file."""
    cells = list(cells)
    keys = ((cell.file_rows, cell.data.key_distribution) for cell in cells)
    pieces = (piece for cell in cells for _, piece in own_pieces(cell))
    rows = {rows.digest: law.path for rows, law in keys if rows is not None and isinstance(law, FileKeys)}
    return rows | {piece.code.label: piece.path for piece in pieces if piece.code is not None}


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
