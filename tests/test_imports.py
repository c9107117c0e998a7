"""The walls of the house: what a linter of imports cannot see."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from simstudy import moments
from simstudy.geometry import GEOMETRIC_INDICES
from simstudy.provenance import ENGINE_SOURCES, PACKAGE
from simstudy.variables import INDICES, STATISTICS

SOURCES = sorted(PACKAGE.rglob("*.py"))


def imported(path: Path) -> set[str]:
    modules = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return modules


def importers(package: str) -> set[str]:
    found = [p for p in SOURCES if any(m == package or m.startswith(f"{package}.") for m in imported(p))]
    return {path.relative_to(PACKAGE).as_posix() for path in found}


def test_contracts__hold():
    command = [Path(sys.executable).parent / "lint-imports"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=PACKAGE.parent)
    assert result.returncode == 0, result.stdout


def test_only_named_modules__import_dask():
    assert importers("dask") | importers("distributed") | importers("dask_jobqueue") == {
        "clients.py", "nodes.py", "schedule.py",
    }  # fmt: skip


def test_numba__is_configured_in_one_module_and_extended_in_another():
    assert importers("numba") == {"jit.py", "vectors.py"}


def test_only_named_modules__touch_files():
    """Writing is for the store; reading also for the design, head files, sources and templates."""
    pattern = re.compile(r"\.(write_text|write_bytes|open|savez?|to_netcdf|unlink|mkdir)\(")
    writers = {p.name for p in SOURCES if pattern.search(p.read_text())}
    assert writers - {"store.py", "design.py", "report.py", "gather.py", "arrays.py"} == set()


def test_engine_sources__cover_what_a_batch_imports():
    """Every module of ours that `batch` reaches must enter the identity of stored batches."""
    reached, open_ends = set(), {PACKAGE / "batch.py"}
    while open_ends:
        path = open_ends.pop()
        reached.add(path)
        for module in imported(path):
            parts = module.split(".")
            for depth in range(2, len(parts) + 1) if parts[0] == "simstudy" else ():
                base = PACKAGE.joinpath(*parts[1:depth])
                for candidate in (base.with_suffix(".py"), base / "__init__.py"):
                    if candidate.exists() and candidate not in reached:
                        open_ends.add(candidate)
    covered = {PACKAGE / entry for entry in ENGINE_SOURCES}
    missing = {p for p in reached if p not in covered and p.parent not in covered}
    assert missing == set()


def test_indices__are_those_of_the_geometry_and_the_output():
    assert (*GEOMETRIC_INDICES, "output") == INDICES
    assert tuple(STATISTICS)[: len(moments.STATISTICS)] == moments.STATISTICS


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_every_module__is_short_and_says_what_it_imports(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 400
    docstring = ast.get_docstring(ast.parse(text)) or ""
    if path.name != "__init__.py":
        assert "Imports " in docstring


OURS = {p.stem if p.name != "__init__.py" else p.parent.name for p in SOURCES} - {PACKAGE.name}
# How the prose of a docstring names what is imported under another name; the standard library is not listed.
PROSE_NAMES = {"distributed": "dask", "dask_jobqueue": "dask", "mpl_toolkits": "matplotlib"}


def imports_of(path: Path) -> set[str]:
    """Modules of ours and third-party packages that a module imports anywhere, by the name that prose gives them."""
    found = set()
    for module in imported(path):
        package, *parts = module.split(".")
        if package == PACKAGE.name:
            # A package of ours is one thing to others; its own modules name each other.
            inside = len(parts) > 1 and path.parent.name == parts[0]
            found |= {parts[1] if inside else parts[0]} & OURS if parts else set()
        elif package not in sys.stdlib_module_names:
            found.add(PROSE_NAMES.get(package, package).lower())
    return found


def licence(path: Path) -> tuple[set[str], set[str]]:
    """Modules that the docstring says are imported, and those that are free: the rest of "its own package".

    The list is the sentence that starts with "Imports", up to its end or a semicolon.
    """
    docstring = " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").split())
    sentence = re.findall(r"\bImports (.*?)(?:[.;:](?= |$)|$)", docstring)[0]
    words = {word.rsplit(".", 1)[-1] for word in re.findall(r"[\w.]+", sentence)}
    named = {word if word in OURS else word.lower() for word in words} & (OURS | THIRD_PARTY)
    return named, {p.stem for p in path.parent.glob("*.py")} if "its own package" in sentence else set()


MODULES = [path for path in SOURCES if path.name != "__init__.py"]
THIRD_PARTY = {name for path in SOURCES for name in imports_of(path)} - OURS


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_docstring__names_exactly_what_is_imported(path):
    actual, (named, free) = imports_of(path), licence(path)
    assert actual - named - free == set(), "imported, but not named"
    assert named - actual == set(), "named, but not imported"


def test_docstring_check__sees_both_kinds_of_lie(tmp_path):
    path = tmp_path / "liar.py"
    path.write_text(
        '"""A liar.\n\nImports NumPy and cells\nonly; never heads.\n"""\n\nfrom typing import TYPE_CHECKING\n\n'
        "import xarray\n\nif TYPE_CHECKING:\n    from simstudy import claims\n\n\n"
        "def f():\n    from simstudy.theory.leading import leading_order\n"
    )
    assert imports_of(path) == {"xarray", "claims", "theory"}
    assert licence(path) == ({"numpy", "cells"}, set())
