"""What a design may state, for people and for editors: read off the records that validate it."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from pydantic.fields import FieldInfo
from pydantic.json_schema import models_json_schema

from simstudy.design.claims import Claim
from simstudy.design.document import NAME, Budget, Document, Grid, Precision, Study
from simstudy.design.figures import Figure
from simstudy.design.formulas import Formula
from simstudy.design.mistakes import alternatives, hint, tags
from simstudy.design.settings import TABLE_OF, TABLES, Record
from simstudy.errors import UserError

RECORDS: dict[str, type[Record]] = {"study": Study, **TABLES, "precision": Precision, "budget": Budget, "grids": Grid}
"""Tables of a design of which each entry is known by name."""
CHOICES: dict[str, Any] = {
    **{name: TABLES[table].model_fields[name].annotation for name, table in TABLE_OF.items()},
    "claims": Claim, "figures": Figure, "formulas": Formula,
}  # fmt: skip
"""Types of what may have alternatives."""
_RANGE = {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3}


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
        raise UserError(f"{name}: nothing that a design states; {hint(name, described())}")
    return found


def described() -> list[str]:
    """Names of everything that `describe` knows."""
    return list(dict.fromkeys([*RECORDS, *CHOICES, *(kind for where in CHOICES for kind in alternatives_of(where))]))


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


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a design file, by which editors complete and check what is typed.

    Rules that tie several settings together are not in it: ``simstudy check`` knows them.
    """
    models: list[type[Record]] = [Document, Grid, Precision, *TABLES.values()]
    _, schema = models_json_schema([(model, "validation") for model in models], ref_template="#/$defs/{model}")
    records = schema["$defs"]
    for model in TABLES.values():
        records[model.__name__].pop("required", None)  # a grid may state what a table leaves out
    _type_grid(records)
    whole = records.pop("Document")
    tables = {table: {"$ref": f"#/$defs/{model.__name__}"} for table, model in TABLES.items()}
    whole["properties"] |= tables
    free = {name: {"type": "object"} for name in ("grids", "claims", "figures")}
    further = {
        name: {"$ref": f"#/$defs/{model.__name__}"} for name, model in (("precision", Precision), ("budget", Budget))
    }
    profile = {"type": "object", "properties": {**tables, **further, **free}}
    whole["properties"]["profiles"] = {"type": "object", "patternProperties": {NAME: profile}}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **whole, "title": "simstudy design", **schema}


def _type_grid(records: dict[str, Any]) -> None:
    """State what the settings and factors of a grid may be, which the record leaves to the check of each cell."""
    models = {name: TABLES[table].__name__ for name, table in TABLE_OF.items()}
    settings = {name: {"$ref": f"#/$defs/{model}/properties/{name}"} for name, model in models.items()}
    parameters: dict[str, Any] = {f"^({'|'.join(TABLE_OF)})\\..+$": {}}
    grid = records["Grid"]["properties"]
    grid["precision"] = {"$ref": "#/$defs/Precision"}
    grid["settings"] |= {"properties": settings, "patternProperties": parameters, "additionalProperties": False}
    ranges = {"type": "object", "properties": {"range": _RANGE}, "required": ["range"], "additionalProperties": False}
    lists = {name: {"type": "array", "items": each, "minItems": 1} for name, each in settings.items()}
    factors = {name: {"anyOf": [each, ranges]} for name, each in lists.items()}
    grid["factors"] |= {"properties": factors, "patternProperties": parameters, "additionalProperties": False}
