"""Work on what is stored: ``report`` and ``replay``."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from simstudy.commands import cli

_FIGURES = "Also write all figures of a study in this format. A later run does not write them again."


@cli.app.command()
def report(
    design: Annotated[
        str | None, typer.Argument(help="Design, by path or name, or a folder of designs; without it all studies.")
    ] = None,
    profile: cli.ProfileOption = "quick",
    output: cli.OutputOption = cli.OUTPUT,
    figures: Annotated[Literal["pdf", "svg"] | None, typer.Option(help=_FIGURES)] = None,
    confirm: cli.ConfirmOption = None,
    claims: cli.ClaimsOption = False,
) -> None:
    """Write the report of a study again, or one page of all studies in a folder.

    The command uses stored batches and computes no replicate.
    """
    from simstudy.design.written import designs_in, known_designs
    from simstudy.report import tables
    from simstudy.report.all_studies import gather
    from simstudy.report.page import write_report
    from simstudy.report.terminal import say, show_table
    from simstudy.results import read_cells

    if design is None or designs_in(Path(design)):
        # Without a folder also those that lie here: what is shipped and what is one's own.
        known = designs_in(Path(design)) if design else list(dict.fromkeys([*known_designs(), *designs_in(Path())]))
        say(f"page: {gather(known, profile, output)}")
        return
    loaded, store = cli.opened(design, profile, output, confirm=confirm)
    results = read_cells(store)
    # Written first: it refuses results of another design, whose verdicts must not be shown as those of this one.
    with store.locked():
        path = write_report(results, loaded, store, figures)
    lines = tables.verdict_lines(results)
    if claims:
        show_table(tables.verdict_table(lines) if lines else tables.measure_table(results, loaded))
    say(tables.sentence(lines) or tables.measure_words(results, loaded), tables.count_verdicts(lines), f"page: {path}")


@cli.app.command()
def replay(
    design: cli.DesignArgument,
    cell: Annotated[str, typer.Option(help='Cell: its number in simstudy status, or "angle=45, bandwidth=0.5".')],
    replicate: Annotated[int, typer.Option(help="Number of the replicate, counted from 0.")],
    profile: cli.ProfileOption = "quick",
    output: cli.OutputOption = cli.OUTPUT,
    trust: cli.TrustOption = None,
    confirm: cli.ConfirmOption = None,
) -> None:
    """Compute one replicate again, to the bit, and store its data and estimates."""
    from simstudy.design.own_code import require_trust
    from simstudy.replicates.replay import replay as rebuild
    from simstudy.replicates.replay import select
    from simstudy.report.terminal import say

    loaded, store = cli.opened(design, profile, output, trust, confirm, to_write=True)
    number = select(loaded, cell)
    require_trust([loaded.cells[number].cell])
    arrays = rebuild(loaded.cells[number].cell, replicate)
    with store.locked():
        path = store.write_dataset(f"replays/cell-{number}-replicate-{replicate}.nc", arrays)
    say(*(f"{name}{dict(values.sizes)}: {values.attrs['long_name']}" for name, values in arrays.data_vars.items()))
    if "head_estimate" in arrays:
        say(*str(arrays.head_estimate.to_pandas()).split("\n"))
    state = arrays.attrs["failure"] or "defined"
    say(f"replicate {replicate} of cell {number}: {state}", f"arrays   {path}")
