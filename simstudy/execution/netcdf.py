"""A labelled data set as the bytes of a netCDF file, and back: only files are read that their digest seals."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from simstudy.errors import UserError
from simstudy.execution.batch_files import DIGEST_LENGTH, is_sealed
from simstudy.execution.folder import Folder, Missing

if TYPE_CHECKING:
    import xarray as xr

MOST_DEFLATED = 1032
"""Bytes that a byte of a deflated file may stand for, at most."""
MAX_RESULTS_BYTES = 1 << 34
"""Largest file of results that is read: it is held in memory."""
_COMPRESSED: dict[str, Any] = {"zlib": True, "complevel": 4, "shuffle": True}
"""Every reader of netCDF 4 undoes it, and no digit is lost."""
_WORTH_BYTES = 2048
"""Size from which compressing an array saves more than what netCDF then keeps of its chunks."""


def netcdf(dataset: xr.Dataset) -> bytes:
    """Return a data set as the bytes of a netCDF file: written by us, so that a full disk raises what we expect."""
    # Imported here and below: they take half a second, which who looks at batches alone need not wait for.
    import netCDF4
    from xarray.backends import NetCDF4DataStore

    # Both arguments are required for a file in memory, but name no file and no size.
    target = netCDF4.Dataset("results.nc", "w", memory=1)
    dataset = dataset.copy()
    for variable in dataset.variables.values():
        # Texts become characters, as text of any length cannot be compressed.
        text = {"dtype": "S1"} if variable.dtype.kind in "OTU" else {}
        variable.encoding = _COMPRESSED | text if variable.nbytes >= _WORTH_BYTES else text
    dataset.dump_to_store(NetCDF4DataStore(target))
    return bytes(target.close())


def read_results(path: Path) -> xr.Dataset:
    """Load the labelled results of a study into memory."""
    return read_dataset(Folder(path.parent), path.name)


def read_dataset(folder: Folder, name: str) -> xr.Dataset:
    """Load the data set of this name; raises as `read_results` does."""
    path = folder.path / name
    try:
        return dataset_of(folder.read(name, MAX_RESULTS_BYTES), path)
    except Missing:
        raise Missing(f"{path}: no results can be read (no such file); run the study first") from None


def dataset_of(content: bytes, path: Path) -> xr.Dataset:
    """Return the data set that the sealed bytes of a file at this path hold; raises as `read_results` does."""
    # Imported here, as above.
    import netCDF4
    import xarray as xr
    from xarray.backends import NetCDF4DataStore

    damaged = UserError(f"{path}: damaged, or not the results of a study; run the study again")
    if not is_sealed(content):
        raise damaged
    try:
        source = netCDF4.Dataset("results.nc", memory=content[:-DIGEST_LENGTH])
        with xr.open_dataset(NetCDF4DataStore(source)) as results:
            # A file that promises more than deflate can hide in its bytes is none of ours.
            promised = sum(array.nbytes for array in results.variables.values())
            if promised > min(MOST_DEFLATED * len(content), MAX_RESULTS_BYTES):
                raise damaged
            # Where the details of the same run are looked for, from any working directory.
            results.encoding["source"] = str(path.absolute())
            return results.load()
    except UserError:
        raise
    except Exception as error:  # a damaged file may raise whatever the libraries meet in it
        raise UserError(f"{path}: no results can be read ({error}); run the study first") from None
