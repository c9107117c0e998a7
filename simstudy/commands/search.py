"""Search for counterexamples: ``search``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simstudy.commands.app import DesignArgument, ProfileOption, app, plain_path
from simstudy.errors import UserError


@app.command()
def search(
    design: DesignArgument,
    cell: Annotated[int, typer.Option(min=0, help="Cell that states data, estimator, queries, and numbers of heads.")],
    index: Annotated[str, typer.Option(help="Diversity index that follows from the heads.")],
    gap: Annotated[float, typer.Option(help="Least difference of the index between the two ensembles.")],
    output: Annotated[
        Path,
        typer.Option(callback=plain_path, help="Beginning of the two file names: PATH-less.npy and PATH-more.npy."),
    ],
    profile: ProfileOption = "quick",
    seed: Annotated[int, typer.Option(min=0, help="Of the random starts.")] = 0,
    starts: Annotated[int, typer.Option(min=1, help="Random starts.")] = 8,
) -> None:
    """Search for two ensembles of which the more diverse has the larger error at leading order.

    The worst pair is written as two head files, for arrangement = "file" in a design that confirms it by Monte Carlo.
    `simstudy status` shows the numbers of cells.
    """
    from simstudy.design.load import load_design
    from simstudy.execution.store import Store
    from simstudy.report.terminal import say
    from simstudy.search import worst_pair

    cells = load_design(design, profile).cells
    if cell >= len(cells):
        raise UserError(f"--cell {cell}: the design has cells 0 to {len(cells) - 1}; see simstudy status")
    found = worst_pair(cells[cell].cell, index, gap, seed=seed, n_starts=starts)
    store = Store(output.parent)
    for name, heads in zip(("less", "more"), found.heads, strict=True):
        store.write_array(f"{output.name}-{name}.npy", heads)
    less, more = found.diversity
    say(f"{index} {less:.6g} → {more:.6g}, error × {found.ratio:.6g}", f"{output}-less.npy", f"{output}-more.npy")
