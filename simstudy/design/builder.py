"""Designs from Python: the tables of a design file, filled in by methods that read like it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from simstudy.design import document
from simstudy.design.load import Source, read_design
from simstudy.design.settings.cell import TABLES
from simstudy.design.settings.functions import Functions
from simstudy.design.settings.records import Record


def _table(name: str, record: type[Record]) -> Callable[..., Study]:
    """Return the method that fills in a table, with the signature and the help of its record."""

    def state(self: Study, **settings: Any) -> Study:
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
    data = _table("data", TABLES["data"])
    heads = _table("heads", TABLES["heads"])
    estimator = _table("estimator", TABLES["estimator"])
    queries = _table("queries", TABLES["queries"])
    simulation = _table("simulation", TABLES["simulation"])
    precision = _table("precision", document.Precision)
    budget = _table("budget", document.Budget)

    def __init__(self, name: str, *, title: str, aim: str) -> None:
        super().__init__(study={"name": name, "title": title, "aim": aim}, profiles={"quick": {}})

    @classmethod
    def of(cls, design: Source) -> Study:
        """Return the design of a file, of a shipped name, or of tables, to be changed.

        Raises
        ------
        DesignError
            If it cannot be read, or is no TOML.
        UserError
            If it is a name that no design has, or two have.
        """
        study = cls.__new__(cls)
        study.update(read_design(design).tables)
        return study

    def grid(self, name: str, factors: dict[str, Any], **entries: Any) -> Study:
        """Cross factors with one another: ``setting = values``; further entries as in a design file."""
        return self._state("grids", name, {"factors": factors, **entries})

    def claim(self, name: str, kind: str, **entries: Any) -> Study:
        """Declare a claim of a kind; its entries as in a design file."""
        return self._state("claims", name, {"kind": kind, **entries})

    def figure(self, name: str, **entries: Any) -> Study:
        """Declare a figure; its entries as in a design file."""
        return self._state("figures", name, entries)

    def profile(self, name: str, **tables: Any) -> Study:
        """Declare a profile, whose entries replace those of the tables."""
        return self._state("profiles", name, tables)

    def _state(self, table: str, name: str, entries: dict[str, Any]) -> Study:
        self.setdefault(table, {})[name] = entries
        return self
