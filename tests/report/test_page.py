"""The report: complete, self-contained, safe against what a design may say, and the same every time."""

import base64
import hashlib
import re

import numpy as np
import pandas as pd
import pytest
from builders_results import DESIGN, build_design, build_results
from jinja2 import UndefinedError
from matplotlib.colors import to_rgb
from pages import Page

from simstudy.design.measures import MEASURES, THEORIES
from simstudy.errors import UserError
from simstudy.execution.store import Store, read_results
from simstudy.report import page as page_module
from simstudy.report.figures import draw, draw_claims, draw_z_scores, image
from simstudy.report.figures.whole import COLOUR_OF, UNEXPECTED
from simstudy.report.labels import Z_SCORES
from simstudy.report.page import render, write_report
from simstudy.report.tables import (
    cell_frame,
    comparison_frame,
    comparison_lines,
    verdict_frame,
    verdict_lines,
    verdict_table,
)
from simstudy.report.terminal import show_table

WITHOUT_FIGURES = re.sub(r"\[figures\..*?(?=\n\[profiles)", "", DESIGN, flags=re.DOTALL)
"""Figures take seconds to draw; pages are written for many tests that look at none."""
TWO_FIGURES = re.sub(r"\[figures\.(saturation|unshown|which-index).*?(?=\n\[)", "", DESIGN, flags=re.DOTALL)
"""Of the kinds of figures tests of their own see; a page holds whatever is drawn."""


@pytest.fixture(scope="module")
def design(tmp_path_factory):
    return build_design(tmp_path_factory.mktemp("design"), TWO_FIGURES)


