"""All studies on one page."""

from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from simstudy.design.document import LEVEL
from simstudy.design.load import load_design, profiles_of
from simstudy.errors import UserError
from simstudy.execution.store import Store, store_of
from simstudy.report.figures import draw, image
from simstudy.report.page import describe, figures_of, margin_of, require_same_design, template
from simstudy.report.tables import count_verdicts
from simstudy.results import read_cells


def gather(designs: Iterable[Path], profile: str, output: Path, trust: Iterable[Path] = ()) -> Path:
    """Write ``report-<profile>.html``: every study that has results, with its answer, first figure and verdicts."""
    studies = []
    for path in designs:
        if profile not in profiles_of(path):
            continue
        design = load_design(path, profile, trust)
        store = store_of(design, output)
        if not (store.folder / "results.nc").exists():
            continue
        results = read_cells(store)
        require_same_design(results, design, store)
        first = list(figures_of(design, results).items())[:1]  # all of them would be too large
        pictures = {name: image(draw(figure, name, results, margin_of(design, figure))) for name, figure in first}
        own = store.folder / "report.html"
        # Relative, so that the folder of all studies can be moved or published as it is.
        link = quote(own.relative_to(output).as_posix()) if own.exists() else ""
        studies.append(describe(results, design, pictures) | {"own_page": link})
    if not studies:
        raise UserError(f"{output}: no study has results in profile {profile!r}; run some: simstudy run DESIGN")
    verdicts = [line for study in studies for line in study["verdicts"]]
    page = template("studies.html").render(
        studies=studies, profile=profile, n_claims=len(verdicts), headline=count_verdicts(verdicts), error_rate=LEVEL
    )
    return Store(output).write_text(f"report-{profile}.html", page)
