"""Cells to explore: plain data with addresses, and in a browser without a network from a verdict to its cells."""

import html
import json
import re
from pathlib import Path

import numpy as np
import pytest
from builders_results import DESIGN, build_design, build_results
from pages import dom, needs_browser

from simstudy.design.confirmation import confirmatory
from simstudy.report import page as page_module
from simstudy.report.page import explored, render


def test_explored__has_every_cell_with_its_numbers_and_address(design, results):
    found = explored(results, design)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert [cell["number"] for cell in found["cells"]] == list(range(44))
    names = [measure["name"] for measure in found["measures"]]
    for number in (0, 27, 35):
        cell, planned = found["cells"][number], design.cells[number].cell
        estimate, mcse, exact, leading = cell["values"][names.index("ensemble_variance")]
        told = results.isel(cell=number).ensemble_variance.values
        np.testing.assert_allclose([estimate, exact or np.nan, leading or np.nan], told, rtol=1e-5)
        assert mcse == pytest.approx(float(results.ensemble_variance_mcse[number]), rel=1e-5)
        assert (cell["seed"], cell["data"]) == (7, planned.data_id[:12])
        assert (cell["replicates"], cell["failed"]) == (results.n_replicates[number], results.n_failed[number])
    # A single head has no correlation.
    alone = next(i for i, planned in enumerate(design.cells) if planned.cell.heads.n_heads == 1)
    assert found["cells"][alone]["values"][names.index("correlation")] is None
    assert found["grids"][1]["cells"] == [28, 43] and found["cells"][29]["levels"] == ["0.4", "2"]
    assert len(found["cells"][0]["values"][names.index("hdi vendi")]) == 2


def test_claims__know_their_cells(tmp_path):
    text = DESIGN.replace('direction = "decreasing"', 'direction = "decreasing"\nwhere = { n_keys = 400 }', 1)
    text = text.replace('measure = "mean_covariance"',
                        'measure = "mean_covariance"\nwhere = { n_heads = 4 }\nversus = { n_heads = 2 }')  # fmt: skip
    design = build_design(tmp_path, text)
    claims = explored(build_results(design), design)["claims"]
    meant = [i for i, planned in enumerate(design.cells)
             if planned.grid == "angles" and planned.cell.data.n_keys == 400]  # fmt: skip
    assert claims["falls"]["cells"] == meant and len(meant) == 14 and claims["falls"]["x"] == "angle"
    heads = {design.cells[i].cell.heads.n_heads for i in claims["floor"]["cells"]}
    assert heads == {2, 4} and claims["floor"]["grid"] == "many-heads"


def test_replay__is_given_as_a_command_takes_it(design, results):
    assert explored(results, design)["replay"] == "simstudy replay made-up.toml --profile quick"
    folder = design.model_copy(update={"path": Path("elsewhere") / "design.toml"})
    assert explored(results, folder)["replay"] == "simstudy replay made-up --profile quick"
    confirmed = confirmatory(folder, "two words")
    assert explored(results, confirmed)["replay"].endswith("--confirm 'two words'")


def test_large_study__holds_a_part_and_says_so(design, results, monkeypatch):
    monkeypatch.setattr(page_module, "MAX_CELLS", 30)
    found = explored(results, design)
    assert len(found["cells"]) == 30 and found["n_left_out"] == 14
    assert [grid["cells"] for grid in found["grids"]] == [[0, 28], [28, 30], [0, 0]]
    assert "The last 14 cells are left out" in render(results, design, {})


def shown(page, fragment: str, folder) -> str:
    """What a browser without a network makes of a page."""
    return dom(f"{page.as_uri()}{fragment}", folder, "--proxy-server=127.0.0.1:9")


def told(page: str) -> list[str]:
    return html.unescape(re.search(r'id="explored"[^>]*>(.*?)</p>', page, re.DOTALL)[1]).split("\n")


@needs_browser
def test_browser__goes_from_a_verdict_to_its_cells_and_from_a_cell_to_its_command(design, results, tmp_path):
    page = tmp_path / "report.html"
    page.write_text(render(results, design, {}), encoding="utf-8")
    claim = shown(page, "#explore?claim=falls", tmp_path)
    assert told(claim)[0] == "falls: The variance falls with the angle <script>alert(1)</script>."
    assert told(claim)[1] == "It rests on 28 cells." and len(re.findall("data-cell=", claim)) == 28
    assert '<option value="ensemble_variance">' in claim and "Search cells: " in claim
    cell = told(shown(page, "#explore?cell=3&y=mse", tmp_path))
    estimate, mcse = (float(results[name].values.ravel()[3]) for name in ("mse", "mse_mcse"))
    assert cell[1].startswith(f"mean squared error [Y²]: {estimate:.5g} ± {mcse:.5g}")
    assert f"replicates: {int(results.n_replicates[3])}" in cell[3] and design.cells[3].cell.data_id[:12] in cell[3]
    assert cell[4] == "claims that rest on it: falls, agrees"
    assert cell[5] == "replay: simstudy replay made-up.toml --profile quick --cell 3 --replicate 0"


@needs_browser
def test_browser__runs_no_script_that_got_into_the_page(design, results, tmp_path):
    page = tmp_path / "report.html"
    text = render(results, design, {}).replace("<h1>", "<script>document.title = 'broken in'</script><h1>")
    page.write_text(text, encoding="utf-8")
    seen = shown(page, "", tmp_path)
    assert "<title>A made-up study</title>" in seen and "data-cell=" in seen
    page.write_text(text.replace("Content-Security-Policy", "nothing"), encoding="utf-8")
    assert "<title>broken in</title>" in shown(page, "", tmp_path)
