"""A design as it is written, before it is checked: a file, or tables given in Python; read as TOML either way."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tomli_w

from simstudy.design.files import read_regular
from simstudy.design.mistakes import DesignError, Problem
from simstudy.design.shipped import find_design
from simstudy.errors import UserError

MAX_BYTES = 1 << 20
"""Largest design file that is read; a design is written by hand."""
MAX_DEPTH = 20
"""Deepest nesting of tables and lists; a design needs half of it."""

Source = str | Path | Mapping[str, Any]
"""A design: path of its file, name of a shipped one, or its tables, as a `Study` or as TOML parses them."""


class Written(NamedTuple):
    """A design as it is written.

    Attributes
    ----------
    place
        What messages call it: the path of its file, or the name of the study.
    path
        Its file, if it is one.
    text, tables
        As TOML, and as TOML parses it.
    """

    place: str
    path: Path | None
    text: str
    tables: dict[str, Any]

    @property
    def folder(self) -> Path:
        """Folder that the paths in the design are relative to."""
        return Path() if self.path is None else self.path.parent


def read_design(design: Source) -> Written:
    """Read a design as it is written.

    Raises
    ------
    DesignError
        If it cannot be read, or is no TOML and cannot become any.
    UserError
        If it is a name that no design has, or two have.
    """
    if isinstance(design, Mapping):
        place = name_of(design)
        text = to_toml(design)
        return Written(place, None, text, _parse(place, text))
    if not isinstance(design, (str, Path)):
        kind = type(design).__name__
        raise UserError(f"a design of type {kind}; give the path of a file, the name of a shipped design, or a Study")
    path = find_design(design)
    text = _read(path)
    return Written(str(path), path, text, _parse(str(path), text))


def name_of(tables: Mapping[str, Any]) -> str:
    """Return the name of the study that tables state; "design" if they state none."""
    study = tables.get("study")
    name = study.get("name") if isinstance(study, Mapping) else None
    return name if isinstance(name, str) else "design"


def _read(path: Path) -> str:
    try:
        return read_regular(path, MAX_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problem = Problem("", f"byte {error.start}", "not UTF-8 text; save it as UTF-8")
        raise DesignError(str(path), [problem]) from None
    except UserError as error:
        raise DesignError(str(path), [Problem("", "", str(error))]) from None


def _parse(place: str, text: str) -> dict[str, Any]:
    try:
        raw = tomllib.loads(text)
        _refuse_extremes(raw)
        return raw
    except (ValueError, RecursionError) as error:
        # Python refuses an integer of thousands of digits in words about its own settings.
        reason = "an integer beyond 64 bits" if "set_int_max_str_digits" in str(error) else error
        raise DesignError(place, [Problem("", "", f"not valid TOML: {reason}")]) from None


def _refuse_extremes(node: Any, depth: int = 0) -> None:
    """Raise ValueError at an integer beyond TOML's 64 bits, or at nesting that no design needs."""
    if depth > MAX_DEPTH:
        raise ValueError(f"nested more than {MAX_DEPTH} deep")
    if isinstance(node, int) and not -(2**63) <= node < 2**63:
        raise ValueError("an integer beyond 64 bits")
    if isinstance(node, (dict, list)):
        for child in node.values() if isinstance(node, dict) else node:
            _refuse_extremes(child, depth + 1)


def to_toml(tables: Mapping[str, Any]) -> str:
    """Return tables as TOML, which parses to the same tables.

    Beside what TOML knows, there may be tuples, ranges, and NumPy's arrays and numbers.

    Raises
    ------
    DesignError
        With every entry that TOML cannot state.
    """
    problems: list[Problem] = []
    content = _plain(tables, "", problems)
    text = "" if problems else tomli_w.dumps(content)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        problems.append(Problem("", error.object[error.start], "not Unicode text; remove it"))
    if problems:
        raise DesignError(name_of(tables), problems)
    return text


def _plain(value: Any, path: str, problems: list[Problem], depth: int = 0) -> Any:
    """Return a value in the types of TOML, and note what has none."""
    if depth > MAX_DEPTH:
        problems.append(Problem(path, None, f"nested more than {MAX_DEPTH} deep"))
    elif isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                problems.append(Problem(path, key, "not a name; give text"))
        items = ((key, child) for key, child in value.items() if isinstance(key, str))
        return {key: _plain(child, f"{path}.{key}".lstrip("."), problems, depth + 1) for key, child in items}
    elif isinstance(value, range):
        return {"range": [value.start, value.stop, value.step]}
    elif isinstance(value, (list, tuple)):
        return [_plain(child, f"{path}[{i}]", problems, depth + 1) for i, child in enumerate(value)]
    elif isinstance(value, (np.ndarray, np.generic)):
        return _plain(value.tolist(), path, problems, depth + 1)
    elif type(value) in (str, int, float, bool):
        return value
    else:
        kind = type(value).__name__
        problems.append(Problem(path, None, f"of type {kind}, which TOML has not; give text, numbers or tables"))
    return None
