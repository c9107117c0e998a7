"""A design as it is written, before it is checked: a file, found by path or name, or tables given in Python."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from simstudy.design.document import NAME, Document
from simstudy.design.files import read_text
from simstudy.design.mistakes import DesignError, Problem, hint
from simstudy.errors import UserError

if TYPE_CHECKING:
    from tomlkit.items import Table

LOCAL = Path("designs")
"""Folder of a user's own studies, relative to where the command is given."""
FILE = "design.toml"
"""Design in the folder of a study."""
MAX_BYTES = 1 << 20
"""Largest design file that is read; a design is written by hand."""
MAX_DEPTH = 20
"""Deepest nesting of tables and lists; a design needs half of it."""

_LEVELS = {"grids": 2, "claims": 1, "figures": 1, "profiles": 4}
"""Tables inside of tables: ``[grids.NAME.factors]``, in which the order of entries counts, and so in a profile."""

Source = str | Path | Mapping[str, Any]
"""A design: path of its folder or file, name of a shipped one, or its tables, as a `Study` or as TOML parses them."""


class Written(NamedTuple):
    """A design as it is written, what messages call it, and entries given in Python that TOML cannot state."""

    place: str
    path: Path | None
    text: str
    tables: dict[str, Any]
    problems: list[Problem]

    @property
    def folder(self) -> Path:
        """Folder that the paths in the design are relative to."""
        return Path() if self.path is None else self.path.parent


def read_design(design: Source) -> Written:
    """Read a design as it is written."""
    if isinstance(design, Mapping):
        place = name_of(design)
        text, problems = to_toml(design)
        return Written(place, None, text, parse(place, text), problems)
    if not isinstance(design, (str, Path)):
        kind = type(design).__name__
        raise UserError(f"a design of type {kind}; give the path of a file, the name of a shipped design, or a Study")
    path = find_design(design)
    text = written_text(path)
    return Written(str(path), path, text, parse(str(path), text), [])


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
    """Return what TOML states; a `DesignError` says what is wrong with it, and that it is at this place."""
    try:
        raw = tomllib.loads(text)
        _refuse_extremes(raw)
        return raw
    except (ValueError, RecursionError) as error:
        # Python refuses an integer of thousands of digits in words about its own settings.
        reason = "an integer beyond 64 bits" if "set_int_max_str_digits" in str(error) else error
        raise DesignError(place, [Problem("", "", f"not valid TOML: {reason}")]) from None


def _refuse_extremes(node: Any, depth: int = 0) -> None:
    if depth > MAX_DEPTH:
        raise ValueError(f"nested more than {MAX_DEPTH} deep")
    if isinstance(node, int) and not -(2**63) <= node < 2**63:
        raise ValueError("an integer beyond 64 bits")
    if isinstance(node, (dict, list)):
        for child in node.values() if isinstance(node, dict) else node:
            _refuse_extremes(child, depth + 1)


def to_toml(tables: Mapping[str, Any]) -> tuple[str, list[Problem]]:
    """Return tables as TOML, tuples, ranges and NumPy among them; with every entry left out as TOML cannot state it."""
    # Imported here and below: it takes a tenth of a second, and reading a file does without.
    import tomlkit

    problems: list[Problem] = []
    content = _plain(tables, "", problems)
    document = tomlkit.document()
    usual = [name for name in (*Document.model_fields, "profiles") if name in content]
    for name in dict.fromkeys([*usual, *content]):
        entries = content[name]
        document.append(name, _table(entries, _LEVELS.get(name, 0)) if isinstance(entries, dict) else entries)
    return tomlkit.dumps(document), problems


def _table(entries: dict[str, Any], levels: int) -> Table:
    import tomlkit

    table = tomlkit.table()
    for name in sorted(entries, key=lambda name: levels > 0 and isinstance(entries[name], dict)):
        value: Any = entries[name]
        if isinstance(value, dict):
            value = _table(value, levels - 1) if levels else tomlkit.inline_table() | value
        table.append(name, value)
    return table


def _plain(value: Any, path: str, problems: list[Problem], depth: int = 0) -> Any:
    """Return a value in the types of TOML, without what has none: that is noted."""
    if depth > MAX_DEPTH:
        problems.append(Problem(path, None, f"nested more than {MAX_DEPTH} deep"))
    elif isinstance(value, Mapping):
        table: dict[str, Any] = {}
        for key, child in value.items():
            if type(key) is not str or not _is_text(key):
                problems.append(Problem(path, key, "no name of an entry; give text"))
            elif (plain := _plain(child, f"{path}.{key}".lstrip("."), problems, depth + 1)) is not None:
                table[key] = plain
        return table
    elif isinstance(value, range):
        return {"range": [value.start, value.stop, *([] if value.step == 1 else [value.step])]}
    elif isinstance(value, (list, tuple)):
        items = (_plain(child, f"{path}[{i}]", problems, depth + 1) for i, child in enumerate(value))
        return [item for item in items if item is not None]
    elif isinstance(value, (np.ndarray, np.generic)):
        return _plain(value.tolist(), path, problems, depth + 1)
    elif type(value) in (int, float, bool) or (type(value) is str and _is_text(value)):
        return value
    else:
        kind = type(value).__name__
        problems.append(Problem(path, None, f"of type {kind}, which TOML does not have; give text, numbers or tables"))
    return None


def _is_text(text: str) -> bool:
    """Whether a text is Unicode: half of a pair is not."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


# ---------------------------------------------------------------- designs by name


def shipped_folder() -> Path:
    """Return the folder of the shipped designs: inside of an installed package, beside it in a checkout."""
    package = Path(__file__).parents[1]
    installed = package / "designs"
    return installed if installed.is_dir() else package.parent / "designs"


def is_shipped(design: Path) -> bool:
    """Whether a design file is one of those that are shipped."""
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
    if os.path.isfile(Path(design) / FILE):
        return Path(design) / FILE
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
