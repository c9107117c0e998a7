"""The command line: exceptions that a user can mend become one message and exit code 2.

Imports typer, rich, and design, ledger, problems, progress, report, results, search, store, study and tables only.
What a command needs is imported inside the command: ``--help`` stays fast.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from simstudy.problems import UserError

EXIT_USER_ERROR = 2
EXIT_PRECISION_MISSED = 3
EXIT_INTERRUPTED = 130

DESIGNS = Path("designs")

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Monte Carlo studies of multi-head attention as an ensemble of Nadaraya-Watson estimators.\n\n"
    "A study is one design file (TOML). Typical use: [bold]simstudy list[/], [bold]simstudy check[/] a design, "
    "[bold]simstudy run[/] it, and open outputs/STUDY/PROFILE/report.html.",
)
console = Console()
errors = Console(stderr=True)

DesignArgument = Annotated[str, typer.Argument(help="Path of a design file, or the name of one in designs/.")]
ProfileOption = Annotated[str, typer.Option(help="Profile of the design: how much to run and how precisely.")]
OutputOption = Annotated[Path, typer.Option(help="Folder of all studies.")]


def design_path(name: str) -> Path:
    """Return the path of a design given by path or by name."""
    path = Path(name)
    if path.suffix == ".toml" or path.exists():
        return path
    return DESIGNS / f"{name}.toml"


@app.command("list")
def list_designs(folder: Annotated[Path, typer.Argument(help="Folder of design files.")] = DESIGNS) -> None:
    """List the design files of a folder, with their profiles and sizes."""
    paths = sorted(folder.glob("*.toml"))
    if not paths:
        raise UserError(f"{folder}: holds no design files (*.toml); give another folder")
    table = Table("design", "title", "profile: cells")
    for path in paths:
        table.add_row(path.stem, *_listed(path))
    console.print(table)


def _listed(path: Path) -> tuple[str, str]:
    """Title and sizes of a design for the list; of a faulty one its first mistake, so that the others are listed."""
    from simstudy.design import load_design, profiles_of
    from simstudy.problems import DesignError

    try:
        loaded = {profile: load_design(path, profile) for profile in profiles_of(path) or ("quick",)}
    except DesignError as error:
        more = f" (and {len(error.problems) - 1} more)" if len(error.problems) > 1 else ""
        return f"[red]{escape(str(error.problems[0]))}{more}[/]", "see simstudy check"
    sizes = (f"{profile}: {len(design.cells)}" for profile, design in loaded.items())
    return escape(next(iter(loaded.values())).study.title), ", ".join(sizes)


@app.command()
def check(designs: Annotated[list[str], typer.Argument(help="Design files, by path or name.")]) -> None:
    """Check design files under every profile, and report every mistake with its place and remedy."""
    from simstudy.design import load_design, profiles_of
    from simstudy.problems import DesignError

    mistakes: dict[str, None] = {}
    for path in map(design_path, designs):
        try:
            for profile in profiles_of(path) or ("quick",):
                design = load_design(path, profile)
                console.print(
                    f"{path}: {profile}: {len(design.cells)} cells, {len(design.claims)} claims", highlight=False
                )
        except DesignError as error:
            mistakes |= dict.fromkeys(str(error).splitlines())
    if mistakes:
        raise UserError("\n".join(mistakes))


@app.command()
def run(
    design: DesignArgument,
    profile: ProfileOption = "quick",
    executor: Annotated[
        str, typer.Option(help="serial, threads, processes, or the address of a Dask scheduler (tcp://host:8786).")
    ] = "threads",
    workers: Annotated[int | None, typer.Option(min=1, help="Threads or processes; all cores by default.")] = None,
    output: OutputOption = Path("outputs"),
) -> None:
    """Run a study, or continue one: batches that are already stored are not computed again."""
    from simstudy.design import load_design
    from simstudy.progress import ProgressDisplay, missed_lines
    from simstudy.report import write_report
    from simstudy.study import run as run_study
    from simstudy.study import store_of
    from simstudy.tables import verdict_table

    loaded = load_design(design_path(design), profile)
    with ProgressDisplay(console) as display:
        results = run_study(loaded, output=output, executor=executor, workers=workers, observer=display)
    store = store_of(loaded, output)
    with store.locked():
        report = write_report(results, loaded, store)
    console.print(verdict_table(results))
    total = int(results.n_replicates.sum())
    console.print(f"{results.sizes['cell']} cells, {total:,} replicates, {int(results.n_failed.sum())} failed")
    console.print(f"results  {store.folder / 'results.nc'}\nreport   {report}", highlight=False, soft_wrap=True)
    ledger = display.ledger
    damaged = sum(len(account.damaged) for account in ledger.accounts)
    if damaged:
        errors.print(f"{damaged} stored batches were damaged and have been computed again; check the disk")
    missed = [account for account in ledger.accounts if not account.reached]
    if missed:
        errors.print(missed_lines(missed, loaded), highlight=False, soft_wrap=True, markup=False)
        raise typer.Exit(EXIT_PRECISION_MISSED)


@app.command()
def status(design: DesignArgument, profile: ProfileOption = "quick", output: OutputOption = Path("outputs")) -> None:
    """Show how far each cell of a study is, also while another process runs it.

    Nothing is written or locked.  Errors are those of the batches stored so far; numbers of cells serve
    [bold]simstudy replay --cell[/].
    """
    from simstudy.design import load_design
    from simstudy.ledger import Ledger
    from simstudy.progress import status_line, status_table
    from simstudy.study import store_of

    loaded = load_design(design_path(design), profile)
    store = store_of(loaded, output)
    ledger = Ledger(loaded, store)
    ledger.first_tasks()
    console.print(status_table(ledger, loaded))
    console.print(status_line(ledger, store), highlight=False, soft_wrap=True)


@app.command()
def report(design: DesignArgument, profile: ProfileOption = "quick", output: OutputOption = Path("outputs")) -> None:
    """Write the report again from the stored results, without computing any replicate."""
    from simstudy.design import load_design
    from simstudy.report import write_report
    from simstudy.results import open_results
    from simstudy.study import store_of
    from simstudy.tables import verdict_table

    loaded = load_design(design_path(design), profile)
    store = store_of(loaded, output)
    results = open_results(store.folder)
    # Written first: it refuses results of another design, whose verdicts must not be shown as those of this one.
    with store.locked():
        path = write_report(results, loaded, store)
    console.print(verdict_table(results))
    console.print(f"report   {path}", highlight=False, soft_wrap=True)


@app.command()
def search(
    design: DesignArgument,
    cell: Annotated[int, typer.Option(min=0, help="Cell that states data, estimator, queries, and numbers of heads.")],
    index: Annotated[str, typer.Option(help="Diversity index that follows from the heads.")],
    gap: Annotated[float, typer.Option(help="Least difference of the index between the two ensembles.")],
    output: Annotated[Path, typer.Option(help="Beginning of the two file names: PATH-less.npy and PATH-more.npy.")],
    profile: ProfileOption = "quick",
    seed: Annotated[int, typer.Option(min=0, help="Of the random starts.")] = 0,
    starts: Annotated[int, typer.Option(min=1, help="Random starts.")] = 8,
) -> None:
    """Search for two ensembles of which the more diverse has the larger error at leading order.

    The worst pair is written as two head files, for arrangement = "file" in a design that confirms it by Monte Carlo.
    [bold]simstudy status[/] shows the numbers of cells.
    """
    from simstudy.design import load_design
    from simstudy.search import worst_pair
    from simstudy.store import Store

    cells = load_design(design_path(design), profile).cells
    if cell >= len(cells):
        raise UserError(f"--cell {cell}: the design has cells 0 to {len(cells) - 1}; see simstudy status")
    found = worst_pair(cells[cell].cell, index, gap, seed=seed, n_starts=starts)
    store = Store(output.parent)
    for name, heads in zip(("less", "more"), found.heads, strict=True):
        store.write_array(f"{output.name}-{name}.npy", heads)
    less, more = found.diversity
    console.print(f"{index} {less:.6g} → {more:.6g}, error × {found.ratio:.6g}", highlight=False)
    console.print(f"{output}-less.npy\n{output}-more.npy", highlight=False, soft_wrap=True)


class Interrupted(BaseException):
    """Ctrl-C, or the SIGTERM by which a batch system ends a job."""


def _interrupt(*_: object) -> None:
    raise Interrupted


def main() -> None:
    """Run the command line and turn mistakes of the user into one message and exit code 2."""
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        app()
    except UserError as error:
        errors.print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(EXIT_USER_ERROR)
    except Interrupted:
        errors.print("interrupted; finished batches are stored: run the same command again to continue")
        sys.exit(EXIT_INTERRUPTED)
