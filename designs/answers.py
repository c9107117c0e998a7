"""The page of answers, from confirmed runs: python designs/answers.py [outputs].

Sentences, answers and conditions stand in ``abstracts.toml`` with the claims that are their evidence; answers.csv keeps
what runs say of these claims, and README.md shows both.
"""

import csv
import math
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
ABSTRACTS = HERE / "abstracts.toml"
FIELDS = ("sentence", "answer", "condition", "study", "claim", "words", "seeds", "verdict", "estimate", "error")
BEGIN, END = "<!-- answers, written by answers.py -->\n", "<!-- end of answers -->\n"


def rows():
    """Rows of answers.csv without what runs say: one for each claim that is evidence."""
    told = tomllib.loads(ABSTRACTS.read_text("utf-8"))
    for sentence in [*told["paper"][0]["sentences"], *told["finding"]]:
        for name, words in sentence["evidence"].items():
            study, claim = name.split("/")
            yield {
                "sentence": sentence["says"], "answer": sentence["answer"], "condition": sentence["because"],
                "study": study, "claim": claim, "words": words,
            }  # fmt: skip


def collect(outputs):
    """Rows with what the newest confirmed run of each study says, or else its quick run; without a run, nothing."""
    for row in rows():
        quick = outputs / row["study"] / "quick"
        confirmed = sorted(quick.glob("confirmed/*/verdicts.csv"), key=lambda path: path.stat().st_mtime)
        line, shown = {"verdict": "not run"}, {}
        for path in (confirmed or [*quick.glob("verdicts.csv")])[-1:]:
            line = next((each for each in lines_of(path) if each["claim"] == row["claim"]), line)
            # Of all comparisons the representative one, not the one that decides.
            named = row["claim"], line["representative_statistic"]
            told = lines_of(path.with_name("comparisons.csv"))
            shown = next((each for each in told if (each["claim"], each["statistic"]) == named), {})
        said = {"seeds": "confirmed" if confirmed else "of the design", "verdict": line["verdict"]}
        # A Monte Carlo error says nothing of other query points than the one draw of them.
        error = "" if line.get("these_draws") else shown.get("mcse", "")
        yield row | said | {"estimate": shown.get("estimate", ""), "error": error}


def lines_of(path):
    """Lines of a CSV file."""
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def number(estimate, error):
    """An estimate and its error, both to two digits of the error; the estimate alone where it has none."""
    if not estimate:
        return ""
    value, spread = float(estimate), float(error or "nan")
    if not spread > 0 or abs(value) < 1e-9:
        return f"{value:.3g}"
    digits = max(0, 1 - math.floor(math.log10(spread)))
    return f"{value:.{digits}f} ± {spread:.{digits}f}"


def page(found):
    """Lines of the table: one for each sentence, with its evidence."""
    lines = ["| sentence | answer | evidence ± Monte Carlo standard error |", "|---|---|---|"]
    for sentence in dict.fromkeys(row["sentence"] for row in found):
        own = [row for row in found if row["sentence"] == sentence]
        evidence = "; ".join(
            f"{row['words']} {number(row['estimate'], row['error'])} ([{row['study']}]({row['study']}/README.md): "
            f"{row['verdict']}{'*' * (row['seeds'] != 'confirmed')})" for row in own
        )  # fmt: skip
        lines.append(f"| {sentence} | **{own[0]['answer']}**: {own[0]['condition']} | {evidence} |")
    return "".join(f"{line}\n" for line in lines)


def read():
    """Rows of answers.csv."""
    with (HERE / "answers.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


if __name__ == "__main__":
    outputs = Path(sys.argv[1] if sys.argv[1:] else "outputs")
    collected = [*collect(outputs)]
    if missing := {row["study"]: None for row in collected if row["verdict"] == "not run"}:
        print(f"error: {outputs}: no run of {', '.join(missing)}; make confirm TEXT=... runs them", file=sys.stderr)
        sys.exit(2)
    with (HERE / "answers.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(collected)
    readme = (HERE / "README.md").read_text("utf-8")
    before, after = readme.split(BEGIN)[0], readme.split(END)[1]
    (HERE / "README.md").write_text(before + BEGIN + page(read()) + END + after, "utf-8")
