"""Loading of designs from files or tables: find, read, apply a profile, validate once, and make cells."""

import hashlib
import inspect
import json
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, Self

import numpy as np

from simstudy.design.answerable import require_answerable
from simstudy.design.cells import plan_grid, require_few_cells
from simstudy.design.contents import OwnFiles
from simstudy.design.document import NAME, Budget, Confirmation, Design, Document, Precision
from simstudy.design.files import read_text
from simstudy.design.settings.cell import TABLES
from simstudy.design.settings.functions import Functions
from simstudy.design.settings.records import DesignError, Problem, Record, hint, mistake, path_of, validated
from simstudy.errors import UserError

LOCAL = Path("designs")
"""Folder of the user's studies, relative to the current folder."""
FILE = "design.toml"
"""Design in the folder of a study."""
MAX_BYTES = 1 << 20
"""Largest design file that is read, in bytes."""

Source = str | Path | Mapping[str, Any]
"""A design: path of its folder or file, name of a shipped design, or its tables (a `Study` or parsed TOML)."""


class RawDesign(NamedTuple):
    """A design before it is checked, with its name in messages."""

    place: str
    path: Path | None
    text: str
    tables: dict[str, Any]
    functions: str | None = None  # text of a file that is not written yet


def load_design(
    design: Source | RawDesign, profile: str = "quick", trust: Iterable[str | Path] = (), confirm: str | None = None
) -> Design:
    """Return a design under one profile; `DesignError` lists its mistakes. Only trusted code is run.

    With a text ``confirm``, seeds and settings from domains are derived from design, functions and this text.
    """
    place, path, text, tables, functions = design if isinstance(design, RawDesign) else read_design(design)
    tables, replaced = dict(tables), list[str]()  # changed by the profile
    try:
        replaced += _overlay(tables, _changes(tables, profile))
        files = OwnFiles(path.parent if path else Path(), trust, path is not None and is_shipped(path), functions)
        document = validated(Document, tables, context=files)
        require_few_cells(document)
        drawn_from = confirm and [text, confirm]
        cells = [each for name in document.grids for each in plan_grid(document, name, files, drawn_from)]
        confirmed = None
        if confirm is not None:
            if not (isinstance(confirm, str) and confirm.strip() and confirm.isprintable()):
                shown = f"confirm = {confirm!r:.80}"
                raise UserError(f"{shown}: cannot be shown; give a text of printable characters in one line")
            codes = sorted({piece.code.text for each in cells for _, piece in each.cell.own})
            confirmed = Confirmation(text=confirm, digest=_digest_of(text, codes, confirm))
            document = _reseed(document, confirmed.digest)
            for number, planned in enumerate(cells):  # equal seeds stay equal, so cells still share random numbers
                seed = int(_digest_of(confirmed.digest, planned.cell.simulation.seed), 16) >> 1  # below 2⁶³
                cells[number] = planned.model_copy(update={"cell": planned.cell.with_simulation(seed=seed)})
        require_answerable(document, cells)
    except DesignError as error:
        for number, each in enumerate(problems := [*error.problems]):
            if any(f"{each.path}.".startswith((path + ".", path + "[")) for path in replaced):
                problems[number] = each._replace(path=f"profiles.{profile}.{each.path}")
        raise DesignError(place, problems) from None
    return Design(**dict(document), profile=profile, text=text, path=path, confirmation=confirmed, cells=tuple(cells))


def _digest_of(*parts: Any) -> str:
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()


def _reseed(document: Document, digest: str) -> Document:
    """Replace seeds in the selections of claims and figures by those of a confirmatory run; return the document."""
    for entry in (*document.claims.values(), *document.figures.values()) if digest else ():
        for selection in (getattr(entry, field, None) or {} for field in ("where", "versus", "stands")):
            if isinstance(stated := selection.get("seed"), int):
                selection["seed"] = int(_digest_of(digest, stated), 16) >> 1
    return document


