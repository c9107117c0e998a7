"""Pages and documents as tests read them: tags, text, blocks and numbers, and what a browser makes of them."""

import re
import shutil
import subprocess
import textwrap
from html.parser import HTMLParser
from pathlib import Path

import pytest
from commands import ROOT, simstudy

DOCUMENTS = {path.relative_to(ROOT).as_posix(): path.read_text() for path in (
    ROOT / "README.md", *ROOT.glob("[dost]*/README.md"), *ROOT.glob("simstudy/*/README.md"),
    *ROOT.glob("designs/*/README.md"),
    *ROOT.glob("simstudy/docs/*.md"), *ROOT.glob("simstudy/C*.md"), ROOT / "tests" / "benchmarks" / "README.md",
)}  # fmt: skip
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
SETTINGS = ROOT / "simstudy" / "docs" / "settings.rst"
"""The reference of all settings and measures, which `python tests/pages.py` writes."""


class Page(HTMLParser):
    """Reads a page and keeps its tags, its text, and whether every tag is closed where it was opened."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open, self.tags, self.text = [], [], ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br", "img", "link", "hr"):
            self.open.append((tag, dict(attrs).get("class", "")))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag
        self.text += " " if tag in ("td", "th") else ""

    def handle_data(self, data):
        if not self.open or self.open[-1][0] not in ("script", "style"):
            self.text += data

    def attributes(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]

    @property
    def ids(self):
        return [attrs["id"] for _, attrs in self.tags if "id" in attrs]


def blocks(language: str, document: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", DOCUMENTS[document], flags=re.DOTALL | re.MULTILINE)


def lacking(document: str, *texts: str, below: str = "") -> list[str]:
    """Texts, numbers of a run above all, that a document does not have below a heading."""
    text = DOCUMENTS[document]
    text = text.split(below)[1].split("\n## ")[0] if below else text
    return [each for each in texts if each not in text]


def bandwidth_of(library: str, given: float, sd: float = 1.0) -> float:
    """The bandwidth of `nw_ensemble` to which the page on models converts that of another library."""
    rows = re.findall(r"^\| (.*?) \| `(.*?)`.* \|", DOCUMENTS["simstudy/docs/your-model.md"], flags=re.MULTILINE)
    (rule,) = [rule for names, rule in rows if re.search(rf"\b{library}\b", names) and "B" in rule]
    return eval(rule, {"B": given, "sd": sd})


def dom(address: str, folder: Path, *options: str) -> str:
    """What a browser makes of a page, as text of its elements."""
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}",
               "--virtual-time-budget=20000", "--dump-dom", *options, address]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def settings_page() -> str:
    """What `simstudy describe` prints, a heading for each table."""
    title = "Settings and measures"
    page = f"{title}\n{'=' * len(title)}\n\n``simstudy describe`` prints this page, or a part of it.\n"
    for table in simstudy("describe").stdout.strip().split("\n\n"):
        name, *lines = table.splitlines()
        page += f"\n{name}\n{'-' * len(name)}\n\n.. code-block:: none\n\n"
        for line in lines:
            page += textwrap.fill(line, 116, initial_indent="   ", subsequent_indent="     ") + "\n"
    return page


if __name__ == "__main__":
    SETTINGS.write_text(settings_page())
