"""The table of the benchmarks on the terminal, as files, and as a figure."""

import csv
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import rich
from contests import WORKS
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
    """Write ``table.md``, ``table.csv`` (medians and quartiles) and ``ratios.png``."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"| {r.work} | {r.size} | {r.who} | {text(r.value)} | {r.unit} | {PROCESSOR} |" for r in rows]
    head = "| " + " | ".join(_COLUMNS) + " |\n|" + "---|" * len(_COLUMNS)
    (folder / "table.md").write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")
    with (folder / "table.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*_COLUMNS[:3], "median", "lower_quartile", "upper_quartile", *_COLUMNS[4:]])
        for r in rows:
            spread = (r.value.median, r.value.low, r.value.high) if isinstance(r.value, Ratio) else (r.value, "", "")
            writer.writerow([r.work, r.size, r.who, *spread, r.unit, PROCESSOR])
    _draw(rows, folder / "ratios.png")


def _draw(rows: Sequence[Row], path: Path) -> None:
    rows = [r for r in rows if r.unit == "times simstudy" and isinstance(r.value, Ratio)]
    peers, sizes = list(dict.fromkeys(r.who for r in rows)), list(dict.fromkeys(r.size for r in rows))
    figure, axes = plt.subplots(1, len(WORKS), figsize=(11, 3.2), sharey=True, layout="constrained")
    for axis, work in zip(axes, WORKS, strict=True):
        for k, peer in enumerate(peers):
            found = [(sizes.index(r.size), r.value) for r in rows if (r.work, r.who) == (work, peer)]
            if not found:
                continue
            x = [at + 0.12 * (k - (len(peers) - 1) / 2) for at, _ in found]
            y = [v.median for _, v in found]
            spread = [[v.median - v.low for _, v in found], [v.high - v.median for _, v in found]]
            axis.errorbar(x, y, spread, fmt="os^Dv"[k % 5], label=peer, capsize=2, markersize=5)
        axis.axhline(1, color="black", linewidth=0.8)
        axis.set(title=work, xticks=range(len(sizes)), xticklabels=sizes, yscale="log", xlim=(-0.5, len(sizes) - 0.5))
        axis.grid(axis="y", alpha=0.3)
    axes[0].set_ylabel("time over that of simstudy")
    if peers:
        axes[0].legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)
    plt.close(figure)
