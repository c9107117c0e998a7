"""The walls of the house: what a linter of imports cannot see."""

import ast
import importlib
import itertools
import re
import sys
import tomllib
from concurrent.futures import Executor
from pathlib import Path

import grimp
import pytest
from builders import varied, write_design
from commands import ROOT

from simstudy import run
from simstudy.data.geometry import GEOMETRIC_INDICES
from simstudy.design.measures import INDICES
from simstudy.execution.provenance import PACKAGE, sources

# What each room may import of ours, beside itself; what stands on top of the rooms calls whatever it needs.
ALLOWED: dict[str, set[str]] = {
    "arguments": set(),
    "formulas": set(),
    "weights": set(),
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
                  "kernels.settings", "design", "errors"},
    "verdicts": {"execution", "replicates.intervals", "replicates.performance", "theory", "data", "design"},
    "report": {"results", "verdicts", "execution", "design", "errors"},
    "judging": {"report", "verdicts", "execution", "design", "errors"},
}  # fmt: skip


@pytest.fixture(scope="module")
def graph():
    return grimp.build_graph("simstudy", cache_dir=str(Path(sys.prefix) / ".grimp_cache"))


@pytest.mark.parametrize("room", ALLOWED)
def test_room__imports_only_what_it_may(room, graph):
    def within(module, *rooms):
        return f"{module}.".startswith(tuple(f"simstudy.{each}." for each in rooms))

    inside = [other for other in ALLOWED if other.startswith(f"{room}.")]
    own = [each for each in graph.modules if within(each, room) and not within(each, *inside)]
    found = set().union(*map(graph.find_modules_directly_imported_by, own))
    assert own and not [each for each in found if not within(each, room, *ALLOWED[room])]


def test_engine_sources__cover_what_a_batch_imports(graph):
    tops = "simstudy.replicates.batch", "simstudy.replicates.population"
    reached = set().union(*map(graph.find_upstream_modules, tops))
    places = [PACKAGE.joinpath(*module.split(".")[1:]) for module in reached]
    paths = {place / "__init__.py" if place.is_dir() else place.with_suffix(".py") for place in places}
    assert len(paths) > 40
    assert not {p for p in paths - set(sources()) if len(ast.parse(p.read_text()).body) > 1}, "more than a docstring"


def test_indices__are_those_of_the_geometry_and_the_output():
    outputs = ("output", "output_rank", "output_determinant", "output_participation")
    disagreement = ("disagreement_values", "disagreement_positions", "disagreement_outputs")
    assert (*GEOMETRIC_INDICES, *outputs, *disagreement) == INDICES


def lines(*folders, suffix=".py"):
    paths = (path for folder in folders for path in (ROOT / folder).rglob(f"*{suffix}") if ".venv" not in path.parts)
    return sum(len(path.read_text().splitlines()) for path in paths)


def test_sizes__are_within_their_budgets():
    budgets = tomllib.loads((ROOT / ".ci" / "budgets.toml").read_text())
    found = {room: lines(f"simstudy/{room}") for room in budgets["rooms"]}
    found["modules"] = lines("simstudy") - sum(found.values())
    assert {room: (n, budgets["rooms"][room]) for room, n in found.items() if n > budgets["rooms"].get(room, n)} == {}
    pages = [path for path in ROOT.rglob("*.md") if not re.search(r"/(\.|outputs/)", f"/{path.relative_to(ROOT)}")]
    whole = {
        "package": lines("simstudy"),
        "functions": sum(len(path.read_text().splitlines()) for path in (ROOT / "designs").rglob("functions.py")),
        "tests": lines("tests"),
        "words": sum(len(path.read_text().split()) for path in pages),
    }
    assert {name: n for name, n in whole.items() if n > budgets["whole"][name]} == {}


def test_flow_to_the_first_batch__is_as_short_as_contributors_read(tmp_path):
    met = {}

    def note(frame, event, _):
        code, caller = frame.f_code, frame.f_back and frame.f_back.f_code
        ours = event == "call" and caller and all(each.co_filename.startswith(f"{PACKAGE}/") for each in (code, caller))
        if ours and caller.co_name != "<module>" and not re.search("<|__$", code.co_qualname):
            met.setdefault(code)

    for name in ("verdicts.assemble", "verdicts.judge", "execution.state", "kernels.devices"):  # no part of the flow
        importlib.import_module(f"simstudy.{name}")
    two_cells = varied(bandwidth=[0.5], angle=[0, 45])
    stopping = type("", (Executor,), {"submit": lambda *_: sys.exit()})()  # where the first batch would be computed
    sys.setprofile(note)
    try:
        with pytest.raises(SystemExit):
            run(write_design(tmp_path, two_cells), output=tmp_path, executor=stopping, observer=lambda *_: None)
    finally:
        sys.setprofile(None)
    files = [str(Path(code.co_filename).relative_to(PACKAGE)) for code in met]
    visits = [name for name, _ in itertools.groupby(files)]
    most = re.search(r"(\d+) visits to (\d+) files", (PACKAGE / "CONTRIBUTING.md").read_text())
    assert len(visits) <= int(most[1]) and len({*files}) <= int(most[2]) and max(map(visits.count, visits)) <= 2, visits
