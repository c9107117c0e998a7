"""Work on what is stored: ``report``, ``replay``, ``merge`` and ``verify``."""

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
) -> None:
    """Write the report of a study again, or one page of all studies in a folder.

    The command uses stored batches and computes no replicate.
    """
    from simstudy.design.written import designs_in, known_designs
    from simstudy.report.all_studies import gather
    from simstudy.report.page import write_report
    from simstudy.report.tables import verdict_lines, verdict_table
    from simstudy.report.terminal import say, show_table
    from simstudy.results import open_results

    if design is None or Path(design).is_dir():
        # Without a folder also those that lie here: what is shipped and what is one's own.
        known = designs_in(Path(design)) if design else list(dict.fromkeys([*known_designs(), *designs_in(Path())]))
        say(f"report   {gather(known, profile, output)}")
        return
    loaded, store = cli.opened(design, profile, output, confirm=confirm)
    results = open_results(store.folder)
    # Written first: it refuses results of another design, whose verdicts must not be shown as those of this one.
    with store.locked():
        path = write_report(results, loaded, store, figures)
    show_table(verdict_table(verdict_lines(results)))
    say(f"report   {path}")


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
    from simstudy.design.own_code import require_word
    from simstudy.replicates.replay import replay as rebuild
    from simstudy.replicates.replay import select
    from simstudy.report.terminal import say

    loaded, store = cli.opened(design, profile, output, trust, confirm, to_write=True)
    number = select(loaded, cell)
    require_word([loaded.cells[number].cell])
    arrays = rebuild(loaded.cells[number].cell, replicate)
    with store.locked():
        path = store.write_dataset(f"replays/cell-{number}-replicate-{replicate}.nc", arrays)
    say(*(f"{name}{dict(values.sizes)}: {values.attrs['long_name']}" for name, values in arrays.data_vars.items()))
    if "head_estimate" in arrays:
        say(*str(arrays.head_estimate.to_pandas()).split("\n"))
    state = arrays.attrs["failure"] or "defined"
    say(f"replicate {replicate} of cell {number}: {state}", f"arrays   {path}")


@cli.app.command()
def merge(
    sources: Annotated[list[Path], typer.Argument(help="Folders to copy from, such as outputs/STUDY/PROFILE.")],
    into: Annotated[Path, typer.Option(callback=cli.plain_path, help="Folder to copy to.")],
) -> None:
    """Copy missing batches from other folders of a study; `simstudy run` then continues from all of them."""
    from simstudy.execution.folder import require_writable
    from simstudy.execution.shares import require_engine
    from simstudy.execution.store import Store
    from simstudy.report.terminal import say

    require_writable(into)
    for source in sources:
        require_engine(Store(source))
    target = Store(into)
    with target.locked():
        for source in sources:
            say(f"{source}: {target.adopt(Store(source))}")
    say(f"whether they are what simstudy computes: simstudy verify {into}")


@cli.app.command()
def verify(
    folder: Annotated[
        Path, typer.Argument(file_okay=False, help="Folder of a study or of a job share: outputs/STUDY/PROFILE.")
    ],
    share: Annotated[float, typer.Option(help="Share of the batches of each cell, at least one batch.")] = 0.01,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the choice of batches; random by default.")] = None,
    trust: cli.TrustOption = None,
) -> None:
    """Compute a random share of the stored batches again and judge all claims again; exit code 4 if anything differs.

    Batches are compared bit by bit, and results, tables and page with what the stored batches give. A damaged batch
    counts as different.
    """
    from simstudy.commands.judging import altered
    from simstudy.execution.store import Store
    from simstudy.execution.verify import verify as compute_again
    from simstudy.report.terminal import say, track

    found = compute_again(folder, share, seed, track=track, trust=trust or ())
    wrong: list[str] = []
    if found.foreign:
        say(*found.lines, "skipped   results and report: they rest on batches of another engine")
    else:
        wrong = list(altered(Store(folder), trust or ()))
        say(*found.lines)
    say(*(f"different {each}" for each in wrong))
    raise typer.Exit(cli.EXIT_DIFFERENT if found.different or found.damaged or wrong else 0)
