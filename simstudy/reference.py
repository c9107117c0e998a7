"""Text of `simstudy describe`: all tables, entries and kinds of a design with defaults, and all measures."""

import inspect
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from simstudy.design import document, measures
from simstudy.design.settings import cell
from simstudy.design.settings.functions import Functions
from simstudy.design.settings.records import hint, records_in, tags
from simstudy.errors import UserError

TABLES: dict[str, Any] = {
    "study": document.Study, "functions": Functions, **cell.TABLES,
    "precision": document.Precision, "budget": document.Budget, "grids.NAME": document.Grid,
    "measures.NAME": document.OwnMeasureText,
}  # fmt: skip
KINDS: dict[str, tuple[Any, Any]] = {
    "claims.NAME": (document.Claim, document.BaseClaim),
    "figures.NAME": (document.Figure, document.BaseFigure),
}
Line = tuple[tuple[str, ...], str]  # names that a line describes, and the line


def words(documented: Any) -> str:
    """Return the docstring on one line."""
    return " ".join((inspect.getdoc(documented) or "").replace("``", "").split())


def literals(annotation: Any) -> list[str]:
    """Return the literal texts that an annotation allows."""
    if get_origin(annotation) is Literal:
        return [each for each in get_args(annotation) if isinstance(each, str)]
    return [text for part in get_args(annotation) for text in literals(part)]


def entries(record: Any, left_out: frozenset[str] = frozenset()) -> str:
    """Return the entries of a record on one line, with defaults and the alternatives of texts."""
    words = []
    for name, field in record.model_fields.items():
        if name in left_out | {"kind", "label", "code"}:
            continue
        shown, default = name, field.get_default(call_default_factory=True, validated_data={})
        if not field.is_required():
            given = getattr(default, "kind", default)
            value = list(given) if isinstance(given, tuple) else str(given).lower() if type(given) is bool else given
            shown = name if given in (None, {}, (), "") else f"{name} = {value}"
        has_kinds = any(map(tags, records_in(field.annotation)))
        others = [] if has_kinds else [text for text in literals(field.annotation) if text != default]
        words.append(shown + (f" ({', '.join(others)})" if 0 < len(others) < 8 else ""))
    return ", ".join(words)


def kinds(annotation: Any, setting: str = "", common: Any = None) -> Iterator[Line]:
    """Yield a line for each kind of a setting."""
    known = frozenset(common.model_fields) if common else frozenset()
    for record in records_in(annotation):
        text, own = words(record).partition(". ")[0].rstrip("."), entries(record, known)
        yield (*tags(record), setting), f"- {', '.join(tags(record))}: {text}.{f' {own}' if own else ''}"


def sections() -> dict[str, list[Line]]:
    """Return the lines of each table of a design and of the measures, by name of the section."""
    found: dict[str, list[Line]] = {}
    for name, record in TABLES.items():
        found[name] = [((*record.model_fields,), text) for text in (words(record), entries(record))]
        for setting, field in record.model_fields.items():
            if any(map(tags, records_in(field.annotation))):
                found[name] += [((setting,), f"{setting}:"), *kinds(field.annotation, setting)]
    for name, (union, common) in KINDS.items():
        found[name] = [((*common.model_fields,), f"In all kinds: {entries(common)}"), *kinds(union, "", common)]
    head_measures = measures.MEASURES | measures.STATISTICS | measures.INDEXED_MEASURES
    for name, group in {"measures of heads": head_measures, "measures of functions": measures.OF_FUNCTIONS}.items():
        found[name] = [((measure,), f"- {measure}: {each.meaning}") for measure, each in group.items()]
    return found


def described(name: str) -> list[str]:
    """Return the lines that describe a section, a setting with its kinds, a kind, or a measure.

    Raises
    ------
    UserError
        If there is no such name.
    """
    found = sections()
    if chosen := [each for each in found if name in ("", each, each.removesuffix(".NAME"), each.partition(" ")[0])]:
        return [line for each in chosen for line in (f"[{each}]", *(text for _, text in found[each]), "")]
    lines = [line for section in found.values() for line in section]
    if not (own := [text for names, text in lines if name in names]):
        known = dict.fromkeys([*found, *(each for names, _ in lines for each in names if each)])
        raise UserError(f"{name!r}: no table, setting, kind or measure; {hint(name, [*known])}")
    return own
