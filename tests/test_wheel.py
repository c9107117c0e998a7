"""The wheel: built, unpacked alone, and used outside of the repository by whoever has the dependencies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DESIGNS = {path.stem for path in (ROOT / "designs").glob("*.toml")}


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """A folder that holds what the wheel puts into an environment, and nothing else."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as content:
        content.extractall(folder / "installed")
    return folder / "installed"


def python(installed: Path, cwd: Path, *arguments: str) -> subprocess.CompletedProcess:
    environment = os.environ | {"PYTHONPATH": str(installed), "COLUMNS": "200", "NO_COLOR": "1"}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=cwd, env=environment)


# The design's heads are in files.
LISTED = """
from simstudy.__main__ import command
from simstudy.design.shipped import known_designs
print(*known_designs(), sep="\\n")
raise SystemExit(command(["status", "diversity-index", "--json"]))
"""


def test_shipped_designs__are_found_by_name_and_run(installed, tmp_path):
    listed = python(installed, tmp_path, "-c", LISTED)
    assert listed.returncode == 0, listed.stderr
    shown, _, status = listed.stdout.partition("{")
    designs = {Path(line) for line in shown.splitlines()}
    assert {path.stem for path in designs} == DESIGNS
    assert {path.parent for path in designs} == {installed / "simstudy" / "designs"}
    assert len(json.loads("{" + status)["cells"]) > 500
    assert not list(tmp_path.iterdir())


def test_new_design__is_written_and_run(installed, tmp_path):
    for arguments in (["init", "my-question"], ["run", "my-question.toml", "--quiet"]):
        result = python(installed, tmp_path, "-m", "simstudy", *arguments)
        assert result.returncode == 0, result.stderr
    assert result.stdout == ""
    assert (tmp_path / "outputs" / "my-question" / "quick" / "report.html").exists()
    assert not (tmp_path / ".partial").exists()


def test_package__holds_its_citation_and_its_notes(installed):
    held = {path.name for path in (installed / "simstudy").iterdir()}
    assert {"CITATION.cff", "CHANGES.md", "README.md"} <= held
    assert "docs" not in held
