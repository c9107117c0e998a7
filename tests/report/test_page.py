"""Reports of one study and of all, their words, tables and files: complete, self-contained, safe, always the same."""

import base64
import hashlib
import json
import math
import re
import sys
from html import unescape

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from builders import refuses, varied, write_design
from builders_results import ANGLES, DESIGN, build_results, stated, with_grid
from jinja2 import UndefinedError
from pages import Page, dom, needs_browser

from simstudy import run
from simstudy.design.load import designs_in, is_shipped, load_design, shipped_folder
from simstudy.design.measures import INDICES, MEASURES, THEORIES
from simstudy.execution.store import Store
from simstudy.report import labels, tables
from simstudy.report import page as page_module
from simstudy.report.figures import draw, image
from simstudy.report.page import figure_files, gather, render, write_report
from simstudy.report.tables import cell_frame, comparison_lines, count_verdicts, csv_of, verdict_lines, verdict_table
from simstudy.report.terminal import say
from simstudy.results import cells_of, tree_of


@pytest.fixture(scope="module")
def folder(design, results, tmp_path_factory):
    stored = cells_of(Store(tmp_path_factory.mktemp("stored")).write_dataset("results.nc", tree_of(results)))
    folder = tmp_path_factory.mktemp("report")
    assert write_report(stored, design, Store(folder)) == folder / "report.html"
    return folder


@pytest.fixture(scope="module")
def html(folder):
    return (folder / "report.html").read_text(encoding="utf-8")


