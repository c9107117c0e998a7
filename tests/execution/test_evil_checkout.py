"""A folder of a study that somebody else has made: nothing in it makes a command write, delete or run anything."""

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import write_design
from stored import contents

from simstudy.errors import UserError
from simstudy.execution.folder import Folder
from simstudy.execution.provenance import PACKAGE
from simstudy.execution.store import Store

FILES = (
    "results.nc", "details.nc", "report.html", "verdicts.csv", "comparisons.csv", "cells.csv", "provenance.json",
    ".lock", ".status.json", ".report.json", "figures/a.png", "replays/a.nc", "batches/run", "batches/1-of-2",
    "batches/1-of-2.lock",     "logs/array.sh",
)  # fmt: skip
FOLDERS = ("figures", ".partial", "logs", "replays", "batches", "confirmed")
KINDS: dict[str, Callable[[Path, Path], None]] = {
    "file": lambda place, home: place.symlink_to(home / "canary"),
    "folder": lambda place, home: place.symlink_to(home, target_is_directory=True),
    "dangling": lambda place, home: place.symlink_to(home / "new"),
    "itself": lambda place, home: place.symlink_to(place.name),
    "pipe": lambda place, home: os.mkfifo(place),
}
WALL = {
    "execution/folder.py": "opens folders of studies",
    "kernels/sealed.py": "keeps compiled code in a cache of its own, in the same way",
    "design/files.py": "reads files that the user names",
    "kernels/compiled.py": "reads sources of the package",
    "execution/provenance.py": "reads sources of the package, and what the system says of the processor",
    "execution/executors.py": "reads what the system says of memory",
    "study.py": "reads the script that calls it",
    "report/terminal.py": "opens the null device",
    "__main__.py": "opens the null device",
    "commands/__init__.py": "writes a new design into the current folder, where nothing may lie",
}
"""Modules that may open files, with the reason."""
DEPENDENCIES = (
    "numpy", "numba", "scipy", "xarray", "pandas", "netCDF4", "pydantic", "typer", "rich", "matplotlib", "jinja2",
    "dask", "distributed", "threadpoolctl", "psutil", "yaml", "PIL",
)  # fmt: skip
SIMSTUDY = Path(sys.executable).with_name("simstudy")
OPENING = {
    "open", "fdopen", "write_text", "write_bytes", "read_text", "read_bytes", "unlink", "rename", "rmtree", "rmdir",
    "mkdir", "makedirs", "copyfile", "copytree", "fromfile", "tofile", "symlink_to", "hardlink_to", "touch",
}  # fmt: skip

THROUGH = re.compile(r"(^|\.)_?(store|files|folder)\.\w+$|Store\(.*\)\.\w+$|self\.write_(text|bytes)$|^read_text$")
"""Calls that go through a store or a folder of it, or through `design.files`."""
COMMANDS = {
    "run": "run design.toml --executor serial", "share": "run design.toml --share 1/1", "plan": "plan design.toml",
    "report": "report design.toml", "gather": "report", "status": "status design.toml", "check": "check design.toml",
    "replay": "replay design.toml --cell 0 --replicate 1",
    "confirm": "run design.toml --executor serial --confirm text",
    "inspect": "inspect pipe --texts pipe --output outputs/tiny/quick",
    "submit": "submit design.toml --show",
}  # fmt: skip


@pytest.fixture
def home(tmp_path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    for name in ("canary", ".profile", "0" * 32, "report.html"):
        (folder / name).write_text("mine")
    return folder


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [*FILES, *FOLDERS])
def test_link_or_pipe_where_a_writer_expects_its_own__is_one_line_and_changes_nothing(name, kind, home, tmp_path):
    place = tmp_path / "study" / name
    place.parent.mkdir(parents=True)
    KINDS[kind](place, home)
    before = contents(home)
    refuses = pytest.raises(UserError, match=r"^[^\n]* a (link|pipe) is in the place of a [^\n]*$")
    with refuses as refused, Store(tmp_path / "study").locked():  # so before anything is computed
        raise AssertionError("held")
    assert name.split("/")[0] in str(refused.value) and contents(home) == before and os.path.lexists(place)


