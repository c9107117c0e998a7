"""Designs: write one with ``init``, ``list`` and ``check`` those that are written."""

from __future__ import annotations

import importlib.resources
import re
from pathlib import Path
from typing import Annotated

import typer

from simstudy.commands import cli
from simstudy.errors import UserError


@cli.app.command()
def describe(
    name: Annotated[str, typer.Argument(help="Table (heads), setting (noise), kind (ridge), or measure (mse).")] = "",
) -> None:
    """Print every table, entry and kind of a design with defaults, and every measure; or those of a name."""
    from simstudy.reference import described
    from simstudy.report.terminal import say

    for line in described(name):
        say(line)


@cli.app.command("list")
def list_designs(
    folder: Annotated[Path | None, typer.Argument(help="List the designs in this folder instead.")] = None,
) -> None:
    """List shipped designs and those in ./designs."""
    from rich.table import Table

    from simstudy.design.written import FILE, designs_in, known_designs, read_design
    from simstudy.report.terminal import show_table

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
    show_table(table)


@cli.app.command()
def check(
    designs: Annotated[list[str], typer.Argument(help="Design files, by path or name.")],
    trust: cli.TrustOption = None,
) -> None:
    """Check designs under every profile and list all mistakes, each with its place and remedy."""
    from simstudy.design.load import check as check_design
    from simstudy.design.mistakes import DesignError
    from simstudy.report.terminal import counted, say

    mistakes = []
    for design in designs:
        try:
            profiles = check_design(design, trust or ())
        except DesignError as error:
            mistakes += [f"{error.place}: {problem}" for problem in error.problems]
        else:
            for each in profiles.values():
                size = f"{counted(len(each.cells), 'cell')}, {counted(len(each.claims), 'claim')}"
                say(f"{each.path}: {each.profile}: {size}")
    if mistakes:
        raise UserError(*mistakes)


@cli.app.command()
def init(
    name: Annotated[str, typer.Argument(help="Name of the study and of its folder.")] = "my-study",
    functions: Annotated[bool, typer.Option("--functions", help="A study of your own functions.")] = False,
) -> None:
    """Write the folder NAME of a study that runs in seconds, with comments, as a start for your own."""
    from simstudy.design.document import NAME
    from simstudy.report.terminal import say

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
    say(f"study    {folder}", f"now      simstudy check {folder}{trust}", f"         simstudy run {folder}{trust}")
