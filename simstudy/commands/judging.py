"""Whether results and report of a study are what its stored batches give: they are judged again and compared."""

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import xarray as xr

from simstudy.design.confirmation import confirmatory
from simstudy.design.document import Design
from simstudy.design.load import load_design
from simstudy.design.written import parse, read_design
from simstudy.errors import UserError
from simstudy.execution.batch_files import with_digest
from simstudy.execution.folder import Missing
from simstudy.execution.store import (
    DETAILS_FILE,
    MAX_RESULTS_BYTES,
    Store,
    dataset_of,
    netcdf,
    read_results,
)
from simstudy.report.page import report_files
from simstudy.results import open_results
from simstudy.study import RESULTS_FILE, judged_again

_OF_THE_RUN = "run", "simstudy_version", "commit", "libraries"
"""Attributes that tell of the run and the installation, which no batch gives."""
MAX_NAMED = 4


def altered(store: Store, trust: Iterable[Path] = ()) -> Iterator[str]:
    """Yield which files of results and report are not what the stored batches give, and what of them."""
    if RESULTS_FILE not in store.files.names():
        return
    try:
        results = open_results(store.folder)
    except UserError as error:
        yield str(error)
        return
    design = _design_of(results, store, trust)
    judged = judged_again(design, store)
    if judged is None:
        yield f"{RESULTS_FILE}: batches that it rests on are damaged or missing"
        return
    for name, again in zip((RESULTS_FILE, DETAILS_FILE), judged, strict=True):
        yield from _different(name, again, store)
    of_run = {name: results.attrs[name] for name in _OF_THE_RUN}
    again = _as_stored(judged[0].assign_attrs(of_run), store)
    for name, content in report_files(again, design).items():
        try:
            if store.files.read(name, MAX_RESULTS_BYTES) != content:
                yield name
        except Missing:  # a run in Python writes no report
            continue


def _different(name: str, again: xr.Dataset, store: Store) -> Iterator[str]:
    """Yield the name of a data set, with some of what differs."""
    stored, again = read_results(store.folder / name), _as_stored(again, store)
    wrong = sorted(
        str(each)
        for each in stored.variables.keys() | again.variables.keys()
        if each not in stored.variables
        or each not in again.variables
        or not stored.variables[each].identical(again.variables[each])
    )
    attributes = (stored.attrs.keys() | again.attrs.keys()) - {*_OF_THE_RUN}
    wrong += sorted(each for each in attributes if stored.attrs.get(each) != again.attrs.get(each))
    if wrong:
        more = f" and {len(wrong) - MAX_NAMED} more" if len(wrong) > MAX_NAMED else ""
        yield f"{name}: {', '.join(wrong[:MAX_NAMED])}{more}"


def _as_stored(dataset: xr.Dataset, store: Store) -> xr.Dataset:
    """Return a data set as it would be read."""
    return dataset_of(with_digest(netcdf(dataset)), store.folder / RESULTS_FILE)


def _design_of(results: xr.Dataset, store: Store, trust: Iterable[Path]) -> Design:
    """Return the design that results state, from its file as long as that states the same."""
    text, profile, file = results.attrs["design"], results.attrs["profile"], store.design_file
    tables, unchanged, trust = parse("design", text), False, [Path(path).absolute() for path in trust]
    if file and file.is_file():
        with contextlib.suppress(UserError):  # it is no design any more
            unchanged = repr(read_design(file).tables) == repr(tables)
    # Paths in a design are relative to its folder.
    with contextlib.chdir(file.parent if file and file.parent.is_dir() else "."):
        design = load_design(file if file and unchanged else tables, profile, trust)
    design = design.model_copy(update={"text": text, "path": file})
    return confirmatory(design, results.attrs["confirmation_text"] or None)
