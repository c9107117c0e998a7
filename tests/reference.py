"""The reference of settings and measures, as records state them: ``python tests/reference.py > PAGE``."""

import inspect
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from simstudy.design import claims, document, figures, measures
from simstudy.design.settings import tables
from simstudy.design.settings.records import records_in, tags

PAGE = "simstudy/docs/reference.md"
HEAD = """# Reference

All tables of a design with their entries, defaults and, in parentheses, other values; and all measures. A setting of
several kinds is written by its kind, `noise = "gaussian"`, or as a table, `noise = { kind = "student_t", df = 5 }`.
Every entry of `data`, `heads`, `estimator`, `queries` and `simulation` can be a factor.
"""
TABLES = {
    "study": document.Study, "data": tables.Data, "heads": tables.Heads, "estimator": tables.Estimator,
    "queries": tables.Queries, "simulation": tables.Simulation, "precision": document.Precision,
    "budget": document.Budget, "grids.NAME": document.Grid, "measures.NAME": document.OwnMeasureText,
}  # fmt: skip
KINDS = {"claims.NAME": (claims.Claim, claims.BaseClaim), "figures.NAME": (figures.Figure, figures.BaseFigure)}


def words(thing: Any) -> str:
    """Return the docstring on one line."""
    return " ".join((inspect.getdoc(thing) or "").replace("``", "`").split())


def literals(annotation: Any) -> list[str]:
    """Return the texts that an annotation allows."""
    if get_origin(annotation) is Literal:
        return [each for each in get_args(annotation) if isinstance(each, str)]
    return [text for part in get_args(annotation) for text in literals(part)]


def entry(name: str, field: Any) -> str:
    """Return an entry with its default and, where they are texts, what else it may be."""
    default = field.get_default(call_default_factory=True, validated_data={})
    kinds = [tag for record in records_in(field.annotation) for tag in tags(record)]
    if field.is_required() and name != "kind":
        shown = f"`{name}`"
    else:
        given = getattr(default, "kind", default)
        value = str(given).lower() if isinstance(given, bool) else list(given) if isinstance(given, tuple) else given
        shown = f"`{name}`" if given in (None, {}, (), "") else f"`{name} = {value}`"
    others = [text for text in literals(field.annotation) if text != default] if not kinds else []
    return shown + (f" ({', '.join(others)})" if 0 < len(others) < 8 else "")


def entries(record: Any, left_out: frozenset[str] = frozenset()) -> str:
    """Return the entries of a record on one line."""
    left_out = left_out | {"kind", "label", "code"}
    return ", ".join(entry(name, field) for name, field in record.model_fields.items() if name not in left_out)


def kinds(annotation: Any, common: Any = None) -> Iterator[str]:
    """Yield a line for each kind of a setting."""
    known = frozenset(common.model_fields) if common else frozenset()
    for record in records_in(annotation):
        said, own = words(record).partition(". ")[0].rstrip("."), entries(record, known)
        yield f"- `{', '.join(tags(record))}`: {said}.{f' {own}' if own else ''}"


def page() -> str:
    """Return the page."""
    lines = [HEAD]
    for name, record in TABLES.items():
        lines += [f"## {name}", "", words(record), "", entries(record), ""]
        for setting, field in record.model_fields.items():
            if any(map(tags, records_in(field.annotation))):
                lines += [f"`{setting}`:", "", *kinds(field.annotation), ""]
    for name, (union, common) in KINDS.items():
        lines += [f"## {name}", "", f"In all kinds: {entries(common)}", "", *kinds(union, common), ""]
    lines += ["## Measures of heads", ""]
    of_heads = measures.MEASURES | measures.STATISTICS | measures.INDEXED_MEASURES
    lines += [f"- `{name}`: {each.meaning.partition(';')[0]}" for name, each in of_heads.items()]
    lines += ["", "## Measures of functions", ""]
    lines += [f"- `{name}`: {each.meaning.partition(';')[0]}" for name, each in measures.OF_FUNCTIONS.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
