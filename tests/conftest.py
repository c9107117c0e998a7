"""The order of the suite: files that take longest come first, so that no core idles at its end.

Files are handed to workers in this order, whole: ``--dist loadfile --no-loadscope-reorder``.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

import pytest
from commands import PRINTED

# Those that wait for Slurm and networks, then by processor time; the others take less than 10 s each.
LONGEST = (
    "test_slurm.py", "test_network.py", "test_study.py", "test_cli.py", "test_cuda.py", "test_kills.py",
    "test_durability.py", "test_nadaraya_watson.py", "test_own_code.py", "test_wheel.py", "test_performance.py",
    "test_page.py", "test_open_claims.py", "test_queue.py", "test_moments.py", "test_terminal.py", "test_load.py",
    "test_figures.py", "test_compact.py", "test_fuzz.py", "test_transport.py", "test_compiled.py", "test_smoke.py",
    "test_quasi_monte_carlo.py", "test_equal_keys.py", "test_monte_carlo.py", "test_control_variate.py",
    "test_sealing.py", "test_documents.py",
)  # fmt: skip


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports of this process are without pictures, as those of `commands.simstudy`."""
    from simstudy.report import page

    monkeypatch.setattr(page, "_drawings", lambda *_: {})


@pytest.fixture
def in_process(
    undrawn: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., subprocess.CompletedProcess]:
    """The command line in the process of the test: what it says and its exit code, as `commands.simstudy`."""
    from simstudy.__main__ import command
    from simstudy.report import terminal

    for name, value in PRINTED.items():
        monkeypatch.setenv(name, value)
    # Consoles ask for the width when they are made, which may have been before.
    for console in (terminal._output, terminal._errors):
        monkeypatch.setattr(console, "_width", int(PRINTED["COLUMNS"]))

    def run(*arguments: object) -> subprocess.CompletedProcess:
        capsys.readouterr()
        given = [*map(str, arguments)]
        return subprocess.CompletedProcess(given, command(given), *capsys.readouterr())

    return run


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One worker more than cores: tests of Slurm, networks and kills wait for most of their time."""
    return len(os.sched_getaffinity(0)) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort tests by their files, and leave those of a file in order."""
    ranks = {name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path.name, len(ranks)))
