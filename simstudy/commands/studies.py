"""Studies: write a design with ``init``, look at it, run it here or on a cluster, and see what it found."""

from __future__ import annotations

import importlib.resources
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simstudy.commands import cli
from simstudy.errors import UserError, require_extra

if TYPE_CHECKING:
    import xarray as xr

    from simstudy.design.document import Design
    from simstudy.execution.store import Store


@cli.app.command()
def describe(
    name: Annotated[str, typer.Argument(help="Table (heads), setting (noise), kind (ridge), or measure (mse).")] = "",
) -> None:
    """Print every table, entry and kind of a design with defaults, and every measure; or those of a name."""
    from simstudy.reference import described

    cli.say(*described(name))


@cli.app.command("list")
def list_designs(
    folder: Annotated[Path | None, typer.Argument(help="List the designs in this folder instead.")] = None,
) -> None:
    """List shipped designs and those in ./designs."""
    from rich.table import Table

    from simstudy.design.load import FILE, designs_in, known_designs, read_design

    paths = known_designs() if folder is None else designs_in(folder)
    if not paths:
        raise UserError(f"{folder or 'designs'}: holds no study folders (NAME/{FILE}); give another folder")
    table = Table("design", "title", "profiles")
    for path in paths:
        try:
            tables = read_design(path).tables
            table.add_row(path.parent.name, str(tables["study"]["title"]), ", ".join(tables["profiles"]))
        except (UserError, LookupError, TypeError):
            table.add_row(path.parent.name, "has mistakes", f"see simstudy check {path.parent}")
    cli.say(table)


@cli.app.command()
def check(design: cli.DesignArgument, trust: cli.TrustOption = None) -> None:
    """Check a design under every profile and list all mistakes, each with its place and remedy."""
    from simstudy.design.load import check as check_design
    from simstudy.report.terminal import counted

    for each in check_design(design, trust or ()).values():
        size = f"{counted(len(each.cells), 'cell')}, {counted(len(each.claims), 'claim')}"
        cli.say(f"{each.path}: {each.profile}: {size}")


@cli.app.command()
def init(
    name: Annotated[str, typer.Argument(help="Name of the study and of its folder.")] = "my-study",
    functions: Annotated[bool, typer.Option("--functions", help="A study of your own functions.")] = False,
) -> None:
    """Write the folder NAME of a study that runs in seconds, with comments, as a start for your own."""
    from simstudy.design.document import NAME

    if not re.fullmatch(NAME, name):
        raise UserError(f"{name}: not a valid study name; use lower-case letters and digits, joined by single hyphens")
    templates = importlib.resources.files("simstudy.commands") / "templates" / ("functions" if functions else "heads")
    folder = Path(name)
    try:
        folder.mkdir()
        for template in templates.iterdir():
            text = template.read_text(encoding="utf-8").replace("my-study", name)
            (folder / template.name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror}); give another name or go elsewhere") from None
    trust = f" --trust {folder / 'functions.py'}" if functions else ""
    cli.say(f"study    {folder}", f"now      simstudy check {folder}{trust}", f"         simstudy run {folder}{trust}")


@cli.app.command()
def run(
    design: cli.DesignArgument,
    profile: cli.ProfileOption = "quick",
    executor: cli.ExecutorOption = "threads",
    workers: cli.WorkersOption = None,
    output: cli.OutputOption = cli.OUTPUT,
    share: Annotated[str | None, typer.Option(help='Share of the cells, such as "3/8", later taken by run.')] = None,
    trust: cli.TrustOption = None,
    confirm: cli.ConfirmOption = None,
    claims: cli.ClaimsOption = False,
) -> None:
    """Run a study, or continue it: stored batches are not computed again."""
    _import_xarray_without_dask()
    from simstudy.report.progress import ProgressDisplay
    from simstudy.study import run_share

    loaded, store = cli.opened(design, profile, output, trust, confirm)
    how: dict[str, Any] = {"output": output, "executor": executor, "workers": workers}
    if share is None:
        raise typer.Exit(run_and_report(loaded, store, claims, **how))
    with ProgressDisplay() as display:
        n_cells, stored = run_share(loaded, share, observer=display, **how)
    cli.say(f"share {share}: {n_cells} cells done", f"stored   {stored}")


