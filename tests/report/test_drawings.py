"""Figures of a study as files: the same from one process and from several."""

from __future__ import annotations

import signal
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path

import psutil
import pytest
from builders_results import build_design, build_results

from simstudy.report import drawings
from simstudy.report.drawings import Shown, figure_files
from simstudy.report.labels import ALL_CLAIMS, Z_SCORES
from simstudy.report.tables import verdict_lines

DRAWING = """
import time
from pathlib import Path
from builders_results import build_design, build_results
from simstudy.report import drawings


def draw_for_ever(_shown, name):
    print("drawing", name, flush=True)
    time.sleep(600)


# Processes that draw read this, too.
drawings._WORTH_A_PROCESS, drawings._files = 1, draw_for_ever
if __name__ == "__main__":
    design = build_design(Path.cwd())
    drawings.figure_files(drawings.Shown(build_results(design), design, [], Path.cwd()), 3)
"""


@pytest.fixture(scope="module", autouse=True)
def no_theory_between():
    """Not here: processes that draw would know nothing of it."""


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    design = build_design(tmp_path_factory.mktemp("design"))
    results = build_results(design)
    return Shown(results, design, verdict_lines(results, []), tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def alone(shown):
    return figure_files(shown, 1)


def test_figure_files__are_those_of_the_design_and_of_all_cells_and_claims(shown, alone):
    assert list(alone) == [*shown.design.figures, Z_SCORES, ALL_CLAIMS]
    for files in alone.values():
        assert files["png"].startswith(b"\x89PNG")
        assert b"<svg" in files["svg"]


def test_figure_files__are_the_same_from_several_processes(shown, alone, tmp_path, monkeypatch):
    monkeypatch.setattr(drawings, "_WORTH_A_PROCESS", 2)
    files, here = drawings._files, []

    def drawn_here(shown, name):
        here.append(name)
        return files(shown, name)

    monkeypatch.setattr(drawings, "_files", drawn_here)
    together = figure_files(shown._replace(folder=tmp_path), 2)
    assert together == alone and list(together) == list(alone)
    assert 0 < len(here) < len(alone)


def test_figure_files__of_few_figures__are_drawn_where_they_are_asked_for(shown, monkeypatch):
    few = shown._replace(design=shown.design.model_copy(update={"figures": {}}))
    monkeypatch.setattr(drawings, "ProcessPoolExecutor", None)
    assert list(figure_files(few, 64)) == [Z_SCORES, ALL_CLAIMS]


def test_figure_files__of_a_process_that_fails__fail(shown, monkeypatch):
    monkeypatch.setattr(drawings, "_WORTH_A_PROCESS", 2)
    # So that the other process draws all of them.
    monkeypatch.setattr(Future, "cancel", lambda _: False)
    nowhere = shown._replace(results=shown.results.drop_vars("mse"), folder=Path("/nowhere"))
    with pytest.raises((KeyError, AttributeError)):
        figure_files(nowhere, 2)


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGINT])
def test_processes_that_draw__end_with_the_one_that_waits_for_them(by, tmp_path):
    script = tmp_path / "draw.py"
    script.write_text(DRAWING)
    tests = str(Path(__file__).parents[1])
    out = subprocess.PIPE
    drawing = subprocess.Popen(
        [sys.executable, script], cwd=tmp_path, env={"PYTHONPATH": tests}, stdout=out, stderr=out, text=True
    )
    begun = {drawing.stdout.readline() for _ in range(3)}
    assert len(begun) == 3 and all(each.startswith("drawing ") for each in begun)
    every = psutil.Process(drawing.pid).children(recursive=True)
    workers = [each for each in every if "spawn_main" in " ".join(each.cmdline())]
    assert len(workers) == 2
    for each in (drawing, *workers) if by == signal.SIGINT else (drawing,):
        each.send_signal(by)  # a terminal interrupts all of them
    said = drawing.communicate(timeout=60)[1]
    assert psutil.wait_procs(workers, timeout=60)[1] == []
    if by == signal.SIGINT:
        assert said.count("KeyboardInterrupt") == said.count("Traceback") == 1
