"""Verdicts on a table of numbers, as a page that draws each claim in its interval, and as plain data."""

import hashlib
import math
from pathlib import Path
from typing import Any

from simstudy.design.claims import LEVEL
from simstudy.design.files import read_regular
from simstudy.execution.store import Folder, Store
from simstudy.judging.judged import Verdicts
from simstudy.report.page import MAX_ROWS, template
from simstudy.report.tables import comparison_lines, count_verdicts


def write_page(found: Verdicts, path: Path, sources: tuple[Path, ...]) -> Path:
    """Write the page of verdicts, with the digests of its sources; return its path."""
    lines = found.lines
    digests = [(each.name, hashlib.sha256(read_regular(each, 1 << 32)).hexdigest()) for each in sources]
    study: dict[str, Any] = {
        "name": sources[0].name,
        "verdicts": lines,
        "headline": count_verdicts(lines),
        "size": found.summary[0],
        "factors": found.factors,
        "independent": found.independent,
        "further": found.wanted,
        "cost": found.cost,
        "comparisons": comparison_lines(found.dataset),
        "provenance": [(f"SHA-256 of {name}", digest) for name, digest in digests],
    }
    text = template("numbers.html").render(study=study, error_rate=LEVEL, max_rows=MAX_ROWS)
    return Store(Folder(path.parent)).write_text(path.name, text)


def record(found: Verdicts) -> dict[str, Any]:
    """Return verdicts as plain data; what is no finite number is null."""
    rows = found.to_dataframe().reset_index().to_dict("records")
    finite = [{k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()} for row in rows]
    return {"units": found.n_units, "units_left_out": found.n_dropped, "claims": finite}