def test_page__is_well_formed_needs_nothing_else_and_shows_the_figures_that_are_stored(html, design, folder):
    page = Page(html)
    assert page.open == [] and len(set(page.ids)) == len(page.ids)
    assert {tag for tag, _ in page.tags}.isdisjoint({"link", "iframe", "object", "script"})
    sources = [attrs["src"] for _, attrs in page.tags if "src" in attrs]
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert [picture["alt"] for picture in page.attributes("img")] == [each.title for each in design.figures.values()]
    for name, source in zip(design.figures, sources, strict=True):
        assert base64.b64decode(source.partition(",")[2]) == (folder / "figures" / f"{name}.png").read_bytes()
    links = [attrs["href"] for _, attrs in page.tags if "href" in attrs]
    assert {link[1:] for link in links} == {"claims", "figures", "cells", "reading", "provenance"} < {*page.ids}
    assert not any(word in re.sub(r'src="data:[^"]*"', "", html) for word in ("http:", "https:", "url("))
    assert not any(name.startswith("on") or name == "style" for _, attrs in page.tags for name in attrs)
    policy = next(attrs["content"] for attrs in page.attributes("meta") if "http-equiv" in attrs)
    (style,) = re.findall("<style>(.*?)</style>", html, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    allowed = f"img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert policy == f"default-src 'none'; {allowed}"
    assert "Does &lt;b&gt;nothing&lt;/b&gt;" in html and "&lt;script&gt;alert(1)" in html
    with pytest.raises(UndefinedError, match="verdikt"):  # a name that nobody gives a template is no blank
        page_module.template("page.html").environment.from_string("{{ verdikt }}").render()


def test_first_screen__has_question_answer_with_its_number_and_one_figure(html):
    text = " ".join(Page(html).text.split())
    parts = [
        "A made-up study", "Does <b>nothing</b>",
        "The variance falls with the angle <script>alert(1)</script>: supported, as expected (0.500 ± 0.012, claimed",
        "3 claims: 1 supported, 1 contradicted, 1 undecided; 1 not as expected",
        "Ensemble variance & angle", "How to read", "One cell",
    ]  # fmt: skip
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert html.count("<figure") == 2 and html.index("<figure") < html.index('id="claims"')
    lines = re.findall(r'<details class="claim">\s*<summary>(.*?)</summary>', html, flags=re.DOTALL)
    told = [" ".join(Page(line).text.split()) for line in lines]
    assert [line.split(" ")[0].strip(",") for line in told] == ["supported", "contradicted", "undecided"]
    assert ["not as expected" in line for line in told] == [False, False, True] and "0.600 ± 0.012" in told[1]
    assert all("<svg" in line for line in lines)


def test_page__says_of_each_grid_its_size_target_factors_and_where_theory_applies(html, design, results):
    text = " ".join(Page(html).text.split())
    inside = results.isel(cell=np.flatnonzero(results.grid.values == "angles"))
    counts = f"28 cells, {int(inside.n_replicates.sum()):,} replicates, {int(inside.n_failed.sum())} failed, 2 short"
    assert f"angles: {counts} of the target. Target: MCSE of ensemble_variance ≤ 2 % of the estimate; 1024 to" in text
    assert "theory, exact: applies to 14 of 28 cells; elsewhere: too many quadrature nodes (14)" in text
    assert "theory, leading order: applies to 26 of 28 cells; elsewhere: query far beyond the keys (2)" in text
    assert "angle [degrees]: 0; 15; 30; 45; 60; 75; 90" in text and "bandwidth b: 0.4; 0.8; attention" in text
    assert text.count("(short of the target)") == int((~results.precision_reached.values).sum()) == 4
    rows = [each.partition("</details>")[0].count("<tr><td>") for each in html.split("<summary>Estimates of ")[1:]]
    assert sum(rows) == results.sizes["cell"] and design.text in Page(html).text
    for name in ("design_hash", "engine", "commit", "libraries", "simstudy_version"):
        assert results.attrs[name] in text


def test_page__lists_a_few_reasons_and_shows_every_comparison_of_a_claim_below_it_on_one_axis(results, design):
    several = results.copy(deep=True)
    several.inapplicable.loc[{"source": "leading"}] = [f"reason {i}" for i in range(several.sizes["cell"])]
    several["comparison_claim"] = "comparison", ["falls", "falls", "agrees"]
    several["comparison_claimed_lower"][:2], several["comparison_claimed_upper"][:2] = -0.1, 0.1
    page = " ".join(Page(render(several, design, {})).text.split())
    told = "applies to 0 of 28 cells; elsewhere: reason 0 (1); reason 1 (1); reason 2 (1); others in 25 cells"
    assert told in page and "reason 3 " not in page
    assert page.count("confidence interval claimed found") == 1
    assert "0.500 ± 0.012 0.460 to 0.550 -0.1 to 0.1 inside" in page
    first, second = comparison_lines(several)["falls"]
    assert first["picture"].claimed == second["picture"].claimed
    assert first["picture"].estimate < second["picture"].estimate
    parted = results.copy()
    parted["comparison_no_verdict_because"] = "comparison", ["", "", "too few blocks"]
    lines = [line for lines in comparison_lines(parted).values() for line in lines]
    assert [line["finding"] for line in lines] == ["inside", "undecided", "too few blocks"]


def test_cells_and_verdicts__round_trip_through_csv(folder, results):
    table = pd.read_csv(folder / "cells.csv")
    assert len(table) == results.sizes["cell"]
    for name in MEASURES:
        np.testing.assert_array_equal(table[name], results[name].sel(source="empirical"))
        for source in THEORIES:
            np.testing.assert_array_equal(table[f"{name}_{source}"], results[name].sel(source=source))
        np.testing.assert_array_equal(table[f"{name}_numerical_error"], results[f"{name}_numerical_error"])
        np.testing.assert_array_equal(table[f"{name}_mcse"], results[f"{name}_mcse"])
    assert tuple(labels.INDEX_NAMES) == INDICES
    np.testing.assert_array_equal(table["hdi_vendi"], results.hdi.sel(index="vendi"))
    np.testing.assert_array_equal(table["angle"], results.angle)
    assert table["grid"].tolist() == results.grid.values.tolist()
    assert table["leading_inapplicable"].notna().sum() == 7 and table["exact_inapplicable"].isna().sum() == 14
    for name, frame in (("verdicts", tables.verdict_frame), ("comparisons", tables.comparison_frame)):
        stored = pd.read_csv(folder / f"{name}.csv", keep_default_na=False)
        pd.testing.assert_frame_equal(stored, frame(results), check_dtype=False)


def test_design_without_claims_and_figures__has_a_report(tmp_path):
    design = load_design(DESIGN | {"claims": {}, "figures": {}})
    results = build_results(design).drop_dims(["claim", "comparison"])
    text = write_report(results, design, Store(tmp_path)).read_text(encoding="utf-8")
    assert "The design makes no claim." in text and verdict_lines(results) == []
    # What it is precise about, against the factor with most levels; nothing was declared.
    titles = [image["alt"] for image in Page(text).attributes("img")]
    assert titles == ["ensemble variance [Y²] against angle [degrees]"]


@pytest.mark.usefixtures("undrawn")
def test_large_grid__is_cut_and_says_so(tmp_path, monkeypatch):
    most = 40
    monkeypatch.setattr(page_module, "MAX_ROWS", most)
    angles = {"angle": np.linspace(0.0, 90.0, most // 4 + 1).round(4).tolist()}
    design = with_grid("angles", ANGLES | {"factors": ANGLES["factors"] | angles})
    results = build_results(design)
    text = write_report(results, design, Store(tmp_path)).read_text(encoding="utf-8")
    assert f"The first {most} of {most + 4} cells" in text
    assert text.partition("<summary>Estimates of <code>angles")[2].partition("</details>")[0].count("<tr><td>") == most
    assert len(pd.read_csv(tmp_path / "cells.csv")) == len(cell_frame(results)) == results.sizes["cell"]


@pytest.mark.usefixtures("undrawn")
def test_undefined_verdicts_and_measures__are_shown(tmp_path, capsys):
    design = load_design(DESIGN)
    undefined = build_results(design)
    for name, variable in undefined.data_vars.items():
        if variable.dtype.kind == "f":
            undefined[name][...] = np.nan
    undefined["verdict"][...] = "undecided"
    lines = verdict_lines(undefined)
    assert {(line.estimate, line.claimed, line.confidence, line.p_against) for line in lines} == {("–",) * 4}
    say(verdict_table(lines))
    assert capsys.readouterr().out.count("undecided") == 3
    diversity = stated("diversity", index="vendi", grid="angles", hue="n_keys", panel="regression")
    for figure in (*design.figures.values(), diversity):
        assert image(draw(figure, "f", undefined)).startswith(b"\x89PNG")
    text = write_report(undefined, design, Store(tmp_path)).read_text(encoding="utf-8")
    assert "3 claims: 0 supported, 0 contradicted, 3 undecided" in text


@pytest.fixture(scope="module")
def gathered(tmp_path_factory):
    folder, paths = tmp_path_factory.mktemp("gather"), []
    for name in ("first", "second", "third"):
        paths.append(write_design(folder / name, varied(name=name)))
        run(paths[-1], output=folder / "outputs", executor="serial")
    absent = write_design(folder / "absent", varied(name="absent") + "[mistake]\n")
    return gather([*paths, absent], "quick", folder / "outputs"), paths


def test_page__holds_every_study_that_was_run_and_is_whole(gathered):
    text = gathered[0].read_text()
    read = Page(text)
    assert read.open == [] and len(set(read.ids)) == len(read.ids)
    assert {"first", "second", "third"} <= set(read.ids) and "absent" not in read.ids
    assert [image["src"][:22] for image in read.attributes("img")] == ["data:image/png;base64,"] * 3
    assert "<script" not in text and "http://" not in text and "https://" not in text
    level = "of 20 studies one may have a wrong verdict. For all 3 studies together, judge each at 0.05/3"
    assert level in " ".join(text.split()) and "<title>All studies: claims and verdicts</title>" in text
    # Studies of one's own have nothing to do with the paper, and state no origin.
    assert not [word for word in ("2605.20271", "Nadaraya", "the design does not say", "unstated") if word in text]
    for name in ("first", "second"):
        assert f'href="#{name}"' in text


def test_designs_beside_one_another__are_found_and_other_files_are_not(tmp_path):
    design = write_design(tmp_path / "own")
    (tmp_path / "pyproject.toml").write_text("[project]")
    assert designs_in(tmp_path) == [design]
    assert is_shipped(shipped_folder() / "identity" / "design.toml") and not is_shipped(design)


def test_page__answers_first_links_to_pages_of_studies_that_have_one_and_refuses_an_edited_design(gathered):
    path, designs = gathered
    text = path.read_text()
    assert 'class="answer">3 claims: 0 supported, 0 contradicted, 3 undecided; all as expected' in text
    assert text.count('class="answer">The error falls: undecided, as expected (') == 3
    assert text.count("<p>1 claim: 0 supported, 0 contradicted, 1 undecided; as expected") == 3
    places = [text.index(part) for part in ('class="answer"', "<nav", '<section id="first"', 'id="reading"')]
    assert places == sorted(places)
    assert "simstudy report first" in text and "report.html" not in text
    own = path.parent / "first" / "quick" / "report.html"
    own.write_text("")
    again = gather(designs, "quick", path.parent).read_text()
    own.unlink()
    assert re.findall(r'href="([^#"]+)"', again) == ["first/quick/report.html"]
    before = designs[0].read_text()
    designs[0].write_text(before + "\n# edited\n")
    refuses(r"first/quick/results.nc: the design has changed since", gather, designs, "quick", path.parent)
    refuses("no study has results in profile 'quick'", gather, [], "quick", path.parent)
    designs[0].write_text(before)


PROBE = """<!DOCTYPE html><iframe src="{page}" width="{width}" height="800" style="border: 0"></iframe><script>
const frame = document.querySelector("iframe");
onload = () => {{
  const page = frame.contentDocument, boxed = (e) => e.closest(".scroll, pre");
  const out = [...page.querySelectorAll("body *")].filter(
    (e) => !boxed(e) && e.getBoundingClientRect().right > {width} + 0.5);
  const pictures = [...page.images];
  document.body.textContent = JSON.stringify({{
    width: page.documentElement.scrollWidth, out: out.slice(0, 5).map((e) => e.outerHTML.slice(0, 80)),
    pictures: pictures.length, missing: pictures.filter((e) => !e.complete || !e.naturalWidth).length}});
}};</script>"""


@needs_browser
@pytest.mark.parametrize("width", [390, 1280])
def test_page__in_a_browser_is_no_wider_than_its_window_and_shows_every_figure(gathered, tmp_path, width):
    probe = tmp_path / "probe.html"
    probe.write_text(PROBE.format(page=gathered[0].as_uri(), width=width))
    shown = dom(probe.as_uri(), tmp_path, "--hide-scrollbars", "--allow-file-access-from-files")
    found = json.loads(unescape(shown[shown.index("{") : shown.rindex("}") + 1]))
    assert found == {"width": width, "out": [], "pictures": 3, "missing": 0}


def test_csv__holds_no_formulas():
    frame = pd.DataFrame({"text": ["=1+1", "+a", "-b", "@c", "\tx", "\rx", "a=b", ""], "number": -0.35 * np.arange(8)})
    lines = csv_of(frame).replace("\r", "CR").splitlines()
    # Python quotes a text with a carriage return from 3.13 on.
    returned = '"\'CRx"' if sys.version_info >= (3, 13) else "'CRx"
    assert lines[1:] == [
        "'=1+1,-0.0", "'+a,-0.35", "'-b,-0.7", "'@c,-1.0499999999999998", "'\tx,-1.4", f"{returned},-1.75",
        "a=b,-2.0999999999999996", ",-2.4499999999999997",
    ]  # fmt: skip


def test_verdict_lines__round_to_the_error_compare_with_what_was_expected_and_are_printed_as_they_are(results, capsys):
    lines = verdict_lines(results)
    assert [line.verdict for line in lines] == ["supported", "contradicted", "undecided"]
    assert [line.as_expected for line in lines] == [True, True, False]
    assert lines[1].estimate == "0.600 ± 0.012"
    assert lines[1].claimed == "0.4 to 0.6" and lines[1].confidence == "0.560 to 0.650" and lines[1].level == "96.67 %"
    assert lines[2].p_against == "< 0.0001" and lines[2].why == "too few blocks" and lines[2].expected == "supported"
    assert count_verdicts([]) == "The design makes no claim."
    say(verdict_table(lines))
    printed = capsys.readouterr().out
    assert "96.67 % confidence intervals, valid at any number of looks" in printed
    assert "ensemble_variance at [n_keys = 100]" in printed
    for word in ("falls", "undecided", "0.500 ± 0.012", "claimed -0.1 to 0.1", "within 0.460 to 0.550"):
        assert word in printed
    # What the design names stands before what decides: here the first of two comparisons of the first claim.
    found = results.copy()
    found["comparison_claim"] = "comparison", ["falls", "falls", "agrees"]
    found["comparison_statistic"] = "comparison", ["first", "second", str(found.statistic.values[1])]
    found["statistic"] = "claim", ["first", *found.statistic.values.tolist()[1:]]
    named = found.assign(representative_statistic=("claim", ["second", "", ""]))
    for given, expected in ((found, ("first", "", "0.500 ± 0.012")), (named, ("second", "first", "0.600 ± 0.012"))):
        line = verdict_lines(given)[0]
        assert (line.statistic, line.decided_by, line.estimate) == expected


def test_figure_files__are_the_same_whatever_matplotlib_is_told(design, results):
    files = figure_files(results, few := design.model_copy(update={"figures": {}}))
    assert list(files) == [labels.OVERVIEW] and all(each.startswith(b"\x89PNG") for each in files.values())
    with mpl.rc_context({"text.usetex": True, "axes.facecolor": "red", "savefig.dpi": 10}):
        assert figure_files(results, few) == files


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize("worded, given, text", [
    (labels.with_error, (0.51234, 0.0021), "0.5123 ± 0.0021"),
    (labels.with_error, (-0.51234, 0.0021), "-0.5123 ± 0.0021"),
    (labels.with_error, (0.5, 0.0996), "0.50 ± 0.10"),
    (labels.with_error, (0.5, 0.00996), "0.500 ± 0.010"),
    (labels.with_error, (12345.6, 120.0), "12350 ± 120"),
    (labels.with_error, (12345.6, 1.2), "12345.6 ± 1.2"),
    (labels.with_error, (-1e-9, 0.03), "0.000 ± 0.030"),
    (labels.with_error, (1.00000237, 1.9e-7), "1.00000237 ± 0.00000019"),
    (labels.with_error, (5.1234e-8, 2.1e-10), "(5.123 ± 0.021)e-8"),
    (labels.with_error, (1e-12, 3e-9), "(0.0 ± 3.0)e-9"),
    (labels.with_error, (5.1234e9, 2.1e7), "(5.123 ± 0.021)e9"),
    (labels.with_error, (1.0, 1e-17), "1 ± 1.0e-17"),
    (labels.with_error, (2.0, 300.0), "0 ± 300"),
    (labels.with_error, (0.5, 0.0), "0.5 ± 0"),
    (labels.with_error, (0.5, NAN), "0.5 (too few replicates)"),
    (labels.with_error, (0.5, INF), "0.5 ± inf"),
    (labels.with_error, (INF, 0.1), "inf ± 0.1"),
    (labels.with_error, (NAN, 0.1), "–"),
    (labels.number, (1e-5,), "1e-5"),
    (labels.number, (123456.0,), "1.235e5"),
    (labels.number, (0.25,), "0.25"),
    (labels.number, (NAN,), "–"),
    # Ends of an interval have the digits of the estimate.
    (labels.between, (0.972924, 1.02976, 0.0066), "0.9729 to 1.0298"),
    (labels.between, (-566.037, -468.586, 13.0), "-566 to -469"),
    (labels.between, (-INF, 0.00773562, 0.00022), "≤ 0.00774"),
    (labels.between, (1.23456e-8, 2.5e-8, 2.1e-10), "1.235e-8 to 2.500e-8"),
    (labels.between, (0.4, 0.6, NAN), "0.4 to 0.6"),
    # Of intervals: what the claims of a study leave on both sides.
    (labels.level_of, (1,), "90 %"),
    (labels.level_of, (9,), "98.89 %"),
    (labels.level_of, (20,), "99.5 %"),
    (labels.level_name, (0.5,), "0.5"),
    (labels.level_name, ("rate(smoothness=2)",), "rate(smoothness=2)"),
    (labels.level_name, ("",), "none"),
    (labels.level_name, (NAN,), "none"),
    (labels.level_name, (2,), "2"),
    (labels.level_name, (False,), "false"),
    (labels.measure_name, ("mse",), "mean squared error [Y²]"),
    (labels.measure_name, ("bias",), "bias"),
    *((labels.setting_name, (name,), text) for name, text in (
        ("bandwidth.value", "bandwidth value"), ("noise.df", "noise df"), ("mask.width", "width of the band [keys]"))),
    (labels.setting_and_level, ("angle", 45.0), "angle: 45°"),
    (labels.setting_and_level, ("n_keys", 400.0), "n = 400"),
])  # fmt: skip
def test_words(worded, given, text):
    assert worded(*given) == text
