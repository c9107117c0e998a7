"""What reaches a terminal or a log: text that nobody can steer it with, one line for a mistake, how far a run is."""

import ast
import shlex
import signal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr
from builders import DESIGN, edited, loaded, minimal_cell, varied, write_design
from commands import python
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.table import Table

from simstudy import __main__ as process
from simstudy.design.document import Precision
from simstudy.execution.provenance import PACKAGE
from simstudy.execution.state import RunState
from simstudy.execution.store import Store
from simstudy.replicates.performance import Performance
from simstudy.report import progress, terminal
from simstudy.report.progress import ProgressDisplay, missed_line, undecided_line

HOSTILE = ["x[/x]", "[bold red]x[/]", "\x1b[2J\x1b]0;title\a", "a\nb\r\n", "\u202egnp.exe", ":boom:", "\udce9", "="]
PRINTED = {"print", "echo", "secho", "Console", "from_markup", "showwarning", "print_exc", "print_exception"}


def test_nothing_else_prints():
    for path in set(PACKAGE.rglob("*.py")) - {PACKAGE / "report" / "terminal.py"}:
        tree = ast.walk(ast.parse(path.read_text()))
        used = {getattr(n, "id", getattr(n, "attr", "")) for n in tree if isinstance(n, ast.Name | ast.Attribute)}
        assert not used & PRINTED, path
        assert "sys.stdout.write" not in path.read_text() and "sys.stderr.write" not in path.read_text(), path


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.one_of(st.sampled_from(HOSTILE), st.text(max_size=30)))
def test_text__is_shown_on_one_line_as_it_is_or_spelt_out(text, capsys):
    table = Table(title=text)
    table.add_column(text, no_wrap=True)
    table.add_row(text)
    table.add_row(terminal.entry((text, "bold"), text))
    capsys.readouterr()
    terminal.say(text)
    terminal.warn(text)
    terminal.fail(text)
    shown = capsys.readouterr()
    spelt = shown.out.removesuffix("\n")
    assert spelt.isprintable() and (not text.isprintable() or spelt == text)
    assert shown.err == f"{spelt}\nerror: {spelt}\n"
    terminal.say(table)
    assert capsys.readouterr().out.replace("\n", "").isprintable()


def outcome(capsys, *arguments: object) -> tuple[int, str, str]:
    capsys.readouterr()
    return process.command(list(map(str, arguments))), *capsys.readouterr()


@pytest.mark.parametrize("name", ["x[/x]", "[red]", "\x1b[31m", "a\nb", "\u202ex"])
def test_hostile_names__are_spelt_out(name, tmp_path, capsys):
    path = write_design(tmp_path)
    folder = [["run", path, "--output", f"{tmp_path}/{name}"]] * (not name.isprintable())
    others = [["run", name], ["report", name, "--profile", name], [name], ["run", "x", "--workers", name]]
    for arguments in [*others, *folder]:
        code, out, err = outcome(capsys, *arguments)
        assert code == 2 and out == "" and err.count("\n") == 1 and err.replace("\n", "").isprintable()
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_hostile_designs__are_listed_run_and_shown(tmp_path, capsys):
    text = edited(DESIGN, 'kind = "ridge"', 'kind = "ridge", label = "[red]$\\\\frac{$"')
    levels = {"bandwidth": None, "regression": ["zero", {"kind": "ridge", "label": "=[/]$_{$"}], "hue": "regression"}
    told = {"title": "[/x] :boom: $x^{$ [bold]tiny[/bold]", "statement": "[/i] falls: $}$"}
    path = write_design(tmp_path / "tiny", varied(text, **levels, **told))
    output = tmp_path / "x[/x]"
    for arguments in (["list", tmp_path], ["check", path]):
        assert outcome(capsys, *arguments)[0] == 0
    code, out, err = outcome(capsys, "run", path, "--output", output, "--executor", "serial")
    assert code in (0, 3), err
    assert f"page: {output}/tiny/quick/report.html" in out
    code, out, _ = outcome(capsys, "status", path, "--output", output)
    assert code == 0 and "=[/]$_{$" in out
    cells = (output / "tiny/quick/cells.csv").read_text()
    assert ",'=[/]$_{$," in cells and ",=" not in cells