@pytest.mark.parametrize("level", ["tiny", "tiny/quick"])
def test_study_that_is_a_link__is_refused_unless_the_command_names_it(level, home, tmp_path, tiny, in_process):
    output, path = tmp_path / "out", write_design(tmp_path)
    place = output / level
    place.parent.mkdir(parents=True)
    place.symlink_to(home, target_is_directory=True)
    before = contents(home)
    for command in ("run", "plan", "report", "status"):
        assert in_process(command, path, "--output", output).returncode in (0, 2)
        assert contents(home) == before
    assert in_process("run", path, "--output", output, "--executor", "serial").returncode == 2
    scratch = tiny.copied(tmp_path / "scratch")
    (tmp_path / "link").symlink_to(scratch, target_is_directory=True)
    assert in_process("run", path, "--output", tmp_path / "link", "--executor", "serial").returncode == 0


@pytest.fixture
def checkout(home, tmp_path, tiny, monkeypatch) -> Path:
    """A folder that somebody else has made, in which a command is run: modules of all names, and files of settings."""
    here = tmp_path / "here"
    tiny.copied(here / "outputs")
    tiny.copied(here / "whole")
    write_design(here)
    os.mkfifo(here / "pipe")
    for name in (*sys.stdlib_module_names, *DEPENDENCIES, "sitecustomize", "usercustomize"):
        (here / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    (here / ".numba_config.yaml").write_text("opt: '0'\nloop_vectorize: 0\n")
    (here / "matplotlibrc").write_text("text.usetex: True\n")
    monkeypatch.chdir(here)
    return here


# Each kind meets every file of a writer above.
@pytest.mark.parametrize("shift", [0, *(pytest.param(k, marks=pytest.mark.rare) for k in range(1, len(KINDS)))])
def test_every_command__leaves_all_that_links_lead_to_as_it_was(shift, checkout, home, tmp_path, in_process):
    before, study = contents(home), checkout / "outputs" / "tiny" / "quick"
    names = sorted({name.split("/")[0] for name in (*FILES, *FOLDERS)} | {"heads.nc", "heads.html"})
    for name, command in COMMANDS.items():
        shutil.rmtree(study)
        study.mkdir()
        for number, place in enumerate(names, shift):
            [*KINDS.values()][number % len(KINDS)](study / place, home)
        result = in_process(*command.split())
        assert result.returncode in (0, 2, 5), (name, result.stderr)
        assert result.stderr.count("\n") <= (1 if result.returncode == 2 else 3), (name, result.stderr)
        assert contents(home) == before and not (tmp_path / "ran").exists(), name


def test_nothing_in_the_current_folder__is_imported_or_read_as_settings(checkout, home, tmp_path):
    """By processes as users have them: what is imported first, kernels, and pictures."""
    calm = subprocess.run(
        [SIMSTUDY, "report", "design.toml"], capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert calm.returncode == 0 and not (tmp_path / "ran").exists(), calm.stderr
    assert (checkout / "outputs" / "tiny" / "quick" / "report.html").exists()


def test_only_what_the_program_makes__is_deleted(tmp_path):
    folder = Folder(tmp_path)
    (tmp_path / ".partial").mkdir()
    (tmp_path / "batches").mkdir()
    for name in ("notes.txt", ".partial/notes.txt", f".partial/{'a' * 32}", "batches/run", "batches/1-of-2"):
        (tmp_path / name).write_text("mine")
        folder.delete(name)
    assert (tmp_path / "notes.txt").exists() and os.listdir(tmp_path / ".partial") == ["notes.txt"]
    assert os.listdir(tmp_path / "batches") == ["run"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a file of a second user")
def test_file_of_another_user__is_not_written(tmp_path):
    (tmp_path / "report.html").write_text("theirs")
    shutil.chown(tmp_path / "report.html", 65534)
    with pytest.raises(UserError, match=r"report\.html: belongs to another user"), Store(tmp_path).locked():
        pass
    assert (tmp_path / "report.html").read_text() == "theirs"


def test_no_other_module__opens_files_of_studies():
    found = set()
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        # What renames columns is a data frame.
        calls = [ast.unparse(node.func) for node in nodes if not any(key.arg == "columns" for key in node.keywords)]
        opening = [call for call in calls if call.split(".")[-1] in OPENING and not THROUGH.search(call)]
        if opening and not name.startswith("docs/"):
            found.add(name)
    assert found == WALL.keys()
