"""The table of the benchmarks on the terminal and as a file."""

from collections.abc import Sequence
from pathlib import Path

import rich
from measure import Ratio, Row
from recorded import PROCESSOR
from rich.table import Table

_COLUMNS = ("work", "size", "who", "value", "unit", "processor")


def text(value: float | Ratio | None) -> str:
    if value is None:
        return "–"
    return str(value) if isinstance(value, Ratio) else f"{value:.4g}"


def show(rows: Sequence[Row]) -> None:
    table = Table(*_COLUMNS)
    for row in rows:
        table.add_row(row.work, row.size, row.who, text(row.value), row.unit, PROCESSOR)
    rich.print(table)


def write(rows: Sequence[Row], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"| {r.work} | {r.size} | {r.who} | {text(r.value)} | {r.unit} | {PROCESSOR} |" for r in rows]
    head = "| " + " | ".join(_COLUMNS) + " |\n|" + "---|" * len(_COLUMNS)
    (folder / "table.md").write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")