def run_and_report(loaded: Design, store: Store, claims: bool = False, **how: Any) -> int:
    """Run a study as `simstudy.run` is told to, say in five lines what it found, and return the exit code."""
    from simstudy.report import tables
    from simstudy.report.progress import ProgressDisplay, missed_line, undecided_line
    from simstudy.report.terminal import counted, warn
    from simstudy.study import complete

    with ProgressDisplay() as display:
        results, status, notes = complete(loaded, observer=display, **how)
    replicates, failed = int(results.n_replicates.values.sum()), int(results.n_failed.values.sum())
    size = f"{counted(results.sizes['cell'], 'cell')}, {replicates:,} replicates, {failed} failed"
    lines = _say_answer(results, loaded, claims)
    cli.say(f"{tables.count_verdicts(lines)}; {size}" if lines else size)
    if loaded.confirmation:
        cli.say(f"confirmed with the text {loaded.confirmation.text!r}: {loaded.confirmation.digest}")
    if warnings := [*filter(None, (missed_line(status, loaded), undecided_line(results, loaded), *notes))]:
        warn(*warnings)
    if store.read_json(tables.MADE_OF) != tables.made_of(status, store):
        # Imported and drawn here: nobody has to wait for pictures to read a verdict.
        from simstudy.report.page import write_report

        with store.locked():
            write_report(results, loaded, store)
            store.write_json(tables.MADE_OF, tables.made_of(status, store))
    cli.say(f"page: {store.folder / 'report.html'}")
    if not all(line.as_expected for line in lines):
        return cli.EXIT_NOT_AS_EXPECTED
    return 0 if all(cell.reached for cell in status.cells) else cli.EXIT_PRECISION_MISSED


def _say_answer(results: xr.Dataset, loaded: Design, claims: bool) -> list[Any]:
    from simstudy.report import tables

    lines = tables.verdict_lines(results)
    if claims and lines:
        cli.say(tables.verdict_table(lines))
    cli.say(tables.sentence(lines) or tables.measure_words(results, loaded))
    return lines


def _import_xarray_without_dask() -> None:
    """Let xarray look for Dask in vain, which it does once: to import that takes a tenth of a short run."""
    if not {"dask", "xarray"} & {*sys.modules}:
        sys.modules["dask"] = None  # type: ignore[assignment]
        importlib.import_module("xarray").Variable((), 0.0)
        del sys.modules["dask"]


@cli.app.command()
def submit(
    design: cli.DesignArgument,
    profile: cli.ProfileOption = "quick",
    output: cli.OutputOption = cli.OUTPUT,
    jobs: Annotated[int, typer.Option(min=1, help="Number of jobs to keep running.")] = 2,
    show: Annotated[bool, typer.Option("--show", help="Print the job scripts, and submit nothing.")] = False,
    trust: cli.TrustOption = None,
    confirm: cli.ConfirmOption = None,
) -> None:
    """Run a study on a Slurm cluster by jobs that this command starts and supervises.

    It replaces lost jobs. Ctrl-C ends all jobs, and the same command continues the study. The configuration of
    dask-jobqueue states what a job is: cores, memory, walltime, queue, interface, local-directory,
    job-extra-directives, job-script-prologue.
    """
    require_extra("submit", "dask_jobqueue", "cluster", ", or run --share in jobs of your own")
    from simstudy.execution.clusters import job_script
    from simstudy.execution.executors import Jobs

    loaded, store = cli.opened(design, profile, output, trust, confirm)
    asked = Jobs(jobs, store.folder.absolute())
    store.files.require_ours()  # before Dask makes the folder of logs
    if show:
        cli.say(*job_script(asked).split("\n"))
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
    from simstudy.report.progress import status_line, status_record, status_table

    loaded, store = cli.opened(design, profile, output, trust, confirm)
    found = read_status(loaded, store) or counted(loaded, store)
    if as_json:
        cli.say_json(status_record(found, loaded, store))
    else:
        cli.say(status_table(found, loaded), status_line(found, store))


