"""Help with writing a design: ``init`` and ``describe``."""

from __future__ import annotations

import importlib.resources
import re
from pathlib import Path
from typing import Annotated

import typer

from simstudy.commands.app import app
from simstudy.errors import UserError


@app.command()
def init(name: Annotated[str, typer.Argument(help="Name of the study.")] = "my-study") -> None:
    """Write a commented design, NAME.toml, that runs in seconds, to be turned into one's own."""
    from simstudy.design.document import NAME
    from simstudy.report.terminal import say

    if not re.fullmatch(NAME, name):
        raise UserError(f"{name}: no name of a study; give lower-case letters and digits, joined by single hyphens")
    template = importlib.resources.files("simstudy.commands").joinpath("template.toml").read_text(encoding="utf-8")
    path = Path(f"{name}.toml")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(template.replace("my-study", name))
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}); give another name or go elsewhere") from None
    say(f"design   {path}", f"now      simstudy check {path}", f"         simstudy run {path}")


def _described(incomplete: str) -> list[str]:
    """Complete the name of what a design may state."""
    from simstudy.design.schema import described

    return [name for name in described() if name.startswith(incomplete)]


@app.command()
def describe(
    setting: Annotated[
        str | None,
        typer.Argument(
            help="Table, setting or alternative: heads, regression, ridge, larger_than.", autocompletion=_described
        ),
    ] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of designs, for editors.")] = False,
) -> None:
    """Say what a design may state: all tables, or one table, setting or alternative."""
    from rich.table import Table

    from simstudy.design.schema import describe as describe_setting
    from simstudy.design.schema import json_schema
    from simstudy.report.terminal import entry, say_json, show_table

    if schema:
        say_json(json_schema())
        return
    table = Table("entry", "what to give", "default", show_lines=False)
    for title, meaning, entries in describe_setting(setting):
        table.add_section()
        table.add_row(entry((title, "bold")), meaning)
        for name, what, default in entries:
            table.add_row(f"  {name}", what, default)
    show_table(table)