def check(design: Source, trust: Iterable[str | Path] = ()) -> dict[str, Design]:
    """Check a design under every profile.

    Parameters
    ----------
    design, trust
        As for `load_design`; trusted code is tried.

    Returns
    -------
    dict of Design
        Designs by profile; `simstudy.run` takes them as well.

    Raises
    ------
    DesignError, UserError
        As by `load_design`, under the first profile with a mistake.
    """
    return {profile: load_design(design, profile, trust) for profile in profiles_of(design) or ("quick",)}


def declared(text: str, profile: str, confirmed: str = "") -> Document:
    """Return the document of a valid design from its text and digest in results.

    Functions of the study are not run: their numbers in claims are 1.
    """
    tables = parse("design", text)
    _overlay(tables, _changes(tables, profile))
    return _reseed(validated(Document, tables, context=SimpleNamespace(number=lambda *_: 1.0)), confirmed)


def profiles_of(design: Source) -> tuple[str, ...]:
    """Return the names of the profiles of a design."""
    return tuple(found) if isinstance(found := read_design(design).tables.get("profiles"), dict) else ()


def read_design(design: Source) -> RawDesign:
    """Read a design without checking it."""
    if not isinstance(design, Mapping):
        return read_file(find_design(design))
    place = name_of(design)
    try:
        text = json.dumps(design, default=_plain, ensure_ascii=False, indent=1)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise DesignError(place, [Problem("", None, str(error))]) from None
    return RawDesign(place, None, text, parse(place, text))


def name_of(tables: Mapping[str, Any]) -> str:
    """Return the name of the study in tables, or "design" without one."""
    study = tables.get("study")
    name = study.get("name") if isinstance(study, Mapping) else None
    return name if isinstance(name, str) else "design"


def _plain(value: Any) -> Any:
    """Return a value without a JSON type in the form that TOML would have."""
    if isinstance(value, range):
        return {"range": [value.start, value.stop, *([] if value.step == 1 else [value.step])]}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{value!r} is of type {type(value).__name__}; give text, numbers, lists or tables")


def read_file(path: Path) -> RawDesign:
    """Read tables from a file; `DesignError` if it cannot be read or parsed."""
    try:
        text = read_text(path, MAX_BYTES)
    except UserError as error:
        raise DesignError(str(path), [Problem("", "", str(error))]) from None
    return RawDesign(str(path), path, text, parse(str(path), text))


def parse(place: str, text: str) -> dict[str, Any]:
    """Return the tables of a text in TOML, or in JSON (studies in Python); `DesignError` if it is neither."""
    try:
        return json.loads(text) if text.startswith("{") else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise DesignError(place, [Problem("", "", f"not valid TOML: {error}")]) from None


def shipped_folder() -> Path:
    """Return the folder of the shipped designs: in an installed package, or next to the package in a checkout."""
    package = Path(__file__).parents[1]
    return installed if (installed := package / "designs").is_dir() else package.parent / "designs"


def is_shipped(design: Path) -> bool:
    """Return true if a design file is a shipped one."""
    return design.resolve().parents[1] == shipped_folder().resolve()


def designs_in(folder: Path) -> list[Path]:
    """Return the design files in the subfolders of a folder."""
    return sorted(folder.glob(f"*/{FILE}")) if os.path.isdir(folder) else []


def known_designs() -> list[Path]:
    """Return the local and shipped design files, each once."""
    folders = {folder.resolve(): folder for folder in (LOCAL, shipped_folder())}
    return sorted(path for folder in folders.values() for path in designs_in(folder))


def find_design(design: str | Path) -> Path:
    """Return the path of a design that is given by path or name."""
    if not isinstance(design, (str, Path)):
        kind = type(design).__name__
        raise UserError(f"a design of type {kind}; give the path of a file, the name of a shipped design, or a Study")
    for file in (FILE, "design.json"):  # the second of a study in Python
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


