"""The walls of the house: what a linter of imports cannot see."""

import ast
import tomllib
from pathlib import Path

import pytest
from commands import ROOT

from simstudy.data.geometry import GEOMETRIC_INDICES
from simstudy.design.measures import INDICES
from simstudy.execution.provenance import PACKAGE, sources


def test_indices__are_those_of_the_geometry_and_the_output():
    outputs = ("output", "output_rank", "output_determinant", "output_participation")
    disagreement = ("disagreement_values", "disagreement_positions", "disagreement_outputs")
    assert (*GEOMETRIC_INDICES, *outputs, *disagreement) == INDICES


# What each room may import of ours, beside itself; what stands on top of the rooms calls whatever it needs.
ALLOWED: dict[str, set[str]] = {
    "arguments": set(),
    "formulas": set(),
    "pools": {"errors"},
    "weights": set(),
    "netcdf": set(),
    "errors": set(),
    "kernels": set(),
    "design.settings": {"errors", "formulas"},
    "design": {"errors", "formulas"},
    "theory": {"design.settings", "arguments", "weights"},
    "data": {"kernels", "design.settings"},
    "transformers": {"theory", "data.geometry", "design.files", "arguments", "errors"},
    "attention": {"kernels", "data", "design.settings", "weights", "transformers"},
    "replicates": {"attention", "data", "kernels.cuda", "kernels.devices", "kernels.errors", "design", "errors"},
    "execution": {"replicates", "attention.combinations", "data.geometry", "kernels.devices", "kernels.sealed",
                  "design", "pools", "errors", "netcdf"},
    "verdicts": {"execution", "replicates.intervals", "replicates.performance", "theory", "data", "design"},
    "report": {"results", "shown", "verdicts", "execution", "design", "errors"},
    "shown": {"verdicts", "design"},
    "judging": {"report", "verdicts", "execution", "design", "errors"},
}  # fmt: skip


def modules_imported(path: Path) -> set[str]:
    """Modules that a file imports anywhere; of ``from package import name`` the name, if it is a module of ours."""
    modules = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            modules |= {each if is_module(each) else node.module for each in full}
    return modules


def is_module(name: str) -> bool:
    place = PACKAGE.parent.joinpath(*name.split("."))
    return place.is_dir() or place.with_suffix(".py").exists()


@pytest.mark.parametrize("room", ALLOWED)
def test_room__imports_only_what_it_may(room):
    place = PACKAGE.joinpath(*room.split("."))
    paths = place.rglob("*.py") if place.is_dir() else [place.with_suffix(".py")]
    inside = [PACKAGE.joinpath(*other.split(".")) for other in ALLOWED if other.startswith(f"{room}.")]
    names = tuple(f"{PACKAGE.name}.{name}." for name in (room, *ALLOWED[room]))
    found = {module for path in paths if not {*inside} & {*path.parents} for module in modules_imported(path)}
    assert {each for each in found if each.split(".")[0] == PACKAGE.name and not f"{each}.".startswith(names)} == set()


def test_engine_sources__cover_what_a_batch_imports():
    """Every module of ours that makes what is stored must enter its identity."""
    reached, open_ends = set(), {PACKAGE / "replicates/batch.py", PACKAGE / "replicates/population.py"}
    while open_ends:
        path = open_ends.pop()
        reached.add(path)
        for module in modules_imported(path):
            parts = module.split(".")
            for depth in range(2, len(parts) + 1) if parts[0] == "simstudy" else ():
                base = PACKAGE.joinpath(*parts[1:depth])
                for candidate in (base.with_suffix(".py"), base / "__init__.py"):
                    if candidate.exists() and candidate not in reached:
                        open_ends.add(candidate)
    missing = reached - set(sources())
    assert {p for p in missing if len(ast.parse(p.read_text()).body) > 1} == set(), "more than a docstring"


def lines(*folders, suffix=".py"):
    """Lines of the files below some folders."""
    paths = (path for folder in folders for path in (ROOT / folder).rglob(f"*{suffix}") if ".venv" not in path.parts)
    return sum(len(path.read_text().splitlines()) for path in paths)


def hidden(path):
    return any(part.startswith(".") for part in path.relative_to(ROOT).parts)


def test_sizes__are_within_their_budgets():
    budgets = tomllib.loads((ROOT / ".ci" / "budgets.toml").read_text())
    found = {room: lines(f"simstudy/{room}") for room in budgets["rooms"]}
    found["modules"] = lines("simstudy") - sum(found.values())
    assert {room: (n, budgets["rooms"][room]) for room, n in found.items() if n > budgets["rooms"].get(room, n)} == {}
    whole = {
        "package": lines("simstudy"),
        "functions": sum(len(path.read_text().splitlines()) for path in (ROOT / "designs").rglob("functions.py")),
        "tests": lines("tests"),
        "words": sum(len(path.read_text().split()) for path in ROOT.rglob("*.md") if not hidden(path)),
    }
    assert {name: n for name, n in whole.items() if n > budgets["whole"][name]} == {}
