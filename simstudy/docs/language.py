"""The reference of the design language, a page of the site, read from the records that validate designs."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Literal, get_args, get_origin

from simstudy.design.claims import ORIGINS
from simstudy.design.measures import INDEXED_MEASURES, INDICES, MEASURES, STATISTICS
from simstudy.design.schema import CHOICES, RECORDS, Described, alternatives_of, describe, title_of
from simstudy.design.settings.cell import TABLE_OF
from simstudy.design.settings.levels import setting
from simstudy.design.settings.records import Record
from simstudy.design.settings.systems import NAMES, QUANTITIES

_UNSHOWN = ("label", "code")
_SHARED = {
    "claims": ("statement", "grid", "measure", "index", "where", "expected", "these_draws", "origin"),
    "figures": ("title", "grid", "y", "where", "hue", "panel"),
    "formulas": (),
}
"""Entries that the alternatives of a table have in common."""


def markdown(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in row) + " |"


def reference() -> Iterator[str]:
    """Yield the lines of the reference: tables with their alternatives, claims, formulas, figures and measures."""
    for table, record in RECORDS.items():
        (described,) = describe(table)[:1]
        yield from (f"## `[{table}]`", "", described.meaning, "", *_table(described, record), "")
        settings = (name for name, home in TABLE_OF.items() if home == table and name in CHOICES)
        for name in filter(alternatives_of, settings):
            yield from (f"**`{name}`** is one of:", "", *_bullets(name), "")
    yield from ("## `[claims.NAME]`", "", "Every claim states what it says and where it is tested:", "")
    yield from (*_shared("claims"), "", "Its kind is one of:", "", *_bullets("claims"), "")
    yield from ("Origins, of which each is counted by itself:", "")
    yield from (*(f"- `{name}`: {meaning}" for name, meaning in ORIGINS.items()), "")
    yield from ("A `value` may be a formula, `{ kind = NAME, ... }`:", "", *_bullets("formulas"), "")
    yield from ("## `[figures.NAME]`", "", "A figure is a `curve` unless it states another kind:", "")
    yield from (*_shared("figures"), "", *_bullets("figures"), "", *_measures())


def _table(described: Described, record: type[Record]) -> Iterator[str]:
    rows = []
    for name, what, default in described.entries:
        called = ", ".join(filter(None, setting(name))) if name in TABLE_OF else ""
        rows.append((f"`{name}`", called, _what(name, what, record), _default(default)))
    yield from markdown(("entry", "in words, symbol, unit", "what to give", "default"), rows)


def _bullets(where: str) -> Iterator[str]:
    described = {each.title: each for each in describe(where)}
    for name, record in alternatives_of(where).items():
        each = described[title_of(where, name)]
        yield f'- `kind = "{name}"`: {each.meaning.replace("``", "`")}'
        hidden = (*_UNSHOWN, *_SHARED.get(where, ()))
        for entry, what, default in each.entries:
            if entry not in hidden:
                yield f"  - `{entry}` ({_default(default)}): {_what(entry, what, record)}"
        for measure, quantity in (QUANTITIES.get(name, {}) if where == "instance" else {}).items():
            yield f"  - measures `{measure}`, {quantity.meaning}{_formula(quantity.formula)}"


def _shared(where: str) -> Iterator[str]:
    """What all alternatives state, told of the one whose entries are the most general."""
    kinds = alternatives_of(where)
    kind = {"claims": "monotone", "figures": "curve"}[where]
    (described,) = (each for each in describe(kind) if each.title == title_of(where, kind))
    entries = [entry for entry in described.entries if entry[0] in _SHARED[where]]
    yield from _table(described._replace(entries=entries), kinds[kind])


def _what(name: str, what: str, record: type[Record]) -> str:
    """What to give, and every value that may be given, where the description leaves some unsaid."""
    what = what or ("as the setting of that name" if name in TABLE_OF else "a whole number of at least 1")
    values = [value for value in _values(record.model_fields[name].annotation) if value not in NAMES]
    unsaid = [value for value in values if str(value) not in what]
    return what + (f" ({', '.join(map(str, values))})" if unsaid else "")


def _values(annotation: Any) -> Collection[Any]:
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return [value for part in get_args(annotation) for value in _values(part)]


def _default(shown: str) -> str:
    return shown if shown == "required" else f"`{shown}`" if shown else "none"


def _formula(text: str) -> str:
    return f": `{text.replace('`', '')}`" if text else ""


def _measures() -> Iterator[str]:
    every = {name: each for name, each in (MEASURES | STATISTICS | INDEXED_MEASURES).items() if name not in NAMES}
    rows = [(f"`{name}`", each.unit, each.meaning + _formula(each.formula)) for name, each in every.items()]
    yield from ("## Measures", "", *markdown(("measure", "unit", "what it is, and its formula"), rows))
    yield from (
        "",
        f"Indices of `hdi`: {', '.join(f'`{name}`' for name in INDICES)}. Random instances measure what "
        "stands beside their kinds above.",
        "",
    )
