"""One page for all studies: every verdict and figure on it, nothing loaded, nothing of another design."""

from __future__ import annotations

import html.parser

import pytest
from builders import DESIGN, edited

from simstudy import run
from simstudy.gather import gather
from simstudy.problems import UserError


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gather")
    paths = []
    for name in ("first", "second"):
        path = folder / f"{name}.toml"
        path.write_text(edited(DESIGN, 'name = "tiny"', f'name = "{name}"'))
        run(path, output=folder / "outputs", executor="serial")
        paths.append(path)
    absent = folder / "absent.toml"
    absent.write_text(edited(DESIGN, 'name = "tiny"', 'name = "absent"'))
    return gather([*paths, absent], "quick", folder / "outputs"), paths


class Tags(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.ids, self.images = [], [], []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.images += [attributes["src"][:22]] if tag == "img" else []
        if tag not in ("meta", "br", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_page__holds_every_study_that_was_run_and_is_whole(page):
    text = page[0].read_text()
    tags = Tags()
    tags.feed(text)
    assert tags.open == [] and len(set(tags.ids)) == len(tags.ids)
    assert {"first", "second"} <= set(tags.ids) and "absent" not in tags.ids
    assert tags.images == ["data:image/png;base64,"] * 2
    assert "http://" not in text and "https://" not in text
    for name in ("first", "second"):
        assert f'href="#{name}"' in text


def test_results_of_an_edited_design__are_refused(page):
    path, designs = page
    designs[0].write_text(designs[0].read_text() + "\n# edited\n")
    with pytest.raises(UserError, match=r"first/quick/results.nc: not of this text of the design"):
        gather(designs, "quick", path.parent)


def test_no_results__is_a_message(tmp_path):
    with pytest.raises(UserError, match="no study has results in profile 'quick'"):
        gather([], "quick", tmp_path)