@cli.app.command()
def plan(
    design: cli.DesignArgument,
    profile: cli.ProfileOption = "quick",
    workers: Annotated[int | None, typer.Option(min=1, help="Also predict the time with this many workers.")] = None,
    output: cli.OutputOption = cli.OUTPUT,
    trust: cli.TrustOption = None,
) -> None:
    """Predict time, memory and disk of a study from a few batches of each cell, which `run` uses later."""
    from simstudy.report.progress import plan_told
    from simstudy.study import plan as plan_study

    loaded, _ = cli.opened(design, profile, output, trust)
    cli.say(*plan_told(plan_study(loaded, output=output), workers))


@cli.app.command()
def report(
    design: Annotated[
        str | None, typer.Argument(help="Design, by path or name, or a folder of designs; without it all studies.")
    ] = None,
    profile: cli.ProfileOption = "quick",
    output: cli.OutputOption = cli.OUTPUT,
    trust: cli.TrustOption = None,
    confirm: cli.ConfirmOption = None,
    claims: cli.ClaimsOption = False,
) -> None:
    """Write the report of a study again, or one page of all studies in a folder.

    The command uses stored batches and computes no replicate.
    """
    from simstudy.design.load import designs_in, known_designs
    from simstudy.report.page import gather, write_report
    from simstudy.report.tables import count_verdicts
    from simstudy.results import read_cells

    if design is None or designs_in(Path(design)):
        # Without a folder also those that lie here: what is shipped and what is one's own.
        known = designs_in(Path(design)) if design else list(dict.fromkeys([*known_designs(), *designs_in(Path())]))
        cli.say(f"page: {gather(known, profile, output, trust or ())}")
        return
    loaded, store = cli.opened(design, profile, output, trust, confirm)
    results = read_cells(store)
    # Written first: it refuses results of another design, whose verdicts must not be shown as those of this one.
    with store.locked():
        path = write_report(results, loaded, store)
    cli.say(count_verdicts(_say_answer(results, loaded, claims)), f"page: {path}")


@cli.app.command()
def replay(
    design: cli.DesignArgument,
    cell: Annotated[int, typer.Option(min=0, help="Number of the cell, as simstudy status shows it.")],
    replicate: Annotated[int, typer.Option(min=0, max=2**56 - 1, help="Number of the replicate, counted from 0.")],
    profile: cli.ProfileOption = "quick",
    output: cli.OutputOption = cli.OUTPUT,
    trust: cli.TrustOption = None,
    confirm: cli.ConfirmOption = None,
) -> None:
    """Compute one replicate again, to the bit, and store its data and estimates."""
    from simstudy.replicates.replay import replay as rebuild
    from simstudy.study import require_trust, sized

    loaded, store = cli.opened(design, profile, output, trust, confirm)
    if cell >= len(loaded.cells):
        raise UserError(f"--cell {cell}: must be a number below {len(loaded.cells)}")
    require_trust([loaded.cells[cell].cell])
    arrays = rebuild(sized(loaded).cells[cell].cell, replicate)
    with store.locked():
        path = store.write_dataset(f"replays/cell-{cell}-replicate-{replicate}.nc", arrays)
    cli.say(*(f"{name}{dict(values.sizes)}: {values.attrs['long_name']}" for name, values in arrays.data_vars.items()))
    if "head_estimate" in arrays:
        cli.say(*str(arrays.head_estimate.to_pandas()).split("\n"))
    cli.say(f"replicate {replicate} of cell {cell}: {arrays.attrs['failure'] or 'defined'}", f"arrays   {path}")