def test_defect__is_told_with_its_traceback_and_steers_no_terminal(monkeypatch, capfd):
    def fail() -> int:
        raise KeyError("x\n\x1b[2J")

    monkeypatch.setattr(process, "command", fail)
    assert process._outcome() == 70
    first, *lines = capfd.readouterr().err.splitlines()
    assert first == "error: a defect of simstudy, not a mistake of yours; please report it with these lines"
    assert "Traceback (most recent call last):" in lines and "".join(lines).isprintable()


@pytest.mark.parametrize(("module", "sent"), [("typer", "SIGINT"), ("rich.console", "SIGHUP"), ("numba", "SIGTERM")])
def test_signal_during_imports__is_one_line(module, sent, tmp_path):
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"  # the tests themselves may run under nohup
        "class Sender:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {module!r} and not sent: sent.append(os.kill(os.getpid(), signal.{sent}))\n"
        "sent = []; sys.meta_path.insert(0, Sender())\n"
        "from simstudy.__main__ import main; main()"
    )
    result = python("-c", code, "run", write_design(tmp_path), "--output", tmp_path / "out")
    assert (result.returncode, result.stdout) == (130, "")
    assert result.stderr == "interrupted; finished batches are stored: run the same command again to continue\n"


@pytest.mark.parametrize("redirection, code, said", [
    ("| head -0", 0, ""), ("0<&- 1>&- 2>&-", 0, ""), ("> /dev/full", 2, "output cannot be written (No space"),
])  # fmt: skip
def test_output_that_nobody_reads__is_dropped_and_a_full_device_is_told(redirection, code, said, tmp_path):
    write_design(tmp_path / "tiny")
    line = f"set -o pipefail; {shlex.quote(sys.executable)} -m simstudy list {tmp_path} {redirection}"
    result = subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=PACKAGE.parent, timeout=600)
    assert result.returncode == code and said in result.stderr and bool(said) == bool(result.stderr)


def test_broken_installation__is_told_in_one_line_and_hangup_ignored_under_nohup():
    code = "import signal, sys; sys.modules['rich'] = None; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    code += "from simstudy import __main__ as m; m.catch_signals()\n"
    result = python("-c", code + "assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN; m.main()", "list")
    assert result.returncode == 70 and result.stderr.count("\n") == 1
    assert "not installed as it should be" in result.stderr and "rich" in result.stderr
    assert signal.getsignal(signal.SIGTERM) is not process._interrupt


@pytest.mark.parametrize("looked_at, told", [
    (False, "0/1 cells, error at most 1.5 of the target, first estimates of all cells in 30 s"),
    (True, "0/1 cells, error at most 1.5 of the target, 25% of the work, 30 s left"),
])  # fmt: skip
def test_log__tells_the_time_to_the_first_looks_and_then_to_the_end(looked_at, told, monkeypatch):
    now, said = [0.0], []
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(progress, "due", lambda began, seconds: began + seconds)
    monkeypatch.setattr(progress, "say", said.append)
    state = SimpleNamespace(cells=[SimpleNamespace(shortfall=None)], work_known=looked_at)
    display = ProgressDisplay()
    display._bar.get_time = lambda: now[0]
    # Five minutes go by before the first batch, as on a slow machine that compiles; then each takes five seconds.
    for now[0], work in [(0.0, 0), (300.0, 0), (305.0, 50), (310.0, 100)]:
        state.work = work, 400, 0
        state.cells[0].shortfall = SimpleNamespace(ratio=1.5) if work else None
        display(state)
    assert said == ["0/1 cells, time left unknown", told]
    assert (display._bar.tasks[0].total is not None) == looked_at
    now[0], state.cells[0].shortfall = 330.0, SimpleNamespace(ratio=0.9)
    display(state)
    assert ("targets reached, more replicates for claims" in said[-1]) == looked_at


