"""What verdicts answer: the question of a study, and published sentences; and the formulas that claims name."""

import inspect
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any

from simstudy.design.claims import ABSTRACT, ORIGINS
from simstudy.design.document import Design
from simstudy.design.settings.records import Record
from simstudy.report.tables import VERDICT_COLOURS, VerdictLine
from simstudy.report.terminal import counted


def sentence(lines: Sequence[VerdictLine]) -> str:
    """Return the sentence on the first claim, which answers the question of a study; empty without a claim."""
    return f"{lines[0].statement.rstrip('.')}: {said_of(lines[0])}." if lines else ""


def headline(lines: Sequence[VerdictLine]) -> str:
    """Return in a sentence or two how many claims hold, and whether that is as expected."""
    if not lines:
        return "The design makes no claim."
    tally = Counter(line.verdict for line in lines)
    parts = [f"{n} {'is' if n == 1 else 'are'} {word}" for word in VERDICT_COLOURS if (n := tally[word])]
    found = " and ".join([", ".join(parts[:-1])] * (len(parts) > 1) + parts[-1:])
    unlike = sum(not line.as_expected for line in lines)
    outcome = f"{unlike} not as expected" if unlike else f"{'all ' * (len(lines) > 1)}as expected"
    return f"Of {counted(len(lines), 'claim')} {found}, {outcome}."


def groups(lines: Sequence[VerdictLine]) -> list[dict[str, Any]]:
    """Return the claims by origin, each with what it means: what the abstract asserts first, in its order."""
    by_origin = {origin: [line for line in lines if line.origin == origin] for origin in ORIGINS}
    return [{"origin": each, "meaning": ORIGINS[each], "lines": own} for each, own in by_origin.items() if own]


def count_origins(lines: Sequence[VerdictLine]) -> list[dict[str, Any]]:
    """Return the counts of the abstract as a whole, then of each origin."""
    whole = [line for line in lines if line.origin in ABSTRACT]
    abstract = {"origin": "abstract", "meaning": "what the abstract asserts, C1 to C11", "lines": whole}
    return [
        group
        | {
            "claims": len(own),
            "verdicts": Counter(line.verdict for line in own),
            "not_as_expected": sum(not line.as_expected for line in own),
        }
        for group in [abstract, *groups(lines)]
        if (own := group["lines"])
    ]


def said_of(line: VerdictLine) -> str:
    """Return what is said of a claim: "contradicted, as expected"."""
    return f"{line.verdict}, {'as expected' if line.as_expected else 'not as expected'}"


EQUATIONS: dict[str, str] = {
    "tuned_risk_ratio": "tuned-risk",
    "correlation_floor": "correlation-floor",
    "dot_product_floor": "dot-product-correlation",
    "query_averaged_heads": "averaged-noise-ratio",
    "limiting_slope": "limiting-slope",
    "fibonacci_learners": "effective-learners",
    "geometric_learners": "effective-learners",
}
"""Label, in simstudy/theory/README.md, of the equation that each formula evaluates."""


def formulas_of(design: Design) -> dict[str, dict[str, str]]:
    """Return the formulas that claims name, by claim: name, parameters, what it says, and label of its equation."""
    found = {}
    for claim in design.claims:
        formula = getattr(design.claims[claim], "value", None)
        if isinstance(formula, Record):
            stated = formula.model_dump()
            name = stated.pop("kind")
            given = ", ".join(f"{parameter} = {value:g}" for parameter, value in stated.items())
            meaning = inspect.getdoc(type(formula)) or ""
            found[claim] = {"name": name, "parameters": given, "meaning": meaning, "equation": EQUATIONS[name]}
    return found


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
