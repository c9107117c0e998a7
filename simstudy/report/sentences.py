"""Published sentences: what abstracts assert, how it is tested, the answer, and what the claims behind it found."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any, NamedTuple

from simstudy.report.pictures import Picture


class Line(NamedTuple):
    """What a card tells of one claim, STUDY/CLAIM; ``agreed``: all confirmations, by beacon, gave one verdict."""

    name: str
    statement: str
    origin: str
    verdict: str
    estimate: str
    claimed: str
    picture: Picture | None
    printed: bool
    beacons: tuple[str, ...]
    agreed: bool

    @property
    def study(self) -> str:
        """Name of the study."""
        return self.name.partition("/")[0]


def papers() -> list[dict[str, Any]]:
    """Return the papers whose abstracts are put to the test: title, arxiv and sentences of each."""
    return list(tomllib.loads((files(__package__) / "templates" / "abstracts.toml").read_text("utf-8"))["paper"])


def claims_of(sentence: Mapping[str, Any], origins: Mapping[str, str]) -> list[str]:
    """Return the claims that test a sentence: those that it names, and all of an origin that it names."""
    named = sentence.get("claims", [])
    return [*(name for name in named if "/" in name), *(name for name, origin in origins.items() if origin in named)]


def cards(template: Any, lines: Mapping[str, Line]) -> Iterator[tuple[str, list[str]]]:
    """Yield the title of each paper with the cards of its sentences, as HTML without empty lines."""
    origins = {name: line.origin for name, line in lines.items()}
    for paper in papers():
        told = [(sentence, [lines[name] for name in claims_of(sentence, origins) if name in lines])
                for sentence in paper["sentences"]]  # fmt: skip
        yield (
            paper["title"],
            [
                re.sub(r"\n\s*\n", "\n", template.render(paper=paper, number=i, sentence=sentence, **_marks(found)))
                for i, (sentence, found) in enumerate(told, start=1)
            ],
        )


def _marks(lines: list[Line]) -> dict[str, Any]:
    """The lines of a card and what its marks say: printed numbers, conditions, confirmations."""
    printed = [line for line in lines if line.printed]
    studies = list(dict.fromkeys(line.study for line in lines))
    return {
        "lines": lines,
        "printed": f"{sum(line.verdict == 'supported' for line in printed)} of {len(printed)}" if printed else "",
        "robust": f"{sum(line.verdict == 'supported' for line in lines)} of {len(lines)}",
        "confirmed": f"{sum(bool(line.beacons) and line.agreed for line in lines)} of {len(lines)}",
        "beacon": max((line.beacons[-1] for line in lines if line.beacons), default=""),
        "command": f"make study STUDY={studies[0]}" if len(studies) == 1 else
                   f"for s in {' '.join(studies)}; do make study STUDY=$s; done",
    }  # fmt: skip