@pytest.mark.parametrize("stop, used, reached, told", [
    ("precision", 64, True, 'the precision asked for; state grids.g.precision.stop = "both" to go on'),
    ("precision", 64, False, ""),  # stopped by the budget
    ("both", 64, True, ""),
    ("precision", 512, False, "max_replicates = 512; raise it to go on"),
    ("verdict", 512, True, "max_replicates = 512; raise it to go on"),
])  # fmt: skip
def test_open_claims__are_told_with_what_would_decide_them(stop, used, reached, told):
    precision = Precision(stop=stop, min_replicates=64, max_replicates=512)
    planned = [SimpleNamespace(grid="g", cell=minimal_cell(), precision=precision)]
    claims = {name: SimpleNamespace(grid="g", holds="on_average" if name == "e" else "everywhere") for name in "abcde"}
    along = {
        "verdict": ["undecided", "supported", *["undecided"] * 3],
        "expected_verdict": ["supported"] * 2 + ["undecided", *["supported"] * 2],
        "verdict_estimate": [1.0, 1.0, 1.0, np.nan, 1.0],
    }
    results = xr.Dataset(
        {name: ("claim", column) for name, column in along.items()}
        | {"n_replicates": ("cell", [used - 1]), "n_failed": ("cell", [1]), "precision_reached": ("cell", [reached])},
        coords={"claim": list(claims), "grid": ("cell", ["g"])},
    )
    found = undecided_line(results, SimpleNamespace(cells=planned, claims=claims))
    mean = "too few settings; raise grids.g.cells to go on"  # of which replicates are no remedy
    both = f"a, e: cells of g stopped at {told.removesuffix(' to go on')}; {mean}" if told else f"e: {mean}"
    assert found == f"undecided, not as expected: {both}"


def test_precision_that_is_missed__is_told(tmp_path):
    design = loaded(tmp_path)
    state = RunState(design, Store(tmp_path))
    for account, mcse in zip(state.cells, (0.1, 0.2, 0.01, 0.01, 0.01, 0.01), strict=True):
        account.done = account.target
        account.performance = Performance({"mse": 1.0}, {"mse": mcse}, {"mse": np.array([0.2])}, {}, 64, 64, 0)
    status = state.write_status()
    assert missed_line(status, design) == (
        "2 cells short of the target, furthest angles: angle = 0.0, bandwidth = 1.0: MCSE of mse 0.2, target 0.05, "
        "ceiling of 512 replicates; raise max_replicates to go on"
    )
    states = progress.status_table(status, design).columns[-1].cells
    assert [*states] == ["", *["short of the target"] * 2, *["done"] * 4]
    reached = [cell.model_copy(update={"reached": True}) for cell in status.cells]
    assert missed_line(status.model_copy(update={"cells": tuple(reached)}), design) == ""


def test_table_of_very_many_cells__has_those_furthest_from_what_is_wanted(tmp_path, monkeypatch):
    design = loaded(tmp_path)
    state = RunState(design, Store(tmp_path))
    assert [*progress.status_table(state.write_status(), design).columns[0].cells] == ["", *"012345"]
    monkeypatch.setattr(progress, "MOST_ROWS", 3)
    for account, ratio in zip(state.cells, (0.9, 0.2, 1.4, 0.3, 0.0, 0.0), strict=True):
        account.done = account.target
        precise = Performance({"mse": 1.0}, {"mse": 0.05 * ratio}, {}, {}, 0, account.done, 64, 0)
        account.performance = precise if ratio else None
    state.cells[4].done = 0
    table = progress.status_table(state.write_status(), design)
    assert [*table.columns[0].cells] == ["", "2", "4", "5", ""]
    assert [*table.columns[1].cells][-1] == "3 cells nearer to their target: see --json"
