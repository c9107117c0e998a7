"""The command line: exceptions that a user can mend become one message and exit code 2.

Imports typer, rich and everything of ours that a command needs, inside the command: ``--help`` stays fast.
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
    from simstudy.design import load_design, profiles_of

    paths = sorted(folder.glob("*.toml"))
    if not paths:
        raise UserError(f"{folder}: holds no design files (*.toml); give another folder")
    table = Table("design", "title", "profile: cells")
    for path in paths:
        sizes = [f"{profile}: {len(load_design(path, profile).cells)}" for profile in profiles_of(path)]
        table.add_row(path.stem, escape(load_design(path, profiles_of(path)[0]).study.title), ", ".join(sizes))
    console.print(table)


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
    from simstudy.progress import ProgressDisplay
    from simstudy.report import write_report
    from simstudy.study import run as run_study
    from simstudy.study import store_of
    from simstudy.tables import verdict_table

    loaded = load_design(design_path(design), profile)
    with ProgressDisplay(console) as display:
        results = run_study(loaded, output=output, executor=executor, workers=workers, observer=display)
    store = store_of(loaded, output)
    report = write_report(results, loaded, store)
    console.print(verdict_table(results))
    total, missed = int(results.n_replicates.sum()), int((~results.precision_reached).sum())
    console.print(f"{results.sizes['cell']} cells, {total:,} replicates, {int(results.n_failed.sum())} failed")
    console.print(f"results  {store.folder / 'results.nc'}\nreport   {report}", highlight=False, soft_wrap=True)
    if missed:
        errors.print(f"{missed} cells stopped at their ceiling without the precision wanted; see the report")
        raise typer.Exit(EXIT_PRECISION_MISSED)


@app.command()
def status(design: DesignArgument, profile: ProfileOption = "quick", output: OutputOption = Path("outputs")) -> None:
    """Show how far each cell of a study is, also while another process runs it."""
    from simstudy.design import load_design
    from simstudy.ledger import Ledger
    from simstudy.study import store_of

    loaded = load_design(design_path(design), profile)
    ledger = Ledger(loaded, store_of(loaded, output))
    ledger.first_tasks()
    table = Table("grid", "cell", "replicates", "failed", "MCSE / wanted", "state")
    for account in ledger.accounts:
        coordinates = account.planned.cell.coordinates
        names = loaded.factors[account.planned.grid]
        place = ", ".join(f"{name} = {coordinates[name]}" for name in names)
        stored = (account.target - len(account.missing)) * account.batch_size
        state = "running" if not account.finished else "done" if account.reached else "ceiling reached"
        ratio = "" if account.shortfall is None else f"{account.shortfall:.2f}"
        table.add_row(account.planned.grid, escape(place), f"{stored:,}", str(account.n_failed), ratio, state)
    console.print(table)
    finished = sum(account.finished for account in ledger.accounts)
    console.print(f"{finished} of {len(ledger.accounts)} cells finished")


@app.command()
def report(design: DesignArgument, profile: ProfileOption = "quick", output: OutputOption = Path("outputs")) -> None:
    """Write the report again from the stored results, without computing any replicate."""
    from simstudy.design import load_design
    from simstudy.report import write_report
    from simstudy.store import read_results
    from simstudy.study import store_of
    from simstudy.tables import verdict_table

    loaded = load_design(design_path(design), profile)
    store = store_of(loaded, output)
    results = read_results(store.folder / "results.nc")
    console.print(verdict_table(results))
    console.print(f"report   {write_report(results, loaded, store)}", highlight=False, soft_wrap=True)


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
