"""Studies: ``run``, ``submit``, ``status`` and ``plan``; ``report`` and ``replay`` of what is stored."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from simstudy.commands import cli

if TYPE_CHECKING:
    from simstudy.design.document import Design
    from simstudy.execution.store import Store

_TRUST = "Accept tcp:// to a scheduler on another host. Anybody on that network can then run code as you."
_FIGURES = "Also write all figures of a study in this format. A later run does not write them again."


@cli.app.command()
def run(
    design: cli.DesignArgument,
    profile: cli.ProfileOption = "quick",
    executor: cli.ExecutorOption = "threads",
    workers: cli.WorkersOption = None,
    output: cli.OutputOption = cli.OUTPUT,
    share: Annotated[str | None, typer.Option(help='Share of the cells, such as "3/8", later taken by run.')] = None,
    trust_network: Annotated[bool, typer.Option("--trust-network", help=_TRUST)] = False,
    quiet: cli.QuietOption = False,
    trust: cli.TrustOption = None,
    confirm: cli.ConfirmOption = None,
    claims: cli.ClaimsOption = False,
) -> None:
    """Run a study, or continue it: stored batches are not computed again."""
    from simstudy.execution.shares import Share
    from simstudy.report.progress import ProgressDisplay
    from simstudy.report.terminal import say
    from simstudy.study import run_share

    loaded, store = cli.opened(design, profile, output, trust, confirm)
    how: dict[str, Any] = {"output": output, "executor": executor, "workers": workers, "trust_network": trust_network}
    if share is None:
        raise typer.Exit(run_and_report(loaded, store, quiet, claims, **how))
    with ProgressDisplay(quiet) as display:
        n_cells, stored = run_share(loaded, Share.parse(share), observer=display, **how)
    if not quiet:
        say(f"share {share}: {n_cells} cells done", f"stored   {stored}")


def run_and_report(loaded: Design, store: Store, quiet: bool = False, claims: bool = False, **how: Any) -> int:
    """Run a study as `simstudy.run` is told to, say in five lines what it found, and return the exit code."""
    from simstudy.execution.status import REPORT, reported
    from simstudy.report import tables
    from simstudy.report.progress import ProgressDisplay, missed_line, undecided_line
    from simstudy.report.terminal import counted, say, show_table, warn
    from simstudy.study import complete

    _leave_out_dask_arrays()
    with ProgressDisplay(quiet) as display:
        results, status, notes = complete(loaded, observer=display, **how)
    lines = tables.verdict_lines(results)
    if not quiet:
        if claims:
            show_table(tables.verdict_table(lines) if lines else tables.measure_table(results, loaded))
        replicates, failed = int(results.n_replicates.values.sum()), int(results.n_failed.values.sum())
        size = f"{counted(results.sizes['cell'], 'cell')}, {replicates:,} replicates, {failed} failed"
        say(tables.sentence(lines) or tables.measure_words(results, loaded))
        say(f"{tables.count_verdicts(lines)}; {size}" if lines else size)
        if loaded.confirmation:
            say(f"confirmed with the text {loaded.confirmation.text!r}: {loaded.confirmation.digest}")
    missed = missed_line(status, loaded)
    if told := [*filter(None, (missed, undecided_line(results, loaded) if loaded.claims else "")), *notes]:
        warn(*told)
    if store.read_json(REPORT) != reported(status, store):
        # Imported and drawn here: nobody has to wait for pictures to read a verdict.
        from simstudy.report.page import write_report

        with store.locked():
            write_report(results, loaded, store)
            store.write_json(REPORT, reported(status, store))
    if not quiet:
        say(f"page: {store.folder / 'report.html'}")
    if not all(line.as_expected for line in lines):
        return cli.EXIT_NOT_AS_EXPECTED
    return cli.EXIT_PRECISION_MISSED if missed else 0


def _leave_out_dask_arrays() -> None:
    """Let xarray look for arrays of Dask in vain, which it does once: to import them takes a tenth of a short run."""
    import xarray as xr

    if "dask.array" not in sys.modules:
        sys.modules["dask.array"] = None  # type: ignore[assignment]
        xr.Variable((), 0.0)
        del sys.modules["dask.array"]


@cli.app.command()
def submit(
    design: cli.DesignArgument,
    profile: cli.ProfileOption = "quick",
    output: cli.OutputOption = cli.OUTPUT,
    system: Annotated[str, typer.Option(help="Batch system: slurm, pbs, sge or lsf.")] = "slurm",
    jobs: Annotated[int, typer.Option(help="Number of jobs to keep running.")] = 2,
    threads: Annotated[int, typer.Option(help="Cores of each job.")] = 1,
    memory: Annotated[str, typer.Option(help="Memory of each job; simstudy plan predicts it.")] = "2GB",
    walltime: Annotated[str, typer.Option(help="Longest time of a job, as hours:minutes:seconds.")] = "01:00:00",
    show: Annotated[bool, typer.Option("--show", help="Print the job scripts, and submit nothing.")] = False,
    trust: cli.TrustOption = None,
    confirm: cli.ConfirmOption = None,
) -> None:
    """Run a study on a cluster by jobs that this command starts and supervises.

    It replaces lost jobs. Ctrl-C ends all jobs, and the same command continues the study. The configuration of
    dask-jobqueue states what else a cluster wants: queue, interface, local-directory, job-extra-directives,
    job-script-prologue.
    """
    from simstudy.execution.executors import Jobs, job_script
    from simstudy.execution.folder import Folder
    from simstudy.report.terminal import say

    loaded, store = cli.opened(design, profile, output, trust, confirm)
    logs, keys = store.folder.absolute() / "logs", Folder(store.folder.absolute())
    asked = Jobs(system, jobs, threads, memory, walltime, logs, keys)
    store.files.require_ours()  # before Dask makes the folder of logs
    if show:
        say(*job_script(asked).split("\n"))
    else:
        raise typer.Exit(run_and_report(loaded, store, output=output, executor=asked))


@cli.app.command()
def status(
    design: cli.DesignArgument,
    profile: cli.ProfileOption = "quick",
    output: cli.OutputOption = cli.OUTPUT,
    as_json: cli.JsonOption = False,
    trust: cli.TrustOption = None,
    confirm: cli.ConfirmOption = None,
) -> None:
    """Show the progress of each cell of a study, also while another process runs it.

    The command writes nothing. Standard errors are those that the run last computed; if there are none yet, only
    batches are counted. `simstudy replay --cell` takes the numbers of cells.
    """
    from simstudy.execution.status import counted, read_status
    from simstudy.replicates.allocation import sized
    from simstudy.report.progress import status_line, status_record, status_table
    from simstudy.report.terminal import say, say_json, show_table

    loaded, store = cli.opened(design, profile, output, trust, confirm)
    found = read_status(loaded, store) or counted(sized(loaded), store)
    if as_json:
        say_json(status_record(found, loaded, store))
    else:
        show_table(status_table(found, loaded))
        say(status_line(found, store))


@cli.app.command()
def plan(
    design: cli.DesignArgument,
    profile: cli.ProfileOption = "quick",
    workers: Annotated[int | None, typer.Option(min=1, help="Also predict the time with this many workers.")] = None,
    output: cli.OutputOption = cli.OUTPUT,
    trust: cli.TrustOption = None,
) -> None:
    """Predict time, memory and disk of a study from a few batches of each cell, which `run` uses later."""
    from simstudy.interactive import plan as plan_study
    from simstudy.report.progress import plan_lines, plan_table
    from simstudy.report.terminal import say, show_table

    loaded, _ = cli.opened(design, profile, output, trust)
    found = plan_study(loaded, output=output)
    show_table(plan_table(found))
    say(*plan_lines(found, workers))


@cli.app.command()
def report(
    design: Annotated[
        str | None, typer.Argument(help="Design, by path or name, or a folder of designs; without it all studies.")
    ] = None,
    profile: cli.ProfileOption = "quick",
    output: cli.OutputOption = cli.OUTPUT,
    figures: Annotated[Literal["pdf", "svg"] | None, typer.Option(help=_FIGURES)] = None,
    trust: cli.TrustOption = None,
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
        say(f"page: {gather(known, profile, output, trust or ())}")
        return
    loaded, store = cli.opened(design, profile, output, trust, confirm)
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
    from simstudy.replicates.replay import replay as rebuild
    from simstudy.report.terminal import say
    from simstudy.study import select, sized

    loaded, store = cli.opened(design, profile, output, trust, confirm)
    number = select(loaded, cell)
    arrays = rebuild(sized(loaded).cells[number].cell, replicate)
    with store.locked():
        path = store.write_dataset(f"replays/cell-{number}-replicate-{replicate}.nc", arrays)
    say(*(f"{name}{dict(values.sizes)}: {values.attrs['long_name']}" for name, values in arrays.data_vars.items()))
    if "head_estimate" in arrays:
        say(*str(arrays.head_estimate.to_pandas()).split("\n"))
    say(f"replicate {replicate} of cell {number}: {arrays.attrs['failure'] or 'defined'}", f"arrays   {path}")
