"""What Sphinx fills into pages when it reads them, and formulas as drawings, which need neither a script nor a font."""

from __future__ import annotations

import inspect
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import language
import typer
import verdicts
import ziamath
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html5 import HTML5Translator

from simstudy import theory
from simstudy.commands import app as command_line

ROOT = verdicts.ROOT


def setup(app: Sphinx) -> dict[str, bool]:
    """Register what this extension adds; called by Sphinx."""
    app.connect("source-read", _fill)
    app.connect("autodoc-process-docstring", _escape)
    app.add_html_math_renderer("drawn", (_inline, None), (_display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _fill(app: Sphinx, page: str, source: list[str]) -> None:
    """Put lines that are computed into the place of ``<!-- fill: NAME -->``."""
    source[0] = re.sub("<!-- fill: (.*?) -->", lambda found: "\n".join(FILLED[found[1]]()), source[0])


def _escape(app: Sphinx, what: str, name: str, of: object, options: object, lines: list[str]) -> None:
    """Keep bars what they are in docstrings, absolute values, which reStructuredText takes for markup."""
    lines[:] = [line.replace("|", r"\|") for line in lines]


def studies() -> Iterator[str]:
    """Yield the gallery: each shipped study with question, sizes, a picture if it was run here, and its verdicts."""
    found = verdicts.read()
    questions = dict(re.findall(r"^\| \[`(.*?)`\].*?\| (.*) \|$", language.PAGE.read_text(), flags=re.MULTILINE))
    for path in sorted((ROOT / "designs").glob("*.toml")):
        design = tomllib.loads(path.read_text())
        yield from (f"## {path.stem}: {questions[path.stem]}", "", f"**{design['study']['title']}.**", "")
        yield from _picture(path.stem, design.get("figures", {}))
        origins = Counter(claim.get("origin", "unstated") for claim in design["claims"].values())
        counted = ", ".join(f"{count} {origin}" for origin, count in sorted(origins.items()))
        yield from (f"{len(design['claims'])} claims ({counted}): [the design](../../designs/{path.name}), "
                    f"`make study STUDY={path.stem}`.", "")  # fmt: skip
        judged = {*found[found.study == path.stem].claim}
        names = [f"{path.stem}/{claim}" for claim in design["claims"] if claim in judged]
        yield from (verdicts.quoted(names, found) if names else "No verdicts are stored yet.", "")
        yield from ("What is asked, and what theory expects: " + " ".join(design["study"]["aim"].split()), "")


def _picture(study: str, figures: dict[str, dict[str, str]]) -> Iterator[str]:
    """The first figure that the design declares, if the study was run here."""
    folder = Path("outputs") / study / "quick" / "figures"
    for name, figure in list(figures.items())[:1]:
        if (ROOT / folder / f"{name}.png").exists():
            yield from (f"![{figure['title']}](../../{folder / name}.png)", "", f"*{figure['title']}*", "")


def commands() -> Iterator[str]:
    """Yield what ``--help`` says of each command."""
    group = typer.main.get_group(command_line)
    for name, command in group.commands.items():
        yield from (f"## simstudy {name}", "", inspect.cleandoc(command.help or ""), "")
        for parameter in command.params:
            names = ", ".join(f"`{each}`" for each in parameter.opts)
            default = parameter.default
            said = f" Default: `{default}`." if default not in (None, False, ()) and not callable(default) else ""
            yield f"- {names}: {getattr(parameter, 'help', '')}{' Required.' if parameter.required else said}"
        yield ""


def targets() -> Iterator[str]:
    """Yield what ``make help`` says of each target."""
    for name, said in re.findall(r"^([a-z]+):.*## (.*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE):
        yield f"- `make {name}`: {said}"


def theories() -> Iterator[str]:
    """Yield a reference entry for each public name of the theory."""
    for name in theory.__all__:
        kind = "autoclass" if inspect.isclass(getattr(theory, name)) else "autofunction"
        yield from (f".. {kind}:: simstudy.theory.{name}", "")


FILLED = {"studies": studies, "commands": commands, "targets": targets, "theories": theories}


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
