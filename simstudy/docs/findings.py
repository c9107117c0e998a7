"""What is filled into pages of the site: findings, checks, studies, and what commands and the theory say."""

import functools
import inspect
import math
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jinja2
import language
import numpy as np
import typer
import verdicts
from verdicts import markdown

from simstudy import theory
from simstudy.commands import app as command_line
from simstudy.design.load import load_design
from simstudy.design.settings.ensembles import bandwidth_of
from simstudy.report import answer
from simstudy.report.answer import EQUATIONS, Line
from simstudy.report.confirmed import Found, Picture, picture
from simstudy.temperatures import Problem, best_sharpness, exact_risk

ROOT = verdicts.ROOT
FOLDER = Path(__file__).parent
ANSWERS = ("holds", "holds if", "fails", "open", "not testable here")
CHECKS = ("consequence", "foil", "negative control", "identity")
"""Origins of claims that check the instrument rather than a published sentence."""
RECORD = "published-colonies"
_RECORDED: dict[str, Callable[[dict[str, Any]], bool]] = {
    "Of {total} printed numbers, {yes} are reproduced, {no} are not, and {open} stay open, as too few runs are behind "
    "them to show agreement.": lambda claim: claim["kind"] == "printed",
    "Of {total} sentences of the authors under stated conditions, {yes} hold, {no} do not, and {open} stay open.":
        lambda claim: claim["origin"] == "full text" and claim["kind"] != "printed",
    "Of {total} claims of this project on the reasons, {yes} hold, {no} do not, and {open} stay open.":
        lambda claim: claim["origin"] != "full text",
}  # fmt: skip
_NUMBER = r"[-+]?[\d.]+(?:e[-+]?\d+)?"
_PAGES = jinja2.Environment(loader=jinja2.PackageLoader("simstudy.report"), autoescape=True, trim_blocks=True)
_PAGES.globals["bibliography"] = "bibliography.html"


def cards() -> Iterator[str]:
    """Yield a card for each sentence of each abstract, as HTML between headings of the papers."""
    for title, told in answer.cards(_PAGES.get_template("card.html"), _lines()):
        yield from (f"## {title}", "")
        for card in told:
            yield from (card, "")


def answers() -> Iterator[str]:
    """Yield how many sentences have which answer: of the main paper, and of the related ones."""
    main, *related = ([each["answer"] for each in paper["sentences"]] for paper in answer.papers())
    others = [answer for paper in related for answer in paper]
    rows: list[Any] = [(answer, main.count(answer), others.count(answer)) for answer in ANSWERS]
    yield from markdown(("answer", "main paper", "related papers"), [*rows, ("sentences", len(main), len(others))])


@functools.cache
def _lines() -> dict[str, Line]:
    """What was found of every claim that was judged, by STUDY/CLAIM."""
    found, lines = verdicts.read(), {}
    for name, stated in _claims().items():
        study, _, claim = name.partition("/")
        rows = found[(found.study == study) & (found.claim == claim)]
        if not rows.empty:
            row, verdict = verdicts.told_of(study, claim, found)
            beacons = tuple(run.partition(",")[0] for run in rows.run if run != verdicts.PILOT)
            lines[name] = Line(
                name,
                stated["statement"],
                stated["origin"],
                verdict,
                row.estimate,
                row.claimed,
                _picture(row),
                stated["kind"] == "printed",
                beacons,
                verdict != verdicts.DIVIDED,
            )
    return lines


def _picture(row: Any) -> Picture | None:
    """Places of estimate and interval of the truth in the interval claimed."""
    claimed, estimate = _interval(row.claimed), re.findall(_NUMBER, row.estimate)
    if claimed is None or not estimate:
        return None
    scale = float("1" + "".join(re.findall(r"\)(e[-+]?\d+)", row.estimate)))
    middle, error = (scale * float(each) for each in (*estimate, "0")[:2])
    truth = _interval(row.confidence) or (middle, middle)
    return picture(claimed, [Found(row.verdict, middle, error, truth)])


def _interval(text: str) -> tuple[float, float] | None:
    """Ends of an interval as tables tell it: "0.9 to 1.1", "≥ 0" or "≤ 0"."""
    ends = [float(each) for each in re.findall(_NUMBER, text)]
    if text[:1] in ("≥", "≤"):
        return (ends[0], math.inf) if text[0] == "≥" else (-math.inf, ends[0])
    return (ends[0], ends[1]) if len(ends) == 2 else None


