"""What is filled into pages of the site: findings, settings, and what commands, targets and the theory say."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import partial
from typing import Literal

import findings
import language
import numpy as np
import typer
import verdicts

from simstudy import theory
from simstudy.commands import app as command_line
from simstudy.design.load import load_design
from simstudy.design.settings.ensembles import bandwidth_of
from simstudy.report import sentences
from simstudy.temperatures import Problem, best_sharpness, exact_head

ROOT = verdicts.ROOT


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
    yield from ("| paper | arXiv |", "|---|---|")
    for each in sentences.papers():
        yield f"| {each['title']} | [{each['arxiv']}](https://arxiv.org/abs/{each['arxiv']}) |"
    yield ""


def ceiling() -> Iterator[str]:
    """Yield the verdicts of the study of the page of that name."""
    yield from findings.claims_table("ceiling")


def ceilings() -> Iterator[str]:
    """Yield a table of the numbers of heads that can count at attention's own temperature."""
    yield "| dimension $p$ of a head | ceiling at the centre | reached by 12 heads | ceiling over queries |"
    yield "|---|---|---|---|"
    for p in (1, 4, 16, 64, 256):
        floor = float(theory.origin_correlation(np.full(p, np.pi / 2), p**0.25))
        over_queries = float(theory.averaged_noise_ratio(np.zeros(p), p**0.25))  # of orthogonal heads it is 1
        yield f"| {p} | {1.0 / floor:.3f} | {12.0 / (1.0 + 11.0 * floor) * floor:.0%} | {over_queries:.3f} |"
    yield ""


def hot() -> Iterator[str]:
    """Yield the picture of the study of temperatures, once there is one, and its verdicts."""
    path = verdicts.GALLERY / "studies" / "temperature.png"
    if path.exists():
        yield from (f"![Which rule wins where](../../{path.relative_to(ROOT)})", "")
    yield from findings.claims_table("temperature")


def lengths(grid: str, keys: Literal["unit", "gaussian"]) -> Iterator[str]:
    """Yield a table of the excess of the rules of a grid at 4, 16 and 64 times 4096 keys, by exact theory."""
    planned = load_design(ROOT / "designs" / "temperature.toml").cells
    rules = list(dict.fromkeys(each.cell.estimator.bandwidth for each in planned if each.grid == grid))
    yield "| d | best factor | " + " | ".join(rule.label for rule in rules) + " |"
    yield "|---|---|" + "---|" * len(rules)
    for d in (4, 8, 12, 16, 32, 64, 128):
        problem, lengths = Problem(keys, d), (16384, 65536, 262_144)
        tuned, best = best_sharpness(problem, 4096), [best_sharpness(problem, n) for n in lengths]
        least = [exact_head(problem, sharpness, n).risk for sharpness, n in zip(best, lengths, strict=True)]
        row = [" / ".join(f"{sharpness / tuned:.2f}" for sharpness in best)]
        for rule in rules:
            risks = [exact_head(problem, tuned / bandwidth_of(rule, n, d) ** 2, n).risk for n in lengths]
            excess = (100.0 * (risk / low - 1.0) for risk, low in zip(risks, least, strict=True))
            row.append(" / ".join(f"{each:.1f}" if each < 9.95 else f"{each:.0f}" for each in excess))
        yield f"| {d} | " + " | ".join(row) + " |"
    yield ""


FILLED = {
    "cards": findings.cards, "answers": findings.answers, "checks": findings.checks, "others": findings.others,
    "replicated": findings.replicated, "replication": findings.replication, "table": findings.table, "ceiling": ceiling,
    "ceilings": ceilings, "commands": commands, "targets": targets, "theories": theories, "hot": hot,
    "lengths": partial(lengths, "one-length", "unit"), "lengths-gaussian": partial(lengths, "gaussian", "gaussian"),
    "settings": language.reference, "papers": papers, "sealed": verdicts.sealed,
}  # fmt: skip
