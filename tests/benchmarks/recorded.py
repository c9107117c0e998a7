"""The table, and shares of the port bound that kernels once reached, by processor: what is lost since is a defect."""

from collections.abc import Iterable

from limits import Ratio, Row

from simstudy.kernels.settings import VECTOR_BYTES, processor

PROCESSOR = f"{processor().split()[0]}, vectors of {8 * VECTOR_BYTES} bits"
"""Class of the processor: ratios of one class say little about those of another."""
SHARE = "share of the bound by all operations"
BEST = "best library"
LOSS = 0.3
"""Part of a recorded share that noise may take: other programs on the machine took a tenth, once."""
RATIO_LOSS = 0.15
RECORDED = {
    ("W0", "S1 float32", SHARE): (0.58, 0.50, 0.54), ("W0", "S2 float32", SHARE): (0.59, 0.50, 0.44),
    ("W0", "S3 float32", SHARE): (0.50, 0.45, 0.47), ("W1", "S1 float32", SHARE): (0.57, 0.49, 0.53),
    ("W1", "S2 float32", SHARE): (0.56, 0.49, 0.43), ("W1", "S3 float32", SHARE): (0.48, 0.43, 0.47),
    ("W0", "S1 float64", SHARE): (0.55, 0.46, 0.52), ("W0", "S2 float64", SHARE): (0.54, 0.50, 0.46),
    ("W0", "S3 float64", SHARE): (0.54, 0.43, 0.44), ("W1", "S1 float64", SHARE): (0.56, 0.45, 0.53),
    ("W1", "S2 float64", SHARE): (0.56, 0.49, 0.46), ("W1", "S3 float64", SHARE): (0.53, 0.46, 0.47),
    ("W0", "S1", BEST): (3.9, 3.18, 2.95), ("W0", "S2", BEST): (3.5, 2.89, 2.48), ("W0", "S3", BEST): (5.2, 3.11, 3.68),
    ("W1", "S1", BEST): (5.7, 3.62, 3.74), ("W1", "S2", BEST): (4.5, 3.70, 3.63), ("W1", "S3", BEST): (5.6, 3.68, 4.12),
    ("W0", "S1", "C"): (1.46, 4.18, 1.11), ("W0", "S2", "C"): (1.85, 6.70, 1.38), ("W0", "S3", "C"): (1.18, 3.94, 1.12),
    ("W1", "S1", "C"): (1.58, 4.42, 1.32), ("W1", "S2", "C"): (1.78, 5.96, 1.33), ("W1", "S3", "C"): (1.24, 4.29, 1.12),
    ("W0", "layer", BEST): (1.03, 1.05, 1.04), ("W0", "256 keys, 4 queries", "256 heads for 64"): (1.00, 1.08, 1.14),
    ("W1", "layer", BEST): (1.10, 1.09, 1.08), ("W0", "p = 64", "logits 16 times larger"): (1.00, 1.01, 1.02),
    ("W0", "layer, 16 queries", BEST): (None, None, 0.93), ("W1", "layer, 16 queries", BEST): (None, None, 0.97),
    ("W0", "layer, 32 dimensions", BEST): (None, 1.19, 1.12), ("W1", "layer, 32 dimensions", BEST): (None, 1.34, 1.19),
    ("W0", "p = 64, 1024 queries", "causal mask"): (1.78, 1.88, 1.88),
    ("W0", "p = 64, 1024 queries", "band of 129 keys"): (5.15, 6.16, 5.72),
    ("W0", "p = 64, 1024 queries", "band of 33 keys"): (9.60, 14.56, 11.89),
    ("W0", "p = 64, 1024 queries", "half of the keys hidden, NumPy"): (1.80, 1.05, 1.91),
    ("whole W1", "4096 keys, 768 features, 12 heads, 4 queries", "NumPy, coordinates drawn"): (4.26, 2.54, 4.31),
    ("whole W1", "4096 keys, 768 features, 12 heads, 4 queries", "NumPy, keys drawn"): (59.0, 32.7, 55.6),
    ("heads", "12 layers, 8 texts of 512 tokens", "eager forward"): (0.95, 0.93, 0.94),
}  # fmt: skip
"""Shares of the bound, times of others over ours, and of ours, by `CLASSES`; less than 70 % or 85 % fails the run.

Medians of 25 and 30 (`znver4`) and 26 November 2026; of 256 bits, code for AVX2 on a Zen 5.  Of another class: its own.
"""
CLASSES = ("znver5, vectors of 512 bits", "znver3, vectors of 256 bits", "znver4, vectors of 512 bits")
HEAD = f"Processor: {PROCESSOR}\n\n| work | size | who | value | unit |\n|---|---|---|---|---|"


def lost(rows: Iterable[Row], kind: str = PROCESSOR) -> list[str]:
    """Return a line for each row that reaches too little of its recorded share or ratio."""
    found = []
    for row in (row for row in rows if isinstance(row.value, Ratio)):
        known = dict(zip(CLASSES, RECORDED.get((row.work, row.size, row.who), ()), strict=False)).get(kind)
        if known and row.value.median < (1 - (LOSS if row.who == SHARE else RATIO_LOSS)) * known:
            found.append(f"{row.work} {row.size}, {row.who}: {row.value.median:.2f}, recorded {known:.2f}")
    return found


def line(row: Row) -> str:
    value = "–" if row.value is None else row.value if isinstance(row.value, Ratio) else f"{row.value:.4g}"
    return f"| {row.work} | {row.size} | {row.who} | {value} | {row.unit} |"
