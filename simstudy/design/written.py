"""A design as it is written, before it is checked: a file, found by path or name, or tables given in Python."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from simstudy.design.document import NAME
from simstudy.design.files import read_text
from simstudy.design.mistakes import DesignError, Problem, hint
from simstudy.errors import UserError

LOCAL = Path("designs")
"""Folder of a user's own studies, relative to where the command is given."""
FILE = "design.toml"
"""Design in the folder of a study."""
MAX_BYTES = 1 << 20
"""Largest design file that is read; a design is written by hand."""

Source = str | Path | Mapping[str, Any]
"""A design: path of its folder or file, name of a shipped one, or its tables, as a `Study` or as TOML parses them."""


class Written(NamedTuple):
    """A design as it is written, and what messages call it."""

    place: str
    path: Path | None
    text: str
    tables: dict[str, Any]

    @property
    def folder(self) -> Path:
        """Folder that the paths in the design are relative to."""
        return Path() if self.path is None else self.path.parent


def read_design(design: Source) -> Written:
    """Read a design as it is written."""
    if isinstance(design, Mapping):
        place = name_of(design)
        try:
            text = json.dumps(design, default=_plain, ensure_ascii=False, indent=1)
            text.encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise DesignError(place, [Problem("", None, str(error))]) from None
        return Written(place, None, text, parse(place, text))
    if not isinstance(design, (str, Path)):
        kind = type(design).__name__
        raise UserError(f"a design of type {kind}; give the path of a file, the name of a shipped design, or a Study")
    path = find_design(design)
    text = written_text(path)
    return Written(str(path), path, text, parse(str(path), text))


def name_of(tables: Mapping[str, Any]) -> str:
    """Return the name of the study that tables state; "design" if they state none."""
    study = tables.get("study")
    name = study.get("name") if isinstance(study, Mapping) else None
    return name if isinstance(name, str) else "design"


def written_text(path: Path) -> str:
    """Return the text of a file that a person has written; a `DesignError` says why there is none."""
    try:
        return read_text(path, MAX_BYTES)
    except UserError as error:
        raise DesignError(str(path), [Problem("", "", str(error))]) from None


def parse(place: str, text: str) -> dict[str, Any]:
    """Return the tables of TOML, or of JSON, as studies in Python are stored; `DesignError` if it is neither."""
    try:
        return json.loads(text) if text.startswith("{") else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise DesignError(place, [Problem("", "", f"not valid TOML: {error}")]) from None


def _plain(value: Any) -> Any:
    """Return a value that JSON has no type for as TOML states it."""
    if isinstance(value, range):
        return {"range": [value.start, value.stop, *([] if value.step == 1 else [value.step])]}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{value!r} is of type {type(value).__name__}; give text, numbers, lists or tables")


def shipped_folder() -> Path:
    """Return the folder of the shipped designs: inside of an installed package, beside it in a checkout."""
    package = Path(__file__).parents[1]
    installed = package / "designs"
    return installed if installed.is_dir() else package.parent / "designs"


def is_shipped(design: Path) -> bool:
    """Return true if a design file is one of those that are shipped."""
    return design.resolve().parents[1] == shipped_folder().resolve()


def designs_in(folder: Path) -> list[Path]:
    """Return the design files of the study folders in a folder."""
    return sorted(folder.glob(f"*/{FILE}"))


def known_designs() -> list[Path]:
    """Return all design files that have a name, shipped ones first, each file once."""
    folders = {folder.resolve(): folder for folder in (LOCAL, shipped_folder())}
    return sorted(path for folder in folders.values() for path in designs_in(folder))


def find_design(design: str | Path) -> Path:
    """Return the path of a design given by path or by name."""
    for file in (FILE, "design.json"):  # the latter of a study in Python
        if os.path.isfile(Path(design) / file):
            return Path(design) / file
    if os.path.isfile(design) or not re.fullmatch(NAME, str(design)):
        return Path(design)
    known = known_designs()
    found = [path for path in known if path.parent.name == str(design)]
    if len(found) > 1:
        raise UserError(f"{design}: the name of {' and of '.join(map(str, found))}; give the path of one")
    if not found:
        names = list(dict.fromkeys(path.parent.name for path in known))
        raise UserError(f"{design}: neither a file nor the name of a design; {hint(str(design), names)}")
    return found[0]
