"""Labelled data as the bytes of a netCDF file, and back: whoever has the bytes decides where they lie."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import netCDF4
    import xarray as xr
    from xarray.backends import NetCDF4DataStore

_COMPRESSED: dict[str, Any] = {"zlib": True, "complevel": 4, "shuffle": True}
"""Every reader of netCDF 4 undoes it, and no digit is lost."""
_WORTH_BYTES = 2048
"""Size from which compressing an array saves more than what netCDF then keeps of its chunks."""


def netcdf(data: xr.Dataset | xr.DataTree) -> bytes:
    """Return data as the bytes of a netCDF file: written by us, so that a full disk raises what we expect."""
    # Imported here and below: they take half a second, which who looks at batches alone need not wait for.
    import netCDF4
    import xarray as xr
    from xarray.backends.netCDF4_ import NETCDF4_PYTHON_LOCK

    tree = data if isinstance(data, xr.DataTree) else xr.DataTree(data)
    with NETCDF4_PYTHON_LOCK:
        # Both arguments are required for a file in memory, but name no file and no size.
        target = netCDF4.Dataset("results.nc", "w", memory=1)
        # All is defined before any is written: netCDF goes through all that is defined with each turn to the other.
        writes: list[tuple[Any, Any]] = []
        later = SimpleNamespace(add=lambda *pair: writes.append(pair))
        for node in tree.subtree:
            dataset = node.to_dataset(inherit=False).copy()
            for variable in dataset.variables.values():
                # Texts become characters, as text of any length cannot be compressed.
                text = {"dtype": "S1"} if variable.dtype.kind in "OTU" else {}
                variable.encoding = _COMPRESSED | text if variable.nbytes >= _WORTH_BYTES else text
            dataset.dump_to_store(_unlocked(target, node.path), writer=later)
        for source, place in writes:
            place[...] = source
        return bytes(target.close())


def _unlocked(file: netCDF4.Dataset, group: str) -> NetCDF4DataStore:
    """A path that xarray may read from or write to, while its lock is held: netCDF is not safe for threads."""
    from xarray.backends import NetCDF4DataStore
    from xarray.backends.file_manager import DummyFileManager

    return NetCDF4DataStore(DummyFileManager(file), group=group, mode="a", lock=False)


def loaded(content: bytes) -> xr.DataTree:
    """Data of the bytes of a netCDF file, without an encoding, which would spoil what is saved again."""
    import netCDF4
    import xarray as xr
    from xarray.backends.netCDF4_ import NETCDF4_PYTHON_LOCK

    with NETCDF4_PYTHON_LOCK, netCDF4.Dataset("results.nc", memory=content) as file:
        groups = [file]
        for group in groups:
            groups += group.groups.values()
        opened = {group.path: xr.open_dataset(_unlocked(file, group.path)) for group in groups}
        return xr.DataTree.from_dict({name: each.load().drop_encoding() for name, each in opened.items()})
