"""Designs by name: those that are shipped, wherever the package is, and those in the folder ``designs`` here."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

from simstudy.design.document import NAME
from simstudy.design.mistakes import hint
from simstudy.errors import UserError

LOCAL = Path("designs")
"""Folder of a user's own designs, relative to where the command is given."""


def shipped_folder() -> Path:
    """Return the folder of the shipped designs: inside of an installed package, beside it in a checkout."""
    package = Path(__file__).parents[1]
    installed = package / "designs"
    return installed if installed.is_dir() else package.parent / "designs"


def is_shipped(design: Path) -> bool:
    """Whether a design file is one of those that are shipped."""
    return design.resolve().parent == shipped_folder().resolve()


def designs_in(folder: Path) -> list[Path]:
    """Return the design files of a folder: TOML files that state a study."""
    return sorted(path for path in folder.glob("*.toml") if _states_study(path))


def _states_study(path: Path) -> bool:
    try:
        return "study" in tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False


def known_designs() -> list[Path]:
    """Return all design files that have a name, shipped ones first, each file once."""
    folders = {folder.resolve(): folder for folder in (LOCAL, shipped_folder())}
    return sorted(path for folder in folders.values() for path in folder.glob("*.toml"))


def find_design(design: str | Path) -> Path:
    """Return the path of a design given by path or by name."""
    if os.path.isfile(design) or not re.fullmatch(NAME, str(design)):
        return Path(design)
    known = known_designs()
    found = [path for path in known if path.stem == str(design)]
    if len(found) > 1:
        raise UserError(f"{design}: the name of {' and of '.join(map(str, found))}; give the path of one")
    if not found:
        names = list(dict.fromkeys(path.stem for path in known))
        raise UserError(f"{design}: neither a file nor the name of a design; {hint(str(design), names)}")
    return found[0]
