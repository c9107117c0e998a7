"""Batches and results on disk: the only module that writes files of a study.

Imports NumPy, xarray, moments, problems and the standard library only.

Layout of a study folder::

    batches/<cell identity>/<batch number>.npz   one immutable file for each batch, checksummed, stating its address
    results.nc  report.html  figures/  verdicts.csv  provenance.json

A batch file is named by what decides its contents, written beside its place, flushed, and renamed into it.  So a
crash leaves either the whole file or none; two runs in one folder write the same bytes; merging two folders is
copying files; and a changed design or engine looks elsewhere instead of reusing what no longer holds.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from simstudy.moments import Moments
from simstudy.problems import UserError

_BATCH_FILE = re.compile(r"[0-9]{7}\.npz")


class Store:
    """Folder of one study under one profile.

    Parameters
    ----------
    folder
        ``outputs/<study>/<profile>``; created when the first file is written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _batch_path(self, identity: str, batch: int) -> Path:
        return self.folder / "batches" / identity / f"{batch:07d}.npz"

    def stored_batches(self, identity: str) -> frozenset[int]:
        """Return the numbers of the batches on disk, whole or damaged."""
        folder = self.folder / "batches" / identity
        try:
            names = os.listdir(folder)
        except OSError:
            return frozenset()
        return frozenset(int(name[:7]) for name in names if _BATCH_FILE.fullmatch(name))

    def write_batch(self, identity: str, batch: int, moments: Moments) -> None:
        """Store one batch, durably and atomically.

        Raises
        ------
        UserError
            If the folder cannot be written.
        """
        fields = moments._asdict() | {"address": np.array([identity, str(batch)])}
        _replace(self._batch_path(identity, batch), lambda beside: np.savez(beside, allow_pickle=False, **fields))

    def read_batch(self, identity: str, batch: int) -> Moments | None:
        """Return a stored batch, or None if it is missing, damaged or another's: it then has to be computed again."""
        try:
            with self._batch_path(identity, batch).open("rb") as file, np.load(file, allow_pickle=False) as fields:
                if fields["address"].tolist() != [identity, str(batch)]:
                    return None
                return Moments(**{name: fields[name] for name in Moments._fields})
        except Exception:  # a damaged file may raise whatever the zip and array parsers meet in it
            return None

    def write_results(self, results: xr.Dataset) -> Path:
        """Store the labelled results as ``results.nc`` and return its path."""
        path = self.folder / "results.nc"
        _replace(path, lambda beside: results.to_netcdf(beside, engine="netcdf4"))
        return path

    def write_text(self, name: str, text: str) -> Path:
        """Store a text file of the study and return its path."""
        path = self.folder / name
        _replace(path, lambda beside: beside.write_text(text, encoding="utf-8"))
        return path

    def write_bytes(self, name: str, content: bytes) -> Path:
        """Store a binary file of the study and return its path."""
        path = self.folder / name
        _replace(path, lambda beside: beside.write_bytes(content))
        return path

    def write_json(self, name: str, content: Any) -> Path:
        """Store plain data as JSON and return the path."""
        return self.write_text(name, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def read_results(path: Path) -> xr.Dataset:
    """Load the labelled results of a study into memory.

    Raises
    ------
    UserError
        If the file is missing or is not netCDF.
    """
    try:
        with xr.open_dataset(path, engine="netcdf4") as results:
            return results.load()
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: no results can be read ({error}); run the study first") from None


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    """Write beside ``path``, flush to disk, and rename into place; leave nothing behind on failure."""
    # The temporary name is unique, so that two runs in one folder do not write into each other's file.
    beside = path.with_name(f".{uuid.uuid4().hex}{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(beside)
        with beside.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as error:
        remedy = "free space, mend permissions or choose another --output"
        raise UserError(f"{path}: cannot be written ({error.strerror or error}); {remedy}") from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()
