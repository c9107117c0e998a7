"""What is filled into pages of the site: the gallery of studies, and what commands, targets and the theory say."""

from __future__ import annotations

import functools
import inspect
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import language
import numpy as np
import pandas as pd
import typer
import verdicts

from simstudy import theory
from simstudy.commands import app as command_line
from simstudy.report.formulas import EQUATIONS

ROOT = verdicts.ROOT
MOST_NAMED = 4
"""Claims of one study that a row names."""


def studies() -> Iterator[str]:
    """Yield the gallery: each shipped study with question, sizes, a picture and its verdicts."""
    found = verdicts.read()
    questions = dict(
        re.findall(r"^\| \[`(.*?)`\].*?\| (.*) \|$", (ROOT / "designs" / "README.md").read_text(), flags=re.MULTILINE)
    )
    for path in sorted((ROOT / "designs").glob("*.toml")):
        design = tomllib.loads(path.read_text())
        title = design["study"]["title"]
        yield from (
            f"(study-{path.stem})=",
            "",
            f"## {path.stem}: {questions[path.stem]}",
            "",
            f"**{title}{'' if title.endswith('?') else '.'}**",
            "",
        )
        yield from _picture(path.stem, design.get("figures", {}))
        origins = Counter(claim.get("origin", "unstated") for claim in design["claims"].values())
        counted = ", ".join(f"{count} {origin}" for origin, count in sorted(origins.items()))
        seal = Path("designs") / "sealed" / f"{path.stem}.quick.md"
        sealed = f"[preregistration](path:../../{seal}), " if (ROOT / seal).exists() else ""
        yield from (f"{len(design['claims'])} claims ({counted}): [the design](../../designs/{path.name}), "
                    f"{sealed}`make study STUDY={path.stem}`.", "")  # fmt: skip
        for study in verdicts.names_of(path):
            yield from _verdicts(study, found)
        yield from _formulas(design["claims"])
        yield from ("What is asked, and what theory expects: " + " ".join(design["study"]["aim"].split()), "")


def _verdicts(study: str, found: pd.DataFrame) -> Iterator[str]:
    """What became of the claims of a study under one profile; nothing of other profiles that were never judged."""
    claims = dict.fromkeys(found[found.study == study].claim)
    stem, _, profile = study.partition(".")
    if claims and profile:
        yield from (f"Under the profile `{profile}` (`simstudy run {stem} --profile {profile}`):", "")
    if claims or not profile:
        yield from (_told(f"{study}/{claim}", found) for claim in claims)
        yield from ("" if claims else "No verdicts are stored yet.", "")


def counts() -> Iterator[str]:
    """Yield how many claims were confirmed, by verdict."""
    found = confirmed()
    by_verdict = ", ".join(f"{count} {verdict}" for verdict, count in found.verdict.value_counts().items())
    studies = found.study.str.partition(".")[0].nunique()
    yield f"Of {studies} studies {len(found)} claims were judged on seeds that no pilot saw:"
    yield f"{by_verdict}."


def others() -> Iterator[str]:
    """Yield the confirmed verdicts that are not those that were declared."""
    found = confirmed()
    other = found[found.verdict != found.declared]
    decisive = ["supported", "contradicted"]
    turned = other[other.verdict.isin(decisive) & other.declared.isin(decisive)]
    yield f"{len(other)} were not as declared, {len(turned)} of them reversed, the others open or declared open:"
    yield from ("", *(f"- `{row.study}/{row.claim}`: {row.verdict}, declared {row.declared}. {row.statement}"
                      for row in other.itertuples()), "")  # fmt: skip


def confirmed() -> pd.DataFrame:
    """Claims that were confirmed, each once, with the verdict in which its confirmations agree."""
    found = verdicts.read()
    last = found[found.run != verdicts.PILOT].drop_duplicates(["study", "claim"], keep="last")
    agreed = [verdicts.verdict_of(row.study, row.claim, found).partition(",")[0] for row in last.itertuples()]
    return last.assign(verdict=agreed)


def _told(name: str, found: pd.DataFrame) -> str:
    """A claim in one line: what is said of it, and the numbers that decide."""
    study, _, claim = name.partition("/")
    verdict, row = verdicts.verdict_of(study, claim, found), verdicts.row_of(study, claim, found)
    return f"- **{verdict}**: {row.statement} *{row.statistic}: {row.estimate}, claimed {row.claimed}*"


