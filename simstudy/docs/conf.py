"""The documentation site, built by Sphinx from README files, these pages and docstrings.

Sphinx, as it numbers formulas, links them from docstrings and refuses links that lead nowhere.  Its source folder is
the repository, so that a page is where its file is and links between files are links between pages.
"""

from xml.etree import ElementTree

import ziamath
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html5 import HTML5Translator

project = "simstudy"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "numpydoc", "sphinx_copybutton"]
root_doc = "simstudy/docs/index"
include_patterns = [
    "simstudy/docs/*.md", "simstudy/docs/functions.rst", "designs/README.md", "designs/*/README.md",
    "simstudy/README.md", "simstudy/*/README.md",
    "tests/README.md", "tests/benchmarks/README.md", "simstudy/CONTRIBUTING.md", "findings/README.md",
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


def setup(app: Sphinx) -> dict[str, bool]:
    """Register formulas as drawings, which need neither a script nor a font."""
    app.connect("autodoc-process-docstring", _escape)
    app.connect("autodoc-skip-member", _skip)
    app.add_html_math_renderer("drawn", (_inline, None), (_display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _escape(app: Sphinx, what: str, name: str, of: object, options: object, lines: list[str]) -> None:
    """Keep bars what they are in docstrings, absolute values, which reStructuredText takes for markup."""
    lines[:] = [line.replace("|", r"\|") for line in lines]


def _skip(app: Sphinx, what: str, name: str, of: object, skip: bool, options: object) -> bool | None:
    """Leave out the fields of named tuples, of which Python says no more than their number: attributes tell of them."""
    return True if str(getattr(of, "__doc__", "")).startswith("Alias for field number") else None


def _drawing(formula: str, inline: bool) -> str:
    """Draw a formula in the colour of the text around it, on its line."""
    drawn = ziamath.Latex(formula, size=17, inline=inline, color="currentColor")
    image = drawn.svgxml()
    image.attrib |= {"role": "img", "aria-label": formula, "style": f"vertical-align: {drawn.getyofst():.1f}px"}
    return ElementTree.tostring(image, encoding="unicode")


def _inline(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(_drawing(node.astext(), inline=True))
    raise nodes.SkipNode


def _display(translator: HTML5Translator, node: nodes.math_block) -> None:
    translator.body.append(translator.starttag(node, "div", CLASS="formula"))
    translator.body.append(_drawing(node.astext(), inline=False))
    if node["number"]:
        number = get_node_equation_number(translator, node)
        translator.body.append(f'<span class="eqno">({number})')
        translator.add_permalink_ref(node, "Link to this formula")
        translator.body.append("</span>")
    translator.body.append("</div>")
    raise nodes.SkipNode
