"""The commands, each a thin layer over what `simstudy` offers in Python.

What a command needs is imported inside the command: ``--help`` stays fast.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from simstudy.design.mistakes import require_plain
from simstudy.errors import UserError
from simstudy.report.defects import log_beside
from simstudy.report.terminal import entry, say, show_table, track, warn

if TYPE_CHECKING:
    from rich.text import Text

    from simstudy.design.document import Design
    from simstudy.execution.jobs import Jobs
    from simstudy.execution.store import Store

EXIT_PRECISION_MISSED = 3
EXIT_DIFFERENT = 4
EXIT_UNLIKE_DECLARED = 5
DESIGNS = Path("designs")

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Monte Carlo studies of multi-head attention as an ensemble of Nadaraya-Watson estimators.\n\n"
    "A study is one design file (TOML). Typical use: [bold]simstudy list[/], [bold]simstudy check[/] a design, "
    "[bold]simstudy run[/] it, and open outputs/STUDY/PROFILE/report.html.",
    epilog="Exit codes: 0 done, 2 a mistake that the message says how to mend, 3 done but a ceiling on replicates came "
    "before the precision, 4 verify found other numbers, 5 done but some outcome is another than the design declares, "
    "70 a defect of simstudy, 130 interrupted.",
)


def _plain_path(path: Path) -> Path:
    require_plain("output", str(path))
    return path


DesignArgument = Annotated[str, typer.Argument(help="Path of a design file, or the name of one in designs/.")]
ProfileOption = Annotated[str, typer.Option(help="Profile of the design: how much to run and how precisely.")]
OutputOption = Annotated[Path, typer.Option(help="Folder of all studies.", callback=_plain_path)]
DashboardOption = Annotated[int | None, typer.Option(min=1, max=65535, help="Port of Dask's dashboard, for this host.")]
_TRUST = "Accept tcp:// to a scheduler on another host: anybody on that network can run code as you."


def design_path(name: str) -> Path:
    """Return the path of a design given by path or by name."""
    path = Path(name)
    if path.suffix == ".toml" or os.path.exists(name):
        return path
    return DESIGNS / f"{name}.toml"


def _store(design: Design, output: Path) -> Store:
    """Return the store of a design, beside which the log of a defect is to lie."""
    from simstudy.execution.store import store_of

    store = store_of(design, output)
    log_beside(store.folder)
    return store


@app.command("list")
def list_designs(folder: Annotated[Path, typer.Argument(help="Folder of design files.")] = DESIGNS) -> None:
    """List the design files of a folder, with their profiles and sizes."""
    paths = sorted(folder.glob("*.toml"))
    if not paths:
        raise UserError(f"{folder}: holds no design files (*.toml); give another folder")
    table = Table("design", "title", "profile: cells")
    for path in paths:
        table.add_row(path.stem, *_listed(path))
    show_table(table)


def _listed(path: Path) -> tuple[str | Text, str]:
    """Title and sizes of a design for the list; of a faulty one its first mistake, so that the others are listed."""
    from simstudy.design.load import load_design, profiles_of
    from simstudy.design.mistakes import DesignError

    try:
        loaded = {profile: load_design(path, profile) for profile in profiles_of(path) or ("quick",)}
    except DesignError as error:
        more = f" (and {len(error.problems) - 1} more)" if len(error.problems) > 1 else ""
        return entry((f"{error.problems[0]}{more}", "red")), "see simstudy check"
    sizes = (f"{profile}: {len(design.cells)}" for profile, design in loaded.items())
    return next(iter(loaded.values())).study.title, ", ".join(sizes)


@app.command()
def check(designs: Annotated[list[str], typer.Argument(help="Design files, by path or name.")]) -> None:
    """Check design files under every profile, and report every mistake with its place and remedy."""
    from simstudy.design.load import load_design, profiles_of
    from simstudy.design.mistakes import DesignError

    mistakes: dict[str, None] = {}
    for path in map(design_path, designs):
        try:
            for profile in profiles_of(path) or ("quick",):
                design = load_design(path, profile)
                say(f"{path}: {profile}: {len(design.cells)} cells, {len(design.claims)} claims")
        except DesignError as error:
            mistakes |= dict.fromkeys(error.args)
    if mistakes:
        raise UserError(*mistakes)


@app.command()
def run(
    design: DesignArgument,
    profile: ProfileOption = "quick",
    executor: Annotated[str, typer.Option(help="serial, threads, processes, cuda, or tls://host:8786.")] = "threads",
    workers: Annotated[int | None, typer.Option(min=1, help="Threads, processes or GPUs; all by default.")] = None,
    output: OutputOption = Path("outputs"),
    share: Annotated[str | None, typer.Option(help='Only share "3/8" of the cells, in a folder to be merged.')] = None,
    dashboard: DashboardOption = None,
    trust_network: Annotated[bool, typer.Option("--trust-network", help=_TRUST)] = False,
) -> None:
    """Run a study, or continue one: batches that are already stored are not computed again."""
    from simstudy.design.load import load_design
    from simstudy.execution.clients import Network

    loaded = load_design(design_path(design), profile)
    how = {"executor": executor, "workers": workers, "network": Network(dashboard, trust_network)}
    if share is None:
        _run(loaded, output, **how)
    else:
        _run_share(loaded, share, output, **how)


def _run(loaded: Design, output: Path, **how: Any) -> None:
    """Run a study as `simstudy.run` is told to, and show its verdicts."""
    from simstudy.report.page import write_report
    from simstudy.report.progress import ProgressDisplay, missed_lines
    from simstudy.report.tables import count_verdicts, verdict_lines, verdict_table
    from simstudy.study import run as run_study

    store = _store(loaded, output)
    with ProgressDisplay() as display:
        results = run_study(loaded, output=output, observer=display, **how)
    with store.locked():
        report = write_report(results, loaded, store)
    show_table(verdict_table(results))
    lines, total = verdict_lines(results), int(results.n_replicates.sum())
    say(
        count_verdicts(lines),
        f"{results.sizes['cell']} cells, {total:,} replicates, {int(results.n_failed.sum())} failed",
        f"results  {store.folder / 'results.nc'}",
        f"report   {report}",
    )
    if damaged := sum(len(account.damaged) for account in display.ledger.accounts):
        warn(f"{damaged} stored batches were damaged and have been computed again; check the disk")
    if missed := [account for account in display.ledger.accounts if not account.reached]:
        warn(*missed_lines(missed, loaded))
    if not all(line.as_declared for line in lines):
        raise typer.Exit(EXIT_UNLIKE_DECLARED)
    if missed:
        raise typer.Exit(EXIT_PRECISION_MISSED)


def _run_share(loaded: Design, text: str, output: Path, **how: Any) -> None:
    """Run a share of a study, and say where it is."""
    from simstudy.execution.shares import Share
    from simstudy.report.progress import ProgressDisplay
    from simstudy.study import run_share

    _store(loaded, output)
    with ProgressDisplay() as display:
        stored = run_share(loaded, Share.parse(text), output=output, observer=display, **how)
    cells = len(display.ledger.accounts)
    say(f"share {text}: {cells} cells done", f"stored   {stored.folder}")


@app.command()
def submit(
    design: DesignArgument,
    profile: ProfileOption = "quick",
    output: OutputOption = Path("outputs"),
    system: Annotated[str, typer.Option(help="Batch system: slurm, pbs, sge or lsf.")] = "slurm",
    array: Annotated[bool, typer.Option("--array", help="A Slurm job array, which needs no network.")] = False,
    jobs: Annotated[int, typer.Option(help="Jobs to keep running, or tasks of the array.")] = 2,
    threads: Annotated[int, typer.Option(help="Cores of a job.")] = 1,
    memory: Annotated[str, typer.Option(help="Memory of a job; simstudy plan predicts it.")] = "2GB",
    walltime: Annotated[str, typer.Option(help="Longest time of a job, hours:minutes:seconds.")] = "01:00:00",
    queue: Annotated[str | None, typer.Option(help="Queue, or partition.")] = None,
    interface: Annotated[str | None, typer.Option(help="Network between nodes, such as ib0.")] = None,
    scratch: Annotated[str, typer.Option(help="Node-local folder; the shell of a job expands it.")] = "${TMPDIR:-/tmp}",
    directive: Annotated[list[str], typer.Option(help='More for the batch system: "--account=me".')] = [],  # noqa: B006
    setup: Annotated[list[str], typer.Option(help='Shell line of a job, such as "module load x".')] = [],  # noqa: B006
    dashboard: DashboardOption = None,
    show: Annotated[bool, typer.Option("--show", help="Print the job scripts, and submit nothing.")] = False,
) -> None:
    """Run a study on a cluster: by jobs that this process keeps running until it is done, or by a job array.

    In the first form jobs that are lost are replaced, and Ctrl-C ends all; in the second, a last job merges the
    shares and computes what lost tasks did not. In both, the same command continues what was interrupted.
    """
    from simstudy.design.load import load_design
    from simstudy.execution.clients import Network, job_script
    from simstudy.execution.jobs import Jobs
    from simstudy.execution.store import require_writable

    path = design_path(design)
    require_plain("design", str(path))
    loaded = load_design(path, profile)
    store = _store(loaded, output)
    require_writable(store.folder)
    asked = Jobs(
        system, jobs, threads, memory, walltime, queue, interface, scratch, tuple(directive), tuple(setup),
        store.folder.absolute() / "logs", store.partial.absolute(),
    )  # fmt: skip
    if array:
        _submit_array(loaded, path, output, asked, show)
    elif show:
        say(*job_script(asked).split("\n"))
    else:
        _run(loaded, output, executor=asked, network=Network(dashboard))


def _submit_array(loaded: Design, path: Path, output: Path, asked: Jobs, show: bool) -> None:
    from simstudy.execution.slurm_array import array_scripts, submit_array

    store = _store(loaded, output)
    scripts = array_scripts(loaded, path, store, output, asked)
    if show:
        say(*"\n".join(scripts).split("\n"))
        return
    asked.require_command()
    tasks, merged = submit_array(scripts, store)
    say(f"array    {tasks}", f"merge    {merged}, after it", f"logs     {asked.logs}")


@app.command()
def status(design: DesignArgument, profile: ProfileOption = "quick", output: OutputOption = Path("outputs")) -> None:
    """Show how far each cell of a study is, also while another process runs it.

    Nothing is written or locked.  Errors are those of the batches stored so far; numbers of cells serve
    [bold]simstudy replay --cell[/].
    """
    from simstudy.design.load import load_design
    from simstudy.execution.shares import with_shares
    from simstudy.report.progress import status_line, status_table
    from simstudy.study import open_ledger

    loaded = load_design(design_path(design), profile)
    store = with_shares(_store(loaded, output))
    ledger = open_ledger(loaded, store)
    ledger.first_tasks()
    show_table(status_table(ledger, loaded))
    say(status_line(ledger, store))


@app.command()
def report(
    design: Annotated[str | None, typer.Argument(help="Design file, by path or name; all studies without one.")] = None,
    profile: ProfileOption = "quick",
    output: OutputOption = Path("outputs"),
) -> None:
    """Write the report again from the stored results, without computing any replicate; or one page of all studies."""
    from simstudy.design.load import load_design
    from simstudy.report.all_studies import gather
    from simstudy.report.page import write_report
    from simstudy.report.tables import verdict_table
    from simstudy.results import open_results

    if design is None:
        path = gather(sorted(DESIGNS.glob("*.toml")), profile, output)
    else:
        loaded = load_design(design_path(design), profile)
        store = _store(loaded, output)
        results = open_results(store.folder)
        # Written first: it refuses results of another design, whose verdicts must not be shown as those of this one.
        with store.locked():
            path = write_report(results, loaded, store)
        show_table(verdict_table(results))
    say(f"report   {path}")


@app.command()
def plan(
    design: DesignArgument,
    profile: ProfileOption = "quick",
    workers: Annotated[int | None, typer.Option(min=1, help="Also predict the time on so many workers.")] = None,
    output: OutputOption = Path("outputs"),
) -> None:
    """Predict time, memory and disk of a study from a few batches of each cell, which are stored and not wasted."""
    from simstudy.design.load import load_design
    from simstudy.execution.plan import plan as plan_study
    from simstudy.report.progress import plan_lines, plan_table

    loaded = load_design(design_path(design), profile)
    _store(loaded, output)
    found = plan_study(loaded, output=output, track=track)
    show_table(plan_table(found))
    say(*plan_lines(found, workers))


@app.command()
def replay(
    design: DesignArgument,
    cell: Annotated[str, typer.Option(help='Number of a cell in "simstudy status", or "angle=45, bandwidth=0.5".')],
    replicate: Annotated[int, typer.Option(help="Number of the replicate, from 0 on.")],
    profile: ProfileOption = "quick",
    output: OutputOption = Path("outputs"),
) -> None:
    """Rebuild one replicate to the bit, and store all its arrays for inspection."""
    from simstudy.design.load import load_design
    from simstudy.execution.store import require_writable
    from simstudy.replicates.replay import replay as rebuild
    from simstudy.replicates.replay import select

    loaded = load_design(design_path(design), profile)
    store = _store(loaded, output)
    require_writable(store.folder)
    number = select(loaded, cell)
    arrays = rebuild(loaded.cells[number].cell, replicate)
    with store.locked():
        path = store.write_dataset(f"replays/cell-{number}-replicate-{replicate}.nc", arrays)
    say(*(f"{name}{dict(values.sizes)}: {values.attrs['long_name']}" for name, values in arrays.data_vars.items()))
    if "head_estimate" in arrays:
        say(*str(arrays.head_estimate.to_pandas()).split("\n"))
    state = arrays.attrs["failure"] or "defined"
    say(f"replicate {replicate} of cell {number}: {state}", f"arrays   {path}")


@app.command()
def merge(
    sources: Annotated[list[Path], typer.Argument(help="Folders of the study, as outputs/STUDY/PROFILE.")],
    into: Annotated[Path, typer.Option(callback=_plain_path, help="Folder that takes what it lacks.")],
) -> None:
    """Copy the batches that one folder of a study lacks from others; simstudy run then continues from all of them."""
    from simstudy.execution.shares import require_engine
    from simstudy.execution.store import Store, require_writable

    require_writable(into)
    for source in sources:
        require_engine(Store(source))
    target = Store(into)
    with target.locked():
        for source in sources:
            say(f"{source}: {target.adopt(Store(source))}")
    say(f"whether they are what simstudy computes: simstudy verify {into}")


@app.command()
def verify(
    folder: Annotated[Path, typer.Argument(help="Folder of a study, or of a share of one: outputs/STUDY/PROFILE.")],
    share: Annotated[float, typer.Option(help="Share of the batches of each cell; one batch at least.")] = 0.01,
    seed: Annotated[int | None, typer.Option(min=0, help="Of the choice; at random by default.")] = None,
) -> None:
    """Compute a random share of the stored batches again, and compare bit by bit; exit code 4 if any differs."""
    from simstudy.execution.verify import verify as compute_again

    found = compute_again(folder, share, seed, track=track)
    say(*found.lines)
    raise typer.Exit(EXIT_DIFFERENT if found.different else 0)


@app.command()
def search(
    design: DesignArgument,
    cell: Annotated[int, typer.Option(min=0, help="Cell that states data, estimator, queries, and numbers of heads.")],
    index: Annotated[str, typer.Option(help="Diversity index that follows from the heads.")],
    gap: Annotated[float, typer.Option(help="Least difference of the index between the two ensembles.")],
    output: Annotated[
        Path,
        typer.Option(callback=_plain_path, help="Beginning of the two file names: PATH-less.npy and PATH-more.npy."),
    ],
    profile: ProfileOption = "quick",
    seed: Annotated[int, typer.Option(min=0, help="Of the random starts.")] = 0,
    starts: Annotated[int, typer.Option(min=1, help="Random starts.")] = 8,
) -> None:
    """Search for two ensembles of which the more diverse has the larger error at leading order.

    The worst pair is written as two head files, for arrangement = "file" in a design that confirms it by Monte Carlo.
    [bold]simstudy status[/] shows the numbers of cells.
    """
    from simstudy.design.load import load_design
    from simstudy.execution.store import Store
    from simstudy.search import worst_pair

    cells = load_design(design_path(design), profile).cells
    if cell >= len(cells):
        raise UserError(f"--cell {cell}: the design has cells 0 to {len(cells) - 1}; see simstudy status")
    found = worst_pair(cells[cell].cell, index, gap, seed=seed, n_starts=starts)
    store = Store(output.parent)
    for name, heads in zip(("less", "more"), found.heads, strict=True):
        store.write_array(f"{output.name}-{name}.npy", heads)
    less, more = found.diversity
    say(f"{index} {less:.6g} → {more:.6g}, error × {found.ratio:.6g}", f"{output}-less.npy", f"{output}-more.npy")
