"""Verdicts and pictures of the shipped studies that documents show: outputs/gallery, which goes with the repository.

`python simstudy/docs/verdicts.py` gathers them from the results that lie in outputs/, keeps those of other studies and
of other confirmations of the same design, and fills the tables of README.md that begin with
``<!-- verdicts: STUDY/CLAIM, ... -->``: with confirmed verdicts where there are any, else with those of the pilot.
Other profiles than "quick" stand beside it as STUDY.PROFILE.
"""

import contextlib
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from simstudy.design.load import load_design, profiles_of
from simstudy.errors import UserError
from simstudy.execution.seal import REGISTER_FILE, WITHDRAWN, count_confirmation, digest_of, meaning, read_register
from simstudy.execution.store import store_of
from simstudy.report.confirmed import DIVIDED, confirmed_of, runs_of, standing_in
from simstudy.report.tables import verdict_lines
from simstudy.results import open_results

ROOT = Path(__file__).parents[2]
GALLERY, PAGE = ROOT / "outputs" / "gallery", ROOT / "README.md"
TABLE = GALLERY / "verdicts.csv"
REGISTER = ROOT / "designs" / "sealed" / REGISTER_FILE
PILOT, QUICK = "pilot", "quick"
VERDICTS = ("supported", "contradicted", "inconclusive")
STATES = {
    "stands": "it stands as it was sealed first", "reworded": "its words changed", "changed": "what it claims changed",
    WITHDRAWN: "it was withdrawn",
}  # fmt: skip
_KEYS, _DIGITS = ("study", "design", "run"), 12
COLUMNS = (
    "claim", "statement", "origin", "verdict", "declared", "statistic", "estimate", "claimed", "confidence", "level",
)  # fmt: skip
_BLOCK = re.compile(r"(<!-- verdicts: (.*?) -->\n).*?(<!-- end -->)", flags=re.DOTALL)


def names_of(path: Path) -> list[str]:
    """Return the names under which the profiles of a design stand in the table: STUDY, and STUDY.PROFILE."""
    return [path.stem + ("" if profile == QUICK else f".{profile}") for profile in profiles_of(path)]


def gathered(study: str) -> pd.DataFrame:
    """Return the verdicts of a study that lie in outputs/, a row for each claim: of the pilot, and what confirms it."""
    stem, _, profile = study.partition(".")
    design = load_design(ROOT / "designs" / f"{stem}.toml", profile or QUICK)
    pilot = store_of(design, ROOT / "outputs")
    runs = {PILOT: pilot.folder}
    runs |= {
        f"{each.day}, beacon {each.beacon}": pilot.folder / "confirmed" / each.folder
        for each in confirmed_of(design, pilot)
        if each.found
    }
    rows, standing = [], standing_in(design, pilot)
    for run, folder in runs.items():
        with contextlib.suppress(UserError):  # nothing was computed here
            lines = verdict_lines(open_results(folder), standing=standing)
            common = [study, digest_of(meaning(design))[:_DIGITS], run]
            rows += [[*common, *(getattr(line, name) for name in COLUMNS)] for line in lines]
    return pd.DataFrame(rows, columns=[*_KEYS, *COLUMNS])


def drawn(study: str) -> Path | None:
    """Return the first figure that a study declares, as its last run drew it; None if no page was written here."""
    design = load_design(ROOT / "designs" / f"{study}.toml")
    folders = [run.store.folder / "figures" for run in runs_of(design, ROOT / "outputs")]
    pictures = [folder / f"{name}.png" for folder in folders for name in list(design.figures)[:1]]
    return next((path for path in reversed(pictures) if path.exists()), None)


def quoted(names: list[str], verdicts: pd.DataFrame) -> str:
    """Return a table of claims, named STUDY/CLAIM: each as confirmed, or as of the pilot."""
    rows = []
    for study, _, claim in (name.partition("/") for name in names):
        row, verdict = told_of(study, claim, verdicts)
        standing = "" if verdict == DIVIDED else " (pilot)" if row.run == PILOT else ", confirmed"
        interval = f"{row.confidence} ({row.level})"
        rows.append((row.statement, verdict + standing, row.statistic, row.estimate, interval, row.claimed))
    head = "claim", "verdict", "comparison", "estimate ± MCSE", "interval, at any number of looks", "claimed"
    return "".join(f"{line}\n" for line in markdown(head, rows))


