"""Which code, libraries and machine produced a number.

Reads the package's own source files.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from simstudy.kernels.devices import gpu_name, hardware

PACKAGE = Path(__file__).parents[1]
NUMERIC_LIBRARIES = ("numpy", "numba", "llvmlite", "scipy")
LIBRARIES = (*NUMERIC_LIBRARIES, "xarray", "dask", "distributed", "pydantic", "netCDF4", "matplotlib")

# Sources that decide the bits of a batch, as folders and files; a test compares them with what `batch` imports.
ENGINE_SOURCES = (
    "attention", "data", "design/settings", "kernels", "replicates/batch.py", "replicates/moments.py",
    "text.py", "weights.py",
)  # fmt: skip


@functools.cache
def engine(device: str = "cpu") -> str:
    """Return the identity of what computes batches: sources, numeric libraries and hardware, as 16 hex digits.

    Stored batches of another engine are never mixed with new ones.
    """
    digest = hashlib.blake2b(digest_size=8)
    for entry in ENGINE_SOURCES:
        path = PACKAGE / entry
        for source in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(source.relative_to(PACKAGE).as_posix().encode() + b"\0" + source.read_bytes() + b"\0")
    for name in NUMERIC_LIBRARIES:
        digest.update(f"{name}={importlib.metadata.version(name)}\0".encode())
    digest.update(hardware(device).encode())
    return digest.hexdigest()


def provenance(device: str = "cpu") -> dict[str, Any]:
    """Return versions, commit and machine, as plain data."""
    import psutil

    return {
        "simstudy": importlib.metadata.version("simstudy"),
        "commit": _commit(),
        "engine": engine(device),
        "python": platform.python_version(),
        "libraries": {name: importlib.metadata.version(name) for name in LIBRARIES},
        "system": platform.platform(),
        "device": "CPU" if device == "cpu" else gpu_name(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_GiB": round(psutil.virtual_memory().total / 2**30, 1),
    }


def _commit() -> str:
    """Commit of the checkout that the package is run from, with a plus sign if files differ; empty if installed."""
    command = ["git", "-C", str(PACKAGE), "describe", "--always", "--dirty=+", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
