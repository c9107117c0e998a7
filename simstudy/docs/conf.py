"""The documentation site, built by Sphinx from README files, these pages and docstrings.

The source folder is the repository, so that a page is where its file is: links between files are links between pages.
"""

import tomllib
from pathlib import Path
from xml.etree import ElementTree

import ziamath
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html5 import HTML5Translator

project = "simstudy"
extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc", "sphinx_copybutton"]
root_doc = "simstudy/docs/contents"
include_patterns = [
    "simstudy/docs/*.md", "simstudy/docs/*.rst", "simstudy/*.md", "simstudy/*/README.md", "findings/README.md",
    "designs/README.md", "designs/*/README.md", "tests/README.md", "tests/*/README.md",
]  # fmt: skip
exclude_patterns = [".*", "outputs/site", "outputs/*/*", "tests/*/*/*"]

myst_enable_extensions, myst_heading_anchors = ["dollarmath"], 3
smartquotes = False  # two hyphens are two hyphens
nitpicky = True
default_role = "code"  # single backticks in docstrings, as in Markdown
nitpick_ignore_regex = [("py:.*", r"(collections|numpy|pandas|xarray)\..*")]
autodoc_default_options = {"members": True}
autodoc_typehints = "none"  # numpydoc says them in words
numpydoc_show_class_members = False
html_math_renderer = "drawn"

html_theme = "furo"
html_title = "simstudy"
html_static_path = html_css_files = ["style.css"]
html_additional_pages = {"index": "redirect.html"}
templates_path = ["."]
html_show_sphinx = html_show_copyright = False
html_copy_source = False


def setup(app: Sphinx) -> None:
    """Register formulas as drawings, which need neither a script nor a font, and the gallery."""
    app.connect("source-read", _gallery)
    app.connect("autodoc-process-docstring", _escape_bars)
    app.connect("autodoc-skip-member", _skip_fields_of_named_tuples)
    app.add_html_math_renderer("drawn", (_inline, None), (_display, None))


def _gallery(app: Sphinx, page: str, source: list[str]) -> None:
    for design in sorted(Path(app.srcdir).glob("designs/*/design.toml")) if page.endswith("/gallery") else ():
        name, title = design.parent.name, tomllib.loads(design.read_text("utf-8"))["study"]["title"]
        source[0] += f"\n   .. figure:: /outputs/gallery/studies/{name}.png\n      :alt: {title}\n\n"
        source[0] += f"      :doc:`{title} </designs/{name}/README>`\n"


def _escape_bars(app: Sphinx, what: str, name: str, of: object, options: object, lines: list[str]) -> None:
    lines[:] = [line.replace("|", r"\|") for line in lines]  # absolute values, no markup


def _skip_fields_of_named_tuples(app: Sphinx, what: str, name: str, of: object, *_: object) -> bool | None:
    return True if str(getattr(of, "__doc__", "")).startswith("Alias for field number") else None


def _drawing(formula: str, inline: bool) -> str:
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
