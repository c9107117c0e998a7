"""What a design may state, for people: read off the records that validate it."""

import json
from typing import Any, NamedTuple

from pydantic.fields import FieldInfo

from simstudy.design.claims import Claim
from simstudy.design.document import Budget, Grid, Precision, Study
from simstudy.design.figures import Figure
from simstudy.design.formulas import AnyFormula
from simstudy.design.mistakes import hint
from simstudy.design.settings.cell import TABLE_OF, TABLES
from simstudy.design.settings.functions import Functions
from simstudy.design.settings.records import Record, alternatives, tags
from simstudy.errors import UserError

RECORDS: dict[str, type[Record]] = {
    "study": Study, "functions": Functions, **TABLES, "precision": Precision, "budget": Budget, "grids": Grid,
}  # fmt: skip
"""Tables of a design of which each entry is known by name."""
CHOICES: dict[str, Any] = {
    **{name: TABLES[table].model_fields[name].annotation for name, table in TABLE_OF.items()},
    "claims": Claim, "figures": Figure, "formulas": AnyFormula,
}  # fmt: skip
"""Types of what may have alternatives."""


class Described(NamedTuple):
    """A record or a setting: what it means, and of each entry its name, what to give, and its default."""

    title: str
    meaning: str
    entries: list[tuple[str, str, str]]


def describe(name: str | None = None) -> list[Described]:
    """Describe a table, a setting, or an alternative such as ``ridge``; all tables without a name."""
    if name is None:
        return [_described(f"[{table}]", record) for table, record in RECORDS.items()]
    found = [_described(f"[{name}]", RECORDS[name])] if name in RECORDS else []
    if name in TABLE_OF:
        field = TABLES[TABLE_OF[name]].model_fields[name]
        found.append(Described(f"{name}, in [{TABLE_OF[name]}]", "", [_entry(name, field)]))
    kinds = [(where, kind, record) for where in CHOICES for kind, record in alternatives_of(where).items()]
    found += [_described(title_of(where, kind), record) for where, kind, record in kinds if name in (where, kind)]
    if not found:
        known = dict.fromkeys([*RECORDS, *CHOICES, *(kind for _, kind, _ in kinds)])
        raise UserError(f"{name}: nothing that a design states; {hint(name, [*known])}")
    return found


def alternatives_of(where: str) -> dict[str, type[Record]]:
    """Records of the alternatives of a setting, or of claims, figures and formulas, by the names that designs state."""
    return {tag: record for record in alternatives(CHOICES[where]) for tag in tags(record)}


def title_of(where: str, kind: str) -> str:
    """Title of the description of an alternative, as a design states it."""
    return f'{where}: kind = "{kind}"'


def _described(title: str, record: type[Record]) -> Described:
    entries = [_entry(name, field) for name, field in record.model_fields.items() if name != "kind"]
    return Described(title, " ".join((record.__doc__ or "").split()), entries)


def _entry(name: str, field: FieldInfo) -> tuple[str, str, str]:
    if field.is_required():
        return name, field.description or "", "required"
    default = field.get_default(call_default_factory=True)
    shown = getattr(default, "label", None) or ("" if default is None else json.dumps(default, default=dict))
    return name, field.description or "", shown