@pytest.fixture(scope="module")
def results(design):
    return build_results(design)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A design without figures, and its results."""
    design = build_design(tmp_path_factory.mktemp("plain"), WITHOUT_FIGURES)
    return design, build_results(design)


@pytest.fixture(scope="module")
def stored(results, tmp_path_factory):
    """The results as every report has them: read from their file."""
    return read_results(Store(tmp_path_factory.mktemp("stored")).write_dataset("results.nc", results))


@pytest.fixture(scope="module")
def folder(design, stored, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    assert write_report(stored, design, Store(folder)) == folder / "report.html"
    return folder


@pytest.fixture(scope="module")
def html(folder):
    return (folder / "report.html").read_text(encoding="utf-8")


def without_scripts(html):
    return re.sub(r"<(script|style)\b.*?</\1>", "", html, flags=re.DOTALL)


def test_page__is_well_formed_and_needs_nothing_else(html):
    page = Page(html)
    assert page.open == []
    names = {tag for tag, _ in page.tags}
    assert names.isdisjoint({"link", "iframe", "object"})
    sources = [attrs["src"] for _, attrs in page.tags if "src" in attrs]
    assert sources
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert all(attrs["href"].startswith("#") for _, attrs in page.tags if "href" in attrs)
    without_pictures = re.sub(r'src="data:[^"]*"', "", without_scripts(html))
    assert "http:" not in without_pictures and "https:" not in without_pictures
    assert "url(" not in html


def test_page__lets_no_script_run_but_its_own(html):
    """The policy names the one script and the one style by their digests; data are no code."""
    page = Page(html)
    policy = next(attrs["content"] for attrs in page.attributes("meta") if "http-equiv" in attrs)
    assert policy.startswith("default-src 'none'; img-src data:; ")
    assert policy.endswith("; base-uri 'none'; form-action 'none'") and "unsafe" not in policy
    data, code = page.attributes("script")
    assert data == {"type": "application/json", "id": "cells"} and code == {}
    for tag, kind in (("style", "style-src"), ("script", "script-src")):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html, flags=re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy
    assert not any(name.startswith("on") or name == "style" for _, attrs in page.tags for name in attrs)


def test_contents__lead_to_parts_of_the_page(html, design):
    page = Page(html)
    links = [attrs["href"][1:] for _, attrs in page.tags if "href" in attrs]
    assert {"answer", "claims", "figures", "explore", "conditions", "results", "reading", "provenance"} <= set(links)
    assert {link for link in links if not link.startswith("explore?")} <= {*page.ids}
    assert [link for link in links if "?" in link] == [f"explore?claim={name}" for name in ("falls", "agrees", "floor")]


def test_page__holds_every_claim_and_figure(html, design, folder):
    page = Page(html)
    for name, claim in design.claims.items():
        assert name in page.text
        assert claim.statement in page.text
    pictures = page.attributes("img")
    titles = [figure.title for figure in design.figures.values()]
    assert [picture["alt"] for picture in pictures] == [*titles, "All cells against theory, in errors"]
    for name, picture in zip([*design.figures, Z_SCORES], pictures, strict=True):
        content = base64.b64decode(picture["src"].partition(",")[2])
        assert content == (folder / "figures" / f"{name}.png").read_bytes()


def test_page__escapes_what_the_design_says(html, design):
    assert "<script>" in design.claims["falls"].statement
    assert "<script>alert" not in html and "\\u003cscript\\u003ealert(1)" in html
    assert "&lt;script&gt;alert(1)" in html
    assert "Does &lt;b&gt;nothing&lt;/b&gt;" in html


def test_name_that_nobody_gives_a_template__is_no_blank():
    with pytest.raises(UndefinedError, match="verdikt"):
        page_module.template("page.html").environment.from_string("{{ verdikt }}").render()


def test_page__states_verdicts_in_words_and_whether_they_were_declared(html):
    text = " ".join(Page(html).text.split())
    answer = "Of 3 claims 1 is supported, 1 is contradicted and 1 is undecided, 1 not as expected."
    assert answer in text and text.index(answer) < text.index("Contents")
    for sentence in ("supported, as expected The variance falls with", "contradicted, as expected Monte Carlo agrees",
                     "undecided, not as expected The covariance stays"):  # fmt: skip
        assert text.index(answer) < text.index(sentence) < text.index("Contents")
    assert text.count("Not as expected.") == 1
    assert "0.600 ± 0.012" in text


def test_page__says_where_theory_applies_and_what_missed_its_precision(html, results):
    text = " ".join(Page(html).text.split())
    assert "angles exact 14 of 28 too many quadrature nodes (14) leading order 26 of 28 query far beyond" in text
    assert "query far beyond the keys (2) many-heads exact 0 of 15 not asked for: set exact = true in the grid" in text
    assert "MCSE of ensemble_variance ≤ 2 % of the estimate; 1024 to 65536 replicates" in text
    n_missed = int((~results.precision_reached.values).sum())
    assert text.count("(precision missed)") == n_missed == 4


@pytest.mark.usefixtures("undrawn")
def test_page__lists_a_few_reasons_and_counts_the_others(plain, tmp_path):
    design, results = plain
    many = results.copy(deep=True)
    many.inapplicable.loc[{"source": "leading"}] = [f"reason {i}" for i in range(results.sizes["cell"])]
    text = write_report(many, design, Store(tmp_path)).read_text(encoding="utf-8")
    listed = " ".join(Page(text).text.split())
    assert "leading order 0 of 28 reason 0 (1); reason 1 (1); reason 2 (1); others in 25 cells, see cells.csv" in listed
    assert "reason 3 " not in listed and "others in" not in listed.partition("single exact")[2]


def test_page__counts_cells_replicates_failures_and_missed_precision(html, results):
    text = " ".join(Page(html).text.split())
    inside = results.isel(cell=np.flatnonzero(results.grid.values == "angles"))
    n_replicates, n_failed = int(inside.n_replicates.sum()), int(inside.n_failed.sum())
    assert f"angles 28 {n_replicates // 1000} {n_replicates % 1000:03d} {n_failed} 2 MCSE of" in text


def test_page__shows_every_comparison_of_a_claim_below_it_on_one_axis(results, design):
    several = results.copy(deep=True)
    several["comparison_claim"] = "comparison", ["falls", "falls", "agrees"]
    several["comparison_claimed_lower"][:2], several["comparison_claimed_upper"][:2] = -0.1, 0.1
    page = " ".join(Page(render(several, design, {})).text.split())
    assert page.count("All 2 comparisons") == 1
    assert "0.500 ± 0.012 0.460 to 0.550 1 < 0.0001 inside" in page
    first, second = comparison_lines(several)["falls"]
    assert first["picture"].claimed == second["picture"].claimed
    assert first["picture"].marks[0].estimate < second["picture"].marks[0].estimate
    parted = results.copy()
    parted["comparison_part_of"] = "comparison", ["", "whole", ""]
    parted["comparison_no_verdict_because"] = "comparison", ["", "", "too few blocks"]
    lines = [line for lines in comparison_lines(parted).values() for line in lines]
    assert [line["finding"] for line in lines] == ["inside", "part of whole", "too few blocks"]


def test_figure_of_claims__shows_each_estimate_in_the_interval_claimed(results):
    lines = verdict_lines(results)
    drawing = draw_claims(lines)
    words, axes = drawing.axes
    assert [text.get_text().split(":")[0] for text in words.texts] == [line.claim for line in lines]
    for line, bar in zip(lines, axes.patches, strict=True):
        assert (bar.get_x(), bar.get_x() + bar.get_width()) == pytest.approx(line.picture.claimed)
    marks = [line.picture.marks[0] for line in lines]
    drawn = [[tuple(part.get_xdata()) for part in axes.lines[which::3]] for which in range(3)]
    assert drawn == [[mark.confidence for mark in marks], [mark.error for mark in marks],
                     [(mark.estimate,) for mark in marks]]  # fmt: skip
    colours = [bar.get_facecolor()[:3] for bar in axes.patches]
    assert colours == [to_rgb(colour) for colour in (COLOUR_OF["supported"], COLOUR_OF["contradicted"], UNEXPECTED)]
    assert "the first 200 of 201 claims" in draw_claims([lines[0]] * 201).get_suptitle()


def test_page__lists_every_cell_and_factor(html, design, results):
    page = Page(html)
    assert html.count("<tr><td>") > results.sizes["cell"]
    assert "0; 15; 30; 45; 60; 75; 90" in page.text
    assert "0.4; 0.8; attention" in page.text
    assert page.text.count("(precision missed)") > 0
    assert len(page.attributes("details")) == len(design.factors) + 1  # cells of each grid, design


def test_page__shows_the_design_and_where_the_numbers_come_from(html, design, results):
    page = Page(html)
    assert design.text in page.text
    for name in ("design_hash", "engine", "commit", "libraries", "simstudy_version"):
        assert results.attrs[name] in page.text


def test_cells__round_trip_through_csv(folder, results):
    table = pd.read_csv(folder / "cells.csv")
    assert len(table) == results.sizes["cell"]
    for name in MEASURES:
        np.testing.assert_array_equal(table[name], results[name].sel(source="empirical"))
        for source in THEORIES:
            np.testing.assert_array_equal(table[f"{name}_{source}"], results[name].sel(source=source))
        np.testing.assert_array_equal(table[f"{name}_numerical_error"], results[f"{name}_numerical_error"])
        np.testing.assert_array_equal(table[f"{name}_mcse"], results[f"{name}_mcse"])
    np.testing.assert_array_equal(table["hdi_vendi"], results.hdi.sel(index="vendi"))
    np.testing.assert_array_equal(table["angle"], results.angle)
    assert table["grid"].tolist() == results.grid.values.tolist()
    assert table["leading_inapplicable"].notna().sum() == 7
    assert table["exact_inapplicable"].isna().sum() == 14


def test_verdicts__round_trip_through_csv(folder, results):
    table = pd.read_csv(folder / "verdicts.csv", keep_default_na=False)
    pd.testing.assert_frame_equal(table, verdict_frame(results), check_dtype=False)
    every = pd.read_csv(folder / "comparisons.csv", keep_default_na=False)
    pd.testing.assert_frame_equal(every, comparison_frame(results), check_dtype=False)
    assert table["claim"].tolist() == ["falls", "agrees", "floor"]
    assert "<script>" in table["statement"][0]


def test_design_without_claims_and_figures__has_a_report(tmp_path):
    bare = re.sub(r"\[(claims|figures)\..*?(?=\n\[profiles)", "", DESIGN, flags=re.DOTALL)
    design = build_design(tmp_path, bare)
    assert not design.claims
    assert not design.figures
    results = build_results(design).drop_dims(["claim", "comparison"])
    text = write_report(results, design, Store(tmp_path)).read_text(encoding="utf-8")
    assert "The design makes no claim." in text
    # The one that needs no declaration is there.
    assert Page(text).attributes("img")[0]["alt"] == "All cells against theory, in errors"
    assert verdict_lines(results) == []


@pytest.mark.usefixtures("undrawn")
def test_cell_without_results__is_shown_as_undefined(plain, tmp_path):
    design, results = plain
    damaged = results.copy(deep=True)
    for name in MEASURES:
        damaged[name][{"cell": 0}] = np.nan
        damaged[f"{name}_mcse"][{"cell": 0}] = np.nan
    text = write_report(damaged, design, Store(tmp_path)).read_text(encoding="utf-8")
    assert text.count('<td class="number">–<br>–<br>–</td>') >= len(MEASURES)


@pytest.mark.usefixtures("undrawn")
def test_large_grid__is_cut_and_says_so(tmp_path, monkeypatch):
    most = 40
    monkeypatch.setattr(page_module, "MAX_ROWS", most)
    angles = ", ".join(f"{a:.4f}" for a in np.linspace(0.0, 90.0, most // 4 + 1))
    large = re.sub(r"factors.angle = .*", f"factors.angle = [{angles}]", WITHOUT_FIGURES)
    design = build_design(tmp_path, large)
    results = build_results(design)
    text = write_report(results, design, Store(tmp_path)).read_text(encoding="utf-8")
    assert f"The first {most} of {most + 4} cells" in text
    first_grid = text.partition("<summary>Cells of <code>angles")[2].partition("</details>")[0]
    assert first_grid.count("<tr><td>") == most
    assert len(pd.read_csv(tmp_path / "cells.csv")) == len(cell_frame(results)) == results.sizes["cell"]


def test_report__refuses_results_of_another_text_of_the_design(design, results, tmp_path):
    edited = design.model_copy(update={"text": design.text + "# a comment"})
    for stale in (results, results.assign_attrs(design_hash=""), results.drop_attrs()):
        with pytest.raises(UserError, match="run the study again"):
            write_report(stale, edited, Store(tmp_path))
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("undrawn")
def test_undefined_verdicts_and_measures__are_shown(tmp_path, capsys):
    """A claim about cells of which no replicate is defined is undecided, with nothing but NaN to show."""
    design = build_design(tmp_path)
    undefined = build_results(design)
    for name, variable in undefined.data_vars.items():
        if variable.dtype.kind == "f":
            undefined[name][...] = np.nan
    undefined["verdict"][...] = "undecided"
    lines = verdict_lines(undefined)
    assert {(line.estimate, line.claimed, line.confidence, line.p_against) for line in lines} == {("–",) * 4}
    show_table(verdict_table(lines))
    assert capsys.readouterr().out.count("undecided") == 3
    for drawing in (draw_claims(lines), *(draw(figure, name, undefined) for name, figure in design.figures.items())):
        assert image(drawing, "svg").startswith(b"<?xml")
    assert draw_z_scores(undefined) is None
    text = write_report(undefined, design, Store(tmp_path)).read_text(encoding="utf-8")
    assert "Of 3 claims 3 are undecided" in text
