"""What Sphinx fills into pages when it reads them, and formulas as drawings, which need neither a script nor a font."""

import re
from xml.etree import ElementTree

import ziamath
from docutils import nodes
from findings import FILLED, write_studies
from sphinx.application import Sphinx
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html5 import HTML5Translator


def setup(app: Sphinx) -> dict[str, bool]:
    """Register what this extension adds; called by Sphinx."""
    app.connect("builder-inited", lambda _: write_studies())
    app.connect("source-read", _fill)
    app.connect("autodoc-process-docstring", _escape)
    app.connect("autodoc-skip-member", _skip)
    app.add_html_math_renderer("drawn", (_inline, None), (_display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _fill(app: Sphinx, page: str, source: list[str]) -> None:
    """Put lines that are computed into the place of ``<!-- fill: NAME -->``."""
    source[0] = re.sub("<!-- fill: (.*?) -->", lambda found: "\n".join(FILLED[found[1]]()), source[0])


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