def _changes(tables: dict[str, Any], profile: str) -> dict[str, Any]:
    """Return the entries of a profile; empty if profiles are not as `Document` requires."""
    if tables and tables.keys() <= {"claims", "numbers"}:
        raise mistake("", None, "claims about numbers of your own, and no design; give them to simstudy judge")
    profiles = tables.get("profiles", {})
    if isinstance(profiles, dict) and profile not in profiles and tables.keys() <= Document.model_fields.keys():
        remedy = f"no such profile; the design has: {', '.join(profiles) or 'none; add [profiles.' + profile + ']'}"
        raise mistake("profiles", profile, remedy)
    return changes if isinstance(profiles, dict) and isinstance(changes := profiles.get(profile), dict) else {}


def _overlay(tables: dict[str, Any], changes: dict[str, Any], path: tuple[str, ...] = ()) -> list[str]:
    """Apply changes to tables recursively, but replace lists and composite entries; return changed paths."""
    composite = path[:1] == ("grids",) and path[2:] in (("settings",), ("factors",), ("domain",))
    composite = composite or (path != () and path[0] in TABLES)
    replaced: list[str] = []
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(tables.get(key), dict) and not composite:
            tables[key] = dict(tables[key])
            replaced += _overlay(tables[key], value, (*path, key))
        else:
            tables[key] = value
            replaced.append(path_of((*path, key)))
    return replaced


def _table(name: str, record: type[Record]) -> Callable[..., "Study"]:
    """Return the method of `Study` that fills a table, with the signature and docstring of its record."""

    def state(self: "Study", **settings: Any) -> "Study":
        self.setdefault(name, {}).update(settings)
        return self

    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    entries = [inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY, default=...) for each in record.model_fields]
    state.__name__, state.__qualname__ = name, f"Study.{name}"
    state.__doc__ = f"{record.__doc__}\n\n    Entries: {', '.join(record.model_fields)}.\n"
    state.__signature__ = inspect.Signature([own, *entries])  # type: ignore[attr-defined]
    return state


class Study(dict[str, Any]):
    """A design written in Python: one method for each table of a design file; dict methods edit the tables.

    Values are those of TOML; tuples, NumPy arrays and numbers, and ranges of levels are converted.  Mistakes are
    reported when the study is checked, planned or run.

    Parameters
    ----------
    name
        Lower-case letters and digits, joined by single hyphens; also the output folder.
    title, aim
        One line for the report, and the question that the study answers.

    Examples
    --------
    >>> study = Study("third-head", title="Does a third head help?", aim="The question, in words.")
    >>> study = study.data(n_keys=400, n_features=8, regression="ridge").heads(head_dim=2, arrangement="orthogonal")
    >>> study = study.estimator(bandwidth="attention").grid("size", factors={"n_heads": range(1, 4)})
    """

    functions = _table("functions", Functions)
    data, heads, estimator, queries, simulation = (_table(*each) for each in TABLES.items())
    precision = _table("precision", Precision)
    budget = _table("budget", Budget)

    def __init__(self, name: str, *, title: str, aim: str) -> None:
        super().__init__(study={"name": name, "title": title, "aim": aim}, profiles={"quick": {}})

    @classmethod
    def of(cls, design: Source) -> Self:
        """Return a copy of the design of a file, of a shipped name, or of tables.

        Raises
        ------
        DesignError
            If it cannot be read, or is not TOML.
        UserError
            If no design or more than one has the name.
        """
        study = cls.__new__(cls)
        study.update(read_design(design).tables)
        return study

    def grid(self, name: str, factors: dict[str, Any], **entries: Any) -> Self:
        """Declare a grid of crossed factors, ``setting = values``; further entries as in a design file."""
        return self._state("grids", name, {"factors": factors, **entries})

    def claim(self, name: str, kind: str, **entries: Any) -> Self:
        """Declare a claim of a kind; its entries as in a design file."""
        return self._state("claims", name, {"kind": kind, **entries})

    def figure(self, name: str, **entries: Any) -> Self:
        """Declare a figure; its entries as in a design file."""
        return self._state("figures", name, entries)

    def profile(self, name: str, **tables: Any) -> Self:
        """Declare a profile, whose entries replace entries of the tables."""
        return self._state("profiles", name, tables)

    def _state(self, table: str, name: str, entries: dict[str, Any]) -> Self:
        self.setdefault(table, {})[name] = entries
        return self
