"""Every command and code block of the README, run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest
from commands import ROOT
from commands import simstudy as command

import simstudy
from simstudy.design.load import load_design, profiles_of
from simstudy.report.tables import verdict_lines

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, flags=re.DOTALL)
PYTHON = [code for language, code in BLOCKS if language == "python"]
TOML = [code for language, code in BLOCKS if language == "toml"]


@pytest.fixture(scope="module")
def flagship() -> None:
    """The results that the README loads: those of `make study`, computed here if they are missing."""
    if not (ROOT / "outputs" / "principal-angles" / "quick" / "results.nc").exists():
        result = command("run", "principal-angles")
        assert result.returncode == 0, result.stderr


def test_readme__has_the_blocks_that_are_tested():
    assert len(PYTHON) == 5 and len(TOML) == 3


@pytest.mark.usefixtures("flagship")
@pytest.mark.parametrize("code", PYTHON, ids=["own-question", "load", "contrast", "evaluate", "theory"])
def test_python_blocks__run(code):
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()


def test_design_block__is_a_valid_study_and_runs(tmp_path):
    path = tmp_path / "my-study.toml"
    path.write_text(TOML[0])
    assert set(profiles_of(path)) == {"quick", "full"}
    assert len(load_design(path).cells) == 4
    # Those of the section on long runs as they stand; of the others, such as run on 16 workers, one that is cheap.
    section = README.split("## Long runs")[1].split("\n## ")[0]
    long_runs = [shlex.split(line)[1:] for line in re.findall(r"^    (simstudy .*)", section, flags=re.MULTILINE)]
    assert [arguments[0] for arguments in long_runs] == ["plan", "status", "replay", "merge", "verify"]
    for arguments in (["check", path.name], ["run", path.name, "--workers", "1"], *long_runs):
        result = command(*arguments, cwd=tmp_path)
        # The example's claim is contradicted, as the README says.
        assert result.returncode == (5 if arguments[0] == "run" else 0), result.stderr
    folder = tmp_path / "outputs" / "my-study"
    assert (folder / "quick" / "report.html").exists() and list((folder / "quick" / "replays").glob("*.nc"))


def test_design_block_of_a_population__fits_into_that_study(tmp_path):
    path = tmp_path / "my-study.toml"
    random_heads = re.sub("batch_size = .*", "", TOML[0]).replace('"orthogonal"', '"haar"')
    path.write_text(re.sub(r"\[simulation\]\n", TOML[1], random_heads))
    assert {planned.cell.population for planned in load_design(path).cells} == {("heads", "queries")}


def test_design_block_of_own_data__fits_into_that_study(tmp_path):
    data, queries = TOML[2].split("[queries]\n")
    text = re.sub(r"\[data\].*?(?=\[heads\])", f"{data}\n", TOML[0], flags=re.DOTALL)
    path = tmp_path / "my-study.toml"
    path.write_text(re.sub("queries = .*", queries.strip(), text))
    assert {planned.cell.rows.keys.shape for planned in load_design(path).cells} == {(410, 10)}


@pytest.mark.usefixtures("flagship")
def test_contrast__has_the_error_of_the_claim_and_not_that_of_unpaired_cells():
    results = simstudy.open_results(ROOT / "outputs" / "principal-angles" / "quick")
    claim = results.sel(claim="mse-falls-quadratic")

    def turned(grid, *angles):
        a, b = ({"grid": grid, "regression": "|x|²/4", "angle": angle} for angle in angles)
        unpaired = [float((simstudy.details(results, each).mse_contribution ** 2).sum()) for each in (a, b)]
        return simstudy.contrast(results, a, b, "mse"), sum(unpaired) ** 0.5

    found, _ = turned("rotation-of-queries", 60, 90)
    assert (found.estimate, found.mcse) == (claim.verdict_estimate, claim.verdict_mcse)
    # As the README says, of the same heads at 128 points.
    found, unpaired = turned("rotation", 0, 30)
    assert f"{found.mcse:.2g} {unpaired:.2g}" == "0.00052 0.0024"


@pytest.mark.usefixtures("flagship")
def test_verdict_table__is_that_of_a_run():
    """No number in the README that no run produced."""
    table = README.split("<!-- verdicts -->")[1].split("<!-- end -->")[0]
    stated = [[cell.strip() for cell in row.split(" | ")] for row in table.strip().splitlines()[2:]]
    lines = verdict_lines(simstudy.open_results(ROOT / "outputs" / "principal-angles" / "quick"))
    found = [
        [f"| {line.statement}", line.verdict, line.statistic, line.estimate, f"{line.claimed} |"] for line in lines
    ]
    assert [[cell.replace("\\|", "|") for cell in row] for row in stated] == found


def test_commands__exist():
    """Every `simstudy` command and make target that the README names."""
    commands = set(re.findall(r"^    simstudy (\w+)", README, flags=re.MULTILINE))
    shown = command("--help").stdout
    assert commands and all(command in shown for command in commands)
    targets = set(re.findall(r"\bmake (\w+)", README))
    makefile = (ROOT / "Makefile").read_text()
    assert targets and all(re.search(rf"^{target}:", makefile, flags=re.MULTILINE) for target in targets), targets