def markdown(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in row) + " |"


def told_of(study: str, claim: str, verdicts: pd.DataFrame) -> tuple[Any, str]:
    """Return the row of a claim that counts, of its last confirmation or else of the pilot, and what all agree in."""
    rows = verdicts[(verdicts.study == study) & (verdicts.claim == claim)]
    confirmed = rows[rows.run != PILOT]
    row = (rows if confirmed.empty else confirmed).iloc[-1]
    return row, row.verdict if confirmed.verdict.nunique() <= 1 else DIVIDED


def filled(page: str, verdicts: pd.DataFrame) -> str:
    """Return a page with its tables of verdicts filled in."""
    return _BLOCK.sub(lambda block: block[1] + quoted(block[2].split(", "), verdicts) + block[3], page)


def write() -> None:
    """Write the table of verdicts, the pictures of studies and the page that quotes the table anew."""
    known = read()
    for path in sorted((ROOT / "designs").glob("*.toml")):
        for name in names_of(path) if (ROOT / "outputs" / path.stem).exists() else ():
            if not (found := gathered(name)).empty:
                count(name, known, found)
                # Of a study stay confirmations of the same design that do not lie here.
                elsewhere = known.design.eq(found.design.iloc[0]) & ~known.run.isin([PILOT, *found.run])
                known = pd.concat([known[known.study.ne(name) | elsewhere], found])
        if (picture := drawn(path.stem)) is not None:
            shutil.copyfile(picture, GALLERY / "studies" / picture.with_stem(path.stem).name)
    known.sort_values("study", kind="stable").to_csv(TABLE, index=False, lineterminator="\n")
    PAGE.write_text(filled(PAGE.read_text(), read()))


def count(study: str, known: pd.DataFrame, found: pd.DataFrame) -> None:
    """Count in the register of claims the verdicts of confirmations that the table does not hold yet."""
    key = [*_KEYS, "claim"]
    fresh = ~pd.MultiIndex.from_frame(found[key]).isin(pd.MultiIndex.from_frame(known[key]))
    for _, run in found[fresh & found.run.ne(PILOT)].groupby("run"):
        seal = REGISTER.parent / f"{study if '.' in study else f'{study}.{QUICK}'}.json"
        count_confirmation(seal, dict(zip(run.claim, run.verdict, strict=True)))


def sealed() -> Iterator[str]:
    """Yield what became of all claims that were ever sealed: counts, and those that went after a beacon judged them."""
    rows = list(read_register(REGISTER).values())
    judged = [row for row in rows if any(row[verdict] != "0" for verdict in VERDICTS)]
    gone = [row for row in judged if row["state"] == WITHDRAWN]
    turned = [row for row in judged if row["supported"] != "0" != row["contradicted"]]
    counts = [(words, [row for row in rows if row["state"] == state]) for state, words in STATES.items()]
    yield from markdown(
        ("what became of it", "claims", "of these judged by a beacon"),
        [(words, len(own), sum(row in judged for row in own)) for words, own in counts],
    )
    yield from (
        "",
        f"{len(gone)} claims were withdrawn after a beacon had judged them, and {len(turned)} turned: some beacons",
        "supported them and others contradicted them.",
        "",
    )
    told = sorted([*gone, *(row for row in turned if row not in gone)], key=lambda row: row["study"])
    yield from markdown(
        ("claim", "became", "supported, contradicted, open", "statement", "reason noted"),
        [
            (
                f"`{row['study'].removesuffix('.quick')}/{row['claim']}`",
                row["state"],
                ", ".join(row[verdict] for verdict in VERDICTS),
                row["statement"],
                row["why"],
            )
            for row in told
        ],
    )


def read() -> pd.DataFrame:
    """Return the table of verdicts as it lies in the repository."""
    if not TABLE.exists():
        return pd.DataFrame(columns=[*_KEYS, *COLUMNS])
    return pd.read_csv(TABLE, dtype=str, keep_default_na=False)


if __name__ == "__main__":
    write()
