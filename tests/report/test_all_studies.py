"""One page for all studies: every verdict and figure on it, nothing loaded, nothing of another design."""

import html
import json
import re

import pytest
from builders import DESIGN, edited, refuses
from pages import Page, dom, needs_browser

from simstudy import run
from simstudy.design.load import designs_in, is_shipped, shipped_folder
from simstudy.report.page import gather


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gather")
    paths = []
    for name in ("first", "second", "third"):
        path = folder / f"{name}.toml"
        path.write_text(edited(DESIGN, 'name = "tiny"', f'name = "{name}"'))
        run(path, output=folder / "outputs", executor="serial")
        paths.append(path)
    absent = folder / "absent.toml"
    absent.write_text(edited(DESIGN, 'name = "tiny"', 'name = "absent"\nmistake = 1'))
    return gather([*paths, absent], "quick", folder / "outputs"), paths


def test_page__holds_every_study_that_was_run_and_is_whole(page):
    text = page[0].read_text()
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
    (tmp_path / "own").mkdir()
    design = tmp_path / "own" / "design.toml"
    design.write_text(DESIGN)
    (tmp_path / "pyproject.toml").write_text("[project]")
    assert designs_in(tmp_path) == [design]
    assert is_shipped(shipped_folder() / "identity" / "design.toml") and not is_shipped(design)


def test_page__answers_first_and_links_to_the_pages_of_studies_that_have_one(page):
    path, designs = page
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


def test_results_of_an_edited_design__are_refused(page):
    path, designs = page
    designs[0].write_text(designs[0].read_text() + "\n# edited\n")
    refuses(r"first/quick/results.nc: the design has changed since", gather, designs, "quick", path.parent)
    refuses("no study has results in profile 'quick'", gather, [], "quick", path.parent)


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


def seen(page, width: int, folder) -> dict:
    probe = folder / f"probe-{width}.html"
    probe.write_text(PROBE.format(page=page.as_uri(), width=width))
    shown = dom(probe.as_uri(), folder, "--hide-scrollbars", "--allow-file-access-from-files")
    return json.loads(html.unescape(shown[shown.index("{") : shown.rindex("}") + 1]))


@needs_browser
@pytest.mark.parametrize("width", [390, 1280])
def test_page__in_a_browser_is_no_wider_than_its_window_and_shows_every_figure(page, tmp_path, width):
    assert seen(page[0], width, tmp_path) == {"width": width, "out": [], "pictures": 3, "missing": 0}
