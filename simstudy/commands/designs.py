"""What design files say: ``list`` and ``check``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from simstudy.commands.app import DESIGNS, app, design_path
from simstudy.errors import UserError
from simstudy.report.terminal import entry, say, show_table, warn

if TYPE_CHECKING:
    from rich.text import Text


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
    notes: dict[str, None] = {}
    for path in map(design_path, designs):
        try:
            for profile in profiles_of(path) or ("quick",):
                design = load_design(path, profile)
                say(f"{path}: {profile}: {len(design.cells)} cells, {len(design.claims)} claims")
                notes |= dict.fromkeys(f"{path}: {note}" for note in design.notes)
        except DesignError as error:
            mistakes |= dict.fromkeys(error.args)
    if notes:
        warn(*notes)
    if mistakes:
        raise UserError(*mistakes)