def checks() -> Iterator[str]:
    """Yield the claims that check the instrument, counted by origin and verdict, and told study by study."""
    lines = [line for line in _lines().values() if line.origin in CHECKS]
    counts = {origin: Counter(line.verdict for line in lines if line.origin == origin) for origin in CHECKS}
    rows = [(origin, each.total(), each["supported"], each["contradicted"]) for origin, each in counts.items()]
    head = "origin", "claims", "supported", "contradicted", "other"
    yield from markdown(head, [(origin, n, yes, no, n - yes - no) for origin, n, yes, no in rows])
    yield ""
    for study in dict.fromkeys(line.study for line in lines):
        yield from (f"## {study}", "", *_listed(line for line in lines if line.study == study))


def _listed(lines: Iterable[Line]) -> tuple[str, str]:
    """A table of claims as HTML, and an empty line."""
    return _PAGES.get_template("claims.html").render(lines=list(lines)), ""


def replicated() -> Iterator[str]:
    """Yield how many printed numbers and sentences of the authors hold, by confirmations alone."""
    claims, told = _recorded()
    if not told:
        yield "Nothing is confirmed yet, and pilots are not quoted."
        return
    for words, which in _RECORDED.items():
        counted = Counter(verdict for name, (_, verdict) in told.items() if which(claims["claims"][name]))
        yes, no, total = counted["supported"], counted["contradicted"], counted.total()
        yield words.format(total=total, yes=yes, no=no, open=total - yes - no)


def replication() -> Iterator[str]:
    """Yield printed numbers and sentences grid by grid, beside what confirmations alone found."""
    design, told = _recorded()
    for grid, stated in design["grids"].items():
        claims = {name: claim for name, claim in design["claims"].items() if claim["grid"] == grid and name in told}
        rows = []
        for name, claim in claims.items():
            row, verdict = told[name]
            printed = f"{claim['value']} ± {claim['printed_mcse']}" if claim["kind"] == "printed" else row.claimed
            rows.append((f"{claim['statement']} `{name}`", printed, row.estimate, row.confidence, verdict))
        if rows:
            head = "claim", "printed or claimed", "found", "interval", "verdict"
            yield from ("", f"## {stated['title']}", "", *markdown(head, rows))


def _recorded() -> tuple[dict[str, Any], dict[str, tuple[Any, str]]]:
    """The design of printed numbers, and the last confirmed row and the verdict of all confirmations by claim."""
    design, found = tomllib.loads((ROOT / "designs" / f"{RECORD}.toml").read_text()), verdicts.read()
    rows = found[(found.study == RECORD) & (found.run != verdicts.PILOT) & found.claim.isin(design["claims"])]
    return design, {claim: verdicts.told_of(RECORD, claim, found) for claim in dict.fromkeys(rows.claim)}


def others() -> Iterator[str]:
    """Yield the confirmed verdicts that are not those that were declared."""
    found, lines = verdicts.read(), _lines()
    last = found[found.run != verdicts.PILOT].drop_duplicates(["study", "claim"], keep="last")
    declared = {f"{row.study}/{row.claim}": row.declared for row in last.itertuples()}
    told = [lines[name] for name in declared if name in lines]
    other = [line for line in told if line.verdict != declared[line.name]]
    yield from (f"Of {len(told)} confirmed claims, {len(other)} were not as declared:", "", *_listed(other))


def table() -> Iterator[str]:
    """Yield the table of all studies, each with its question and what became of its claims."""
    rows = []
    for study, question in questions().items():
        told = Counter(line.verdict for line in _lines().values() if line.study == study)
        counted = ", ".join(f"{count} {verdict}" for verdict, count in told.most_common())
        rows.append((f"[{study}](studies/{study}.md)", question, counted or "not judged yet"))
    yield from markdown(("study", "question", "claims"), rows)


def questions() -> dict[str, str]:
    """Return the question of each shipped study, as the list of designs tells it."""
    page = (ROOT / "designs" / "README.md").read_text()
    return dict(re.findall(r"^- \[`(.*?)`\]\(.*?\): (.*)$", page, flags=re.MULTILINE))


def write_studies() -> None:
    """Write a page for each study, which Sphinx reads; they are not kept."""
    (FOLDER / "studies").mkdir(exist_ok=True)
    for study in questions():
        (FOLDER / "studies" / f"{study}.md").write_text("\n".join(_study(study)))