def abstracts() -> Iterator[str]:
    """Yield what the abstracts of the sources assert, sentence by sentence, and what became of it."""
    found = verdicts.read()
    for paper in sources():
        yield from (f"## {paper['title']}", "", f"arXiv {paper['arxiv']}.", "")
        yield from ("| sentence | claims that put it to the test, and their verdicts |", "|---|---|")
        for sentence in paper["sentences"]:
            names = claims_of(sentence)
            of_studies = groupby(sorted(names, key=_study), key=_study)
            tested = [_judged(study, list(each), found) for study, each in of_studies]
            lacking = [f"Not tested: {sentence['untested']}."] if "untested" in sentence else []
            yield f"| {sentence['says']} | {'<br>'.join(tested + lacking)} |"
        yield ""


def _study(name: str) -> str:
    return name.partition("/")[0]


def _judged(study: str, names: list[str], found: pd.DataFrame) -> str:
    """Verdicts on some claims of a study: one by one if they are few, else counted."""
    claims = [name.partition("/")[2] for name in names]
    said = [verdicts.verdict_of(study, claim, found).removesuffix(", confirmed") for claim in claims]
    if len(claims) <= MOST_NAMED:
        text = ", ".join(f"{claim} *{verdict}*" for claim, verdict in zip(claims, said, strict=True))
    else:
        counted = ", ".join(f"{count} *{verdict}*" for verdict, count in Counter(said).most_common())
        text = f"{len(claims)} claims, {counted}"
    return f"[{study}](#study-{study}): {text}"


def sources() -> list[dict[str, Any]]:
    """Return the papers whose abstracts are put to the test: title, arxiv and sentences of each."""
    return list(tomllib.loads((Path(__file__).parent / "abstracts.toml").read_text())["paper"])


def claims_of(sentence: dict[str, Any]) -> list[str]:
    """Return the claims, STUDY/CLAIM, that put a sentence to the test: those that it names, and all of an origin."""
    named = sentence.get("claims", [])
    return [*(name for name in named if "/" in name), *(name for name, origin in _origins().items() if origin in named)]


@functools.cache
def _origins() -> dict[str, str]:
    """Origins of the claims of all designs, by STUDY/CLAIM."""
    designs = {path.stem: tomllib.loads(path.read_text()) for path in sorted((ROOT / "designs").glob("*.toml"))}
    claims = (
        (f"{study}/{name}", claim) for study, design in designs.items() for name, claim in design["claims"].items()
    )
    return {name: claim.get("origin", "unstated") for name, claim in claims}


def _picture(study: str, figures: dict[str, dict[str, str]]) -> Iterator[str]:
    """The first figure that the design declares; none of a study that was never run."""
    path = verdicts.GALLERY / "studies" / f"{study}.png"
    for figure in list(figures.values())[: path.exists()]:
        yield from (f"![{figure['title']}](../../{path.relative_to(ROOT)})", "", f"*{figure['title']}*", "")


def _formulas(claims: dict[str, Any]) -> Iterator[str]:
    """Where the formulas stand whose values claims state."""
    named = {claim["value"]["kind"]: None for claim in claims.values() if isinstance(claim.get("value"), dict)}
    if named:
        told = ", ".join(f"`{name}` {{eq}}`{EQUATIONS[name]}`" for name in named)
        yield from (f"Values of claims that are formulas: {told}.", "")


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


def ceiling() -> Iterator[str]:
    """Yield the verdicts of the study of the page of that name, the pilot's if it is not confirmed."""
    found = verdicts.read()
    yield from (_told(f"ceiling/{claim}", found) for claim in dict.fromkeys(found[found.study == "ceiling"].claim))
    yield ""


def ceilings() -> Iterator[str]:
    """Yield a table of the numbers of heads that can count at attention's own temperature."""
    yield "| dimension $p$ of a head | ceiling at the centre | reached by 12 heads | ceiling over queries |"
    yield "|---|---|---|---|"
    for p in (1, 4, 16, 64, 256):
        floor = float(theory.origin_correlation(np.full(p, np.pi / 2), p**0.25))
        over_queries = float(theory.averaged_noise_ratio(np.zeros(p), p**0.25))  # of orthogonal heads it is 1
        yield f"| {p} | {1.0 / floor:.3f} | {12.0 / (1.0 + 11.0 * floor) * floor:.0%} | {over_queries:.3f} |"
    yield ""


FILLED = {
    "studies": studies, "counts": counts, "others": others, "abstracts": abstracts, "commands": commands,
    "settings": language.reference, "targets": targets, "theories": theories, "ceiling": ceiling, "ceilings": ceilings,
}  # fmt: skip
