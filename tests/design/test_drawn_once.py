"""Shipped designs: what a seed draws before the first replicate is a population, or named; statements stand alone."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from simstudy.data import heads
from simstudy.data.heads import overlap
from simstudy.data.shared import projections_of
from simstudy.design.answerable import PlannedGrid, Reference, draws_of
from simstudy.design.contents import read_contents
from simstudy.design.load import check, declared
from simstudy.design.settings.cell import Cell
from simstudy.replicates.batch import no_moments

DESIGNS = Path(__file__).parents[2] / "designs"
SHIPPED = sorted([*DESIGNS.glob("*/design.toml"), *DESIGNS.glob("examples/*/design.toml")])


def of_another_seed(cell: Cell, read) -> Cell:
    return read(cell.with_simulation(seed=20261125).model_copy(update={"file_rows": None}))


def drawn_by_name(cell: Cell) -> dict[str, list[np.ndarray]]:
    """Everything that is there before replicates, by the name under which a verdict would tell of it."""
    if cell.functions is not None:
        return {}
    given, values = cell.queries.queries.kind != "held_out", overlap(cell)
    ignored = "arrangement" in cell.estimator.learner.ignores or cell.heads.redrawn
    own = [] if ignored else projections_of(cell)
    return {
        "queries": [heads.query_points(cell)] if given else [],
        "heads": [*own, *([] if values is None else [values])],
        "held_out": [] if cell.file_rows is None else [cell.rows.points, cell.rows.targets],
    }


@pytest.fixture(scope="module", params=SHIPPED, ids=lambda path: path.stem)
def shipped(request):
    return request.param, check(request.param, [*DESIGNS.glob("examples/*/functions.py")])


def test_shipped_designs__are_complete(shipped):
    path, profiles = shipped
    assert all(declared(each.text, name).figures == each.figures for name, each in profiles.items())
    if path.parents[1] == DESIGNS:
        assert {"quick", "full"} <= profiles.keys()
        assert all(each.study.name == path.parent.name and each.claims and each.figures for each in profiles.values())
        assert "unstated" not in {claim.origin for claim in profiles["quick"].claims.values()}


def test_what_another_seed_draws__is_named(shipped, monkeypatch):
    path, profiles = shipped
    design, read = profiles["quick"], partial(read_contents, folder=path.parent)
    kinds = {}  # of cells, as those that differ in numbers alone draw the same things
    for cell in (planned.cell for planned in design.cells):
        kind = [
            cell.heads.arrangement, cell.heads.query_projections, cell.heads.value_projections.kind,
            cell.queries.queries.kind, cell.estimator, cell.data.key_distribution, cell.data.regression.kind,
            cell.functions, cell.simulation.population,
        ]  # fmt: skip
        kinds.setdefault(repr(kind), cell)
    for cell in kinds.values():
        other = of_another_seed(cell, read)
        first, second = drawn_by_name(cell), drawn_by_name(other)
        changed = {name for name in first if any(not np.array_equal(*pair, equal_nan=True) for pair in zip(
            first[name], second[name], strict=True))}  # fmt: skip
        # A function of the user's own is given normals, whatever it makes of them.
        assert changed == cell.drawn - ({"heads"} if cell.heads.heads_function else set()), cell
        if cell.functions is None:
            # With all that has a name as it was, nothing else may be another.
            stream = heads._stream
            with monkeypatch.context() as patch:
                patch.setattr(heads, "_stream", lambda c, draw=0, of=cell, stream=stream: stream(of, draw))
                heads.query_points.cache_clear()  # those of the equal cell above are of its own stream
                pinned = of_another_seed(cell, read)
                rows = cell.in_batch(0).rows if cell.file_rows is not None else None
                pinned = pinned.model_copy(update={"file_rows": cell.file_rows})
                patch.setattr(Cell, "rows", property(lambda _, rows=rows: rows))
                assert all(map(np.array_equal, no_moments(cell), no_moments(pinned)))
    for name, claim in design.claims.items():
        draws = draws_of(claim, design.cells)
        cells = [each.cell for each in design.cells if each.grid == claim.grid]
        grid = PlannedGrid((), [each.coordinates for each in cells], cells)
        drawn = {part for cell in Reference("", claim, grid, grid.select(claim.where)).cells for part in cell.drawn}
        told = {"queries": "query point", "heads": "random head", "held_out": "held-out row"}
        assert all(told[part] in draws for part in drawn) or claim.measure == "hdi", name