def _study(study: str) -> Iterator[str]:
    design = tomllib.loads((ROOT / "designs" / f"{study}.toml").read_text())
    yield from (f"# {study}", "", design["study"]["title"] + ".", "", questions()[study], "")
    path = verdicts.GALLERY / "studies" / f"{study}.png"
    for figure in list(design.get("figures", {}).values())[: path.exists()]:
        yield from (f"![{figure['title']}](../../../{path.relative_to(ROOT)})", "", f"*{figure['title']}*", "")
    seal = f"designs/sealed/{study}.quick.md"
    sealed = f", [preregistration](path:../../../{seal})" if (ROOT / seal).exists() else ""
    yield from (f"[Design](../../../designs/{study}.toml){sealed}. Run it with `make study STUDY={study}`.", "")
    yield from ("## Claims", "", *claims_table(study))
    values = (claim.get("value") for claim in design["claims"].values())
    if named := dict.fromkeys(value["kind"] for value in values if isinstance(value, dict)):
        told = ", ".join(f"`{name}` {{eq}}`{EQUATIONS[name]}`" for name in named)
        yield from (f"Formulas that claims use: {told}.", "")
    yield from ("## Aim", "", " ".join(design["study"]["aim"].split()), "")


def claims_table(study: str) -> Iterator[str]:
    """Yield the claims of a study with their verdicts."""
    lines = [line for line in _lines().values() if line.study == study]
    yield from _listed(lines) if lines else ("No verdicts are stored yet.", "")


@functools.cache
def _claims() -> dict[str, dict[str, Any]]:
    """Claims of all designs as they are stated in their quick profile, by STUDY/CLAIM."""
    designs = {path.stem: load_design(path) for path in sorted((ROOT / "designs").glob("*.toml"))}
    return {
        f"{study}/{name}": claim.model_dump()
        for study, design in designs.items()
        for name, claim in design.claims.items()
    }


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


def ceilings() -> Iterator[str]:
    """Yield a table of the numbers of heads that can count at attention's own temperature."""
    rows = []
    for p in (1, 4, 16, 64, 256):
        floor = float(theory.origin_correlation(np.full(p, np.pi / 2), p**0.25))
        over_queries = float(theory.averaged_noise_ratio(np.zeros(p), p**0.25))  # of orthogonal heads it is 1
        rows.append((p, f"{1 / floor:.3f}", f"{12 / (1 + 11 * floor) * floor:.0%}", f"{over_queries:.3f}"))
    head = "dimension $p$ of a head", "ceiling at the centre", "reached by 12 heads", "ceiling over queries"
    yield from (*markdown(head, rows), "")


def hot() -> Iterator[str]:
    """Yield the picture of the study of temperatures, once there is one, and its verdicts."""
    path = verdicts.GALLERY / "studies" / "temperature.png"
    if path.exists():
        yield from (f"![Which rule wins where](../../{path.relative_to(ROOT)})", "")
    yield from claims_table("temperature")


def lengths(grid: str, keys: Literal["unit", "gaussian"]) -> Iterator[str]:
    """Yield a table of the excess of the rules of a grid at 4, 16 and 64 times 4096 keys, by exact theory."""
    planned = load_design(ROOT / "designs" / "temperature.toml").cells
    rules = list(dict.fromkeys(each.cell.estimator.bandwidth for each in planned if each.grid == grid))
    rows = []
    for d in (4, 8, 12, 16, 32, 64, 128):
        problem, lengths = Problem(keys, d), (16384, 65536, 262_144)
        tuned, best = best_sharpness(problem, 4096), [best_sharpness(problem, n) for n in lengths]
        least = [exact_risk(problem, sharpness, n) for sharpness, n in zip(best, lengths, strict=True)]
        row = [" / ".join(f"{sharpness / tuned:.2f}" for sharpness in best)]
        for rule in rules:
            risks = [exact_risk(problem, tuned / bandwidth_of(rule, n, d) ** 2, n) for n in lengths]
            excess = (100.0 * (risk / low - 1.0) for risk, low in zip(risks, least, strict=True))
            row.append(" / ".join(f"{each:.1f}" if each < 9.95 else f"{each:.0f}" for each in excess))
        rows.append((d, *row))
    yield from (*markdown(("d", "best factor", *(rule.label for rule in rules)), rows), "")


FILLED = {
    "cards": cards, "answers": answers, "checks": checks, "others": others,
    "replicated": replicated, "replication": replication, "table": table,
    "ceiling": partial(claims_table, "ceiling"),
    "ceilings": ceilings, "commands": commands, "targets": targets, "theories": theories, "hot": hot,
    "lengths": partial(lengths, "one-length", "unit"), "lengths-gaussian": partial(lengths, "gaussian", "gaussian"),
    "settings": language.reference, "papers": papers, "sealed": verdicts.sealed,
}  # fmt: skip
