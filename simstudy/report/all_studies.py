"""All studies on one page: the report that the claims of the paper are read in.

Writes through the store.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import xarray as xr

from simstudy.design.document import Design
from simstudy.design.load import load_design, profiles_of
from simstudy.errors import UserError
from simstudy.execution.store import Store, store_of
from simstudy.report.between import between_of
from simstudy.report.campaign import campaign
from simstudy.report.confirmed import confirmed_of
from simstudy.report.figures import draw, image
from simstudy.report.page import describe, render_studies, require_same_design
from simstudy.results import open_results


def gather(designs: Iterable[Path], profile: str, output: Path) -> Path:
    """Write ``report-<profile>.html``: every study that has been run, answered and shown by its first figure.

    With a table of all verdicts, and links to the pages of the studies, which have all the rest.

    Parameters
    ----------
    designs
        Design files, in the order of the page; those without results in this profile are left out.
    profile
        Profile of the runs.
    output
        Folder of all studies.

    Returns
    -------
    pathlib.Path
        Of the page.

    Raises
    ------
    UserError
        If no study has results, or some come from another text of their design.
    """
    studies, judged = [], []
    for path in designs:
        if profile not in profiles_of(path):
            continue
        design = load_design(path, profile)
        store = store_of(design, output)
        if not (store.folder / "results.nc").exists():
            continue
        results = open_results(store.folder)
        require_same_design(results, design, store)
        studies.append(_described(results, design, store, output))
        judged.append((results, design))
    if not studies:
        raise UserError(f"{output}: no study has results in profile {profile!r}; run some: make studies")
    return Store(output).write_text(f"report-{profile}.html", render_studies(studies, profile, campaign(judged)))


def _described(results: xr.Dataset, design: Design, store: Store, output: Path) -> dict[str, Any]:
    """What the page says about a study: with its first figure, as all of them would weigh too much."""
    pictures = {
        name: image(draw(figure, name, results, between_of(figure, name, results, design, store)), "png")
        for name, figure in list(design.figures.items())[:1]
    }
    page = store.folder / "report.html"
    # Relative, so that the folder of all studies can be moved or published as it is.
    link = quote(page.relative_to(output).as_posix()) if page.exists() else ""
    return describe(results, design, pictures, confirmed_of(design, store)) | {"own_page": link}
