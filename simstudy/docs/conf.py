"""The documentation site, built by Sphinx from README files, these pages and docstrings.

Sphinx, as it numbers formulas, links them from docstrings and refuses links that lead nowhere.  Its source folder is
the repository, so that a page is where its file is and links between files are links between pages.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # of the extension `pages`

project = "simstudy"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "numpydoc", "sphinx_copybutton", "pages"]
root_doc = "simstudy/docs/index"
include_patterns = [
    "simstudy/docs/*.md", "simstudy/docs/studies/*.md", "designs/README.md", "outputs/README.md", "simstudy/README.md",
    "simstudy/*/README.md",
    "tests/README.md", "tests/benchmarks/README.md", "simstudy/CHANGES.md", "simstudy/CONTRIBUTING.md",
]  # fmt: skip
exclude_patterns = [".*", "outputs/site", "outputs/*/*", "tests/*/*/*"]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
smartquotes = False  # two hyphens are two hyphens
nitpicky = True
default_role = "code"  # single backticks in docstrings, as in Markdown
nitpick_ignore_regex = [("py:.*", r"(collections|numpy|pandas|xarray)\..*")]
autosummary_generate = False
autodoc_default_options = {"members": True}
autodoc_typehints = "none"  # numpydoc says them in words
numpydoc_show_class_members = False
numpydoc_validation_checks: set[str] = set()
html_math_renderer = "drawn"

html_theme = "furo"
html_title = "simstudy"
html_static_path = ["style.css"]
html_css_files = ["style.css"]
html_additional_pages = {"index": "redirect.html"}
templates_path = ["."]
html_show_sphinx = html_show_copyright = False
html_copy_source = False
