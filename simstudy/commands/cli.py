"""The command line and what its commands share: arguments, exit codes, and the store of a design."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import simstudy
from simstudy.errors import require_plain

if TYPE_CHECKING:
    from rich.table import Table

    from simstudy.design.document import Design
    from simstudy.execution.store import Store

EXIT_PRECISION_MISSED = 3
EXIT_NOT_AS_EXPECTED = 5


app = typer.Typer(
    # Help in Rich takes a third of a second to import.
    rich_markup_mode=None,
    context_settings={"max_content_width": 120},
    help="Monte Carlo studies of multi-head attention as an ensemble of Nadaraya-Watson estimators.\n\n"
    "A study is a folder with a design (TOML), which states data, heads and claims. A run judges the claims. To begin: "
    "`simstudy init my-study`, `simstudy check my-study`, `simstudy run my-study`; then open "
    "outputs/my-study/quick/report.html. `simstudy list` shows the designs that are shipped.",
    epilog="Exit codes: 0 done; 2 a mistake (the message says what to do); 3 done, but some cells stopped "
    "before their precision; 5 done, but some verdict is not the expected one; "
    "70 a defect of simstudy; 130 interrupted.",
)


def say(*what: str | Table) -> None:
    """Print lines and tables, by what is imported then: ``--help`` must be fast."""
    from simstudy.report import terminal

    terminal.say(*what)


def say_json(content: Any) -> None:
    """Print plain data as JSON, in which no character steers a terminal."""
    say(*json.dumps(content, indent=2, allow_nan=False).split("\n"))


def _show_version(asked: bool) -> None:
    if asked:
        say(f"simstudy {simstudy.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Take the options that stand before a command; without a command, show the help."""
    if context.invoked_subcommand is None:
        say(*context.get_help().splitlines())
        raise typer.Exit(2)


def plain_path(path: Path) -> Path:
    """Return a path that a terminal can show; another is refused."""
    require_plain("output", str(path))
    return path


DesignArgument = Annotated[str, typer.Argument(help="Path of a study, or the name of a shipped one.")]
ProfileOption = Annotated[str, typer.Option(help="Profile of the design: quick, full, or one of your own.")]
ExecutorOption = Annotated[str, typer.Option(help="serial, threads, processes, cuda, or tls://host:8786 (Dask).")]
WorkersOption = Annotated[int | None, typer.Option(min=1, help="Threads, processes or GPUs; by default all.")]
OutputOption = Annotated[Path, typer.Option(help="Folder of all studies: OUTPUT/STUDY/PROFILE.", callback=plain_path)]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON; the documentation lists its keys.")]
TrustOption = Annotated[
    list[Path] | None,
    typer.Option("--trust", help="Python file that the design names and whose code may run; can be repeated."),
]
ConfirmOption = Annotated[
    str | None,
    typer.Option("--confirm", help="Other random numbers, which follow from design, functions and this text."),
]
ClaimsOption = Annotated[bool, typer.Option("--claims", help="Also show the table of claims.")]
OUTPUT = Path("outputs")


def opened(
    design: str | Path, profile: str, output: Path, trust: list[Path] | None = None, confirm: str | None = None
) -> tuple[Design, Store]:
    """Return a design and its store."""
    from simstudy.design.load import load_design
    from simstudy.execution.store import store_of

    loaded = load_design(design, profile, trust or (), confirm)
    return loaded, store_of(loaded, output)
