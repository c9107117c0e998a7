"""What verdicts answer: the question of a study, and published sentences."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any

from simstudy.report.tables import VerdictLine


def said_of(line: VerdictLine) -> str:
    """Return what is said of a claim: "contradicted, as expected"."""
    return f"{line.verdict}, {'as expected' if line.as_expected else 'not as expected'}"


def sentence(lines: Sequence[VerdictLine]) -> str:
    """Return the sentence on the first claim with its number, which answers the question; empty without a claim."""
    if not lines:
        return ""
    first = lines[0]
    found = f"{first.estimate}, claimed {first.claimed}" if first.picture else first.why
    return f"{first.statement.rstrip('.')}: {said_of(first)}{found and f' ({found})'}."


def papers() -> list[dict[str, Any]]:
    """Return the papers whose abstracts are put to the test: title, arxiv and sentences of each."""
    return list(tomllib.loads((files(__package__) / "templates" / "abstracts.toml").read_text("utf-8"))["paper"])


def claims_of(sentence: Mapping[str, Any], origins: Mapping[str, str]) -> list[str]:
    """Return the claims that test a sentence: those that it names, and all of an origin that it names."""
    named = sentence.get("claims", [])
    return [*(name for name in named if "/" in name), *(name for name, origin in origins.items() if origin in named)]


def cards(template: Any, lines: Mapping[str, VerdictLine]) -> Iterator[tuple[str, list[str]]]:
    """Yield the title of each paper with the cards of its sentences, as HTML; ``lines`` by STUDY/CLAIM."""
    origins = {name: line.origin for name, line in lines.items()}
    for paper in papers():
        told = []
        for number, sentence in enumerate(paper["sentences"], start=1):
            found = {name: lines[name] for name in claims_of(sentence, origins) if name in lines}
            studies = list(dict.fromkeys(name.partition("/")[0] for name in found))
            supported = sum(line.verdict == "supported" for line in found.values())
            said = {"lines": found, "robust": f"{supported} of {len(found)}", "studies": studies}
            told.append(template.render(paper=paper, number=number, sentence=sentence, **said))
        yield paper["title"], told
