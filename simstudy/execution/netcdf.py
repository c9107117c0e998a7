"""A labelled data set as the bytes of a netCDF file."""

from __future__ import annotations

from typing import Any

import xarray as xr

MOST_DEFLATED = 1032
"""Bytes that a byte of a deflated file may stand for, at most."""
_COMPRESSED: dict[str, Any] = {"zlib": True, "complevel": 4, "shuffle": True}
"""Every reader of netCDF 4 undoes it, and no digit is lost."""


def netcdf(dataset: xr.Dataset) -> bytes:
    """Return a data set as the bytes of a netCDF file: written by us, so that a full disk raises what we expect."""
    import netCDF4
    from xarray.backends import NetCDF4DataStore

    # Both arguments are required for a file in memory, but name no file and no size.
    target = netCDF4.Dataset("results.nc", "w", memory=1)
    dataset = dataset.copy()
    for variable in dataset.variables.values():
        # Texts become characters, as text of any length cannot be compressed.
        text = {"dtype": "S1"} if variable.dtype.kind in "OTU" else {}
        variable.encoding = _COMPRESSED | text if variable.ndim else text
    dataset.dump_to_store(NetCDF4DataStore(target))
    return bytes(target.close())
