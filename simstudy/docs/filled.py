"""What is filled into pages of the site: what commands, targets, theory and designs say of themselves."""

import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from simstudy import theory
from simstudy.commands import app as command_line
from simstudy.report import answer

ROOT = Path(__file__).parents[2]


def markdown(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in row) + " |"


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


def papers() -> Iterator[str]:
    """Yield a table of the papers whose abstracts are tested."""
    links = [(each["title"], f"[{each['arxiv']}](https://arxiv.org/abs/{each['arxiv']})") for each in answer.papers()]
    yield from (*markdown(("paper", "arXiv"), links), "")


FILLED = {
    "commands": commands,
    "targets": targets,
    "theories": theories,
    "papers": papers,
}
