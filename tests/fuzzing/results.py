"""Results that were damaged or are of something else, and arguments of runs."""

import functools
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from fuzzing.arrays import refused
from fuzzing.designs import NAMES
from hypothesis import strategies as st

import simstudy
from simstudy.errors import UserError
from simstudy.execution.store import read_results


@st.composite
def changes(draw: Any) -> list[tuple[str, Any]]:
    names = st.sampled_from(
        ["angle", "bandwidth", "bandwidth_rule", "grid", "mse", "cell", "n_keys", "factors", "absent"]
    )
    kinds = st.sampled_from(["drop", "repeat", "few", "attribute", "rename", "nan"])
    return draw(st.lists(st.tuples(kinds, st.tuples(names, NAMES | st.integers(0, 6))), min_size=1, max_size=3))


@functools.cache
def _good(folder: Path) -> xr.Dataset:
    return read_results(folder / "results.nc")


def check_layout(case: list[tuple[str, Any]], folder: Path) -> None:
    """`to_grid` refuses what is no longer the results of a study, or puts every cell where its labels say."""
    results: Any = _good(folder).copy()
    for kind, (name, what) in case:
        number = what if isinstance(what, int) else 1
        if kind == "drop":
            results = results.drop_vars(name, errors="ignore")
        elif kind == "repeat" and "cell" in results.dims:
            results = results.isel(cell=[0, number % max(results.sizes["cell"], 1), 0] if results.sizes["cell"] else [])
        elif kind == "few" and "cell" in results.dims:
            results = results.isel(cell=slice(0, number))
        elif kind == "attribute":
            results = results.assign_attrs(factors=what)
        elif kind == "rename" and name in results and isinstance(what, str):
            results = results.rename({name: what}) if what not in results and what not in results.dims else results
        elif kind == "nan" and name in ("mse", "n_keys") and name in results:
            results[name] = results[name] * np.nan
    grid = refused(lambda: simstudy.to_grid(results), UserError)
    if grid is not None and "mse" in results and {"angle", "bandwidth"} <= set(grid.dims):
        for cell in range(results.sizes["cell"]):
            one = results.isel(cell=cell)
            found = grid.mse.sel(angle=one.angle, bandwidth=one.bandwidth, source="empirical").values
            np.testing.assert_array_equal(found, one.mse.sel(source="empirical").values)


@st.composite
def edits(draw: Any) -> tuple[float, bytes, bool, str]:
    """Where a file of results is damaged, by what, whether it is cut off, and which grid is asked for."""
    return (
        draw(st.floats(0, 1)), draw(st.binary(min_size=1, max_size=8)), draw(st.booleans()),
        draw(st.sampled_from(["angles", "", "..", "absent"])),
    )  # fmt: skip


def check_results(case: tuple[float, bytes, bool, str], folder: Path) -> None:
    """`open_results` and `to_grid` refuse a damaged file, or read it; `folder` holds a good ``results.nc``."""
    where, what, cut, grid = case
    content = bytearray((folder / "results.nc").read_bytes())
    place = int(where * len(content))
    if cut:
        del content[place:]
    else:
        content[place : place + len(what)] = what
    path = folder / "damaged.nc"
    path.write_bytes(bytes(content))
    results = refused(lambda: simstudy.open_results(path), UserError)
    if results is not None:
        refused(lambda: simstudy.to_grid(results, grid), UserError)


RUNS = st.fixed_dictionaries(
    {
        "profile": st.sampled_from(["quick", "quick", "full", "", "../x", "absent", None, 3]),
        "executor": st.sampled_from(["serial", "serial", "serial", "gpu", "", None, 3, "tcp://", "://", "tcp://nowhere:x"]),
        "workers": st.sampled_from([None, 1, 0, -1, 1.5, "2", True]),
        "output": st.sampled_from(["new", "new", "file", "file/below", "a\x00b", "x" * 300]),
    }
)  # fmt: skip


def check_run(case: dict[str, Any], folder: Path) -> None:
    """`run` refuses bad arguments without a trace, or runs; `folder` holds a good ``design.toml`` and a ``file``."""
    good = case["profile"] in ("quick", "full") and case["executor"] == "serial" and case["output"] == "new"
    good = good and case["workers"] in (None, 1) and not isinstance(case["workers"], bool)
    before = {path for path in folder.rglob("*") if "new" not in path.parts}
    arguments = case | {"output": folder / case["output"]}
    results = refused(lambda: simstudy.run(folder / "good.toml", **arguments), UserError)
    assert (results is not None) == good, case
    assert {path for path in folder.rglob("*") if "new" not in path.parts} == before
