"""Small valid cells and designs for tests; each keyword replaces one setting."""

import json
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import naive
import numpy as np
import pytest
import xarray as xr

from simstudy.attention.functions import AddressedDraw
from simstudy.data.heads import key_projections, query_points, query_projections
from simstudy.design.contents import read_contents
from simstudy.design.document import Design, PlannedCell, Precision
from simstudy.design.load import Source, load_design
from simstudy.design.settings.cell import TABLE_OF, Cell
from simstudy.design.settings.records import DesignError
from simstudy.errors import UserError
from simstudy.replicates.batch import simulate_batch
from simstudy.replicates.population import measured
from simstudy.replicates.replay import replay
from simstudy.results import cells_of
from simstudy.study import complete


def run(design: Design | Source, **how: Any) -> xr.Dataset:
    """The table of cells that a run of a study ends with."""
    return cells_of(complete(design if isinstance(design, Design) else load_design(design), **how)[0])


BASE: dict[str, Any] = {"n_keys": 40, "n_features": 6, "n_heads": 2, "head_dim": 2, "arrangement": "orthogonal"}
BASE |= {"bandwidth": 0.8, "batch_size": 32, "seed": 7, "control": "none"}
RIDGE = {"kind": "ridge", "amplitude": 2.0, "direction": [1.0, -0.5]}


def minimal_cell(**settings: Any) -> Cell:
    tables: dict[str, dict[str, Any]] = {}
    for name, value in (BASE | settings).items():
        tables.setdefault(TABLE_OF[name], {})[name] = value
    return Cell.model_validate(tables)


def with_contents(folder: Path = Path(), **settings: Any) -> Cell:
    return read_contents(minimal_cell(**settings), folder)


DESIGN = """
[study]
name = "tiny"
title = "A tiny study"
aim = "To test."
[data]
n_keys = 40
n_features = 6
regression = { kind = "ridge" }
[heads]
n_heads = 2
head_dim = 2
arrangement = "rotated"
[estimator]
bandwidth = 0.8
[simulation]
seed = 7
batch_size = 32
[precision]
relative_mcse = { mse = 0.05 }
min_replicates = 64
max_replicates = 512
[grids.angles.factors]
angle = [0, 45, 90]
bandwidth = [0.5, 1.0]
[claims.mse-falls]
statement = "The error falls."
kind = "monotone"
grid = "angles"
measure = "mse"
x = "angle"
direction = "decreasing"
expected = "undecided"

[figures.mse]
title = "Error against angle"
grid = "angles"
x = "angle"
y = "mse"
hue = "bandwidth"
[profiles.quick]
[profiles.full.precision]
max_replicates = 1024
"""
UNCLAIMED = DESIGN.partition("[claims")[0] + "[profiles.quick]\n"
"""The same without claims, figures and a second profile."""


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{name} = {toml(each)}' for name, each in value.items())} }}"
    return f"[{', '.join(map(toml, value))}]" if isinstance(value, list | tuple) else json.dumps(value)


def varied(text: str = DESIGN, /, **settings: Any) -> str:
    """The text of a design with other settings; lists are levels of factors, and what is None is left out."""
    for name, value in settings.items():
        factor, told = isinstance(value, list), "" if value is None else f"{name} = {toml(value)}"
        old = r".*\n" if value is None else r"\[.*\]" if factor else r'(?!\[)("[^"]*"|\{[^}]*\}|[^\s,}]+)'
        text, found = re.subn(rf"\b{name} = {old}", lambda _, told=told: told, text, count=1)
        if not found:
            table = "[grids.angles.factors]" if factor else f"[{TABLE_OF.get(name, 'precision')}]"
            text = text.replace(table, f"{table}\n{told}", 1) if table in text else f"{text}\n{table}\n{told}\n"
    return text


def arrays_of(cell: Cell) -> tuple[Any, Any, Any]:
    """What theories take beside a cell: projections of keys and of queries, and query points."""
    return key_projections(cell), query_projections(cell), query_points(cell)


def planned(cell: Cell, grid: str = "g", *, exact: bool = True, **precision: Any) -> PlannedCell:
    return PlannedCell(grid=grid, cell=cell, precision=Precision(**precision), by_query=False, exact=exact)


def left_open(*cells: Cell, **precision: Any) -> list[PlannedCell]:
    """A grid that states no control, and no replicates of a draw."""
    for cell in cells:
        cell.simulation.model_fields_set.difference_update({"batch_size", "control"})
    return [planned(cell, **precision) for cell in cells]


def batches_of(cell: Cell, count: int) -> list[Any]:
    return [simulate_batch([cell], batch)[0] for batch in range(count)]


def estimated(cell: Cell, n_batches: int = 1) -> Any:
    return measured(cell, batches_of(cell, n_batches))


def solved(cell: Cell, mechanism: dict[str, Any], replicate: int) -> tuple[Any, Any]:
    """Naive means (q, h) and Gram matrices (q, h, g) of one replicate, from what its replay shows."""
    seen = replay(cell, replicate)
    keys = np.einsum("jn,hjk->hnk", seen["keys"], seen["key_projections"])
    points = np.einsum("qj,hjk->qhk", seen["query_points"], seen["query_projections"])
    data, parts = (seen["values"].values, seen["noise_variance"].values), [(slice(None), slice(None))]
    if cell.visible is not None:
        parts = [([q], keys_seen) for q, keys_seen in enumerate(cell.visible)]
    found = [naive.moments(mechanism, keys[:, key], *(x[key] for x in data), points[q], cell.bandwidth)
             for q, key in parts]  # fmt: skip
    means, grams = map(np.concatenate, zip(*found, strict=True))
    return means, grams


def rare(*values: Any) -> Any:
    """Parameters of a test that takes long for what it finds."""
    return pytest.param(*values, marks=pytest.mark.rare)


def write_design(folder: Path, text: str = DESIGN) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "design.toml"
    path.write_text(text, encoding="utf-8")
    return path


def loaded(folder: Path, text: str = DESIGN, profile: str = "quick") -> Design:
    return load_design(write_design(folder, text), profile)


def edited(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times"
    return text.replace(old, new)


def mistakes(folder: Path, text: str, profile: str = "quick") -> str:
    with pytest.raises(DesignError) as refused:
        loaded(folder, text, profile)
    return str(refused.value)


def refuses(said: str, call: Callable[..., Any], *given: Any, error: Any = UserError, **how: Any) -> str:
    """Require that a call is refused in one line that matches, and return it."""
    with pytest.raises(error, match=said) as refused:
        call(*given, **how)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def watched(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[tuple]:
    """Arguments of the calls of a function from now on, which it answers as before."""
    calls, original = [], getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *given, **how: calls.append(given) or original(*given, **how))
    return calls


def functions_of(study: str) -> dict[str, Any]:
    """Functions of a study of this project, by name."""
    return runpy.run_path(str(Path(__file__).parents[1] / "designs" / study / "functions.py"))


def Draw(count: int, seed: int = 0) -> Any:
    """Random numbers of some replicates, as functions of studies take them."""
    return AddressedDraw(f"{seed:032x}", 0, count)
