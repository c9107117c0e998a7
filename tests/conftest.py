"""What all tests share: one small study that was run, the command line in the process of a test, and order."""

import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from commands import PRINTED, compile_in_turn, forks

# What takes long to import is imported below: the process that hands out tests runs none, and all wait for it.
# Examples that failed lie with the environment: the checkout may be read-only.
os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(Path(sys.prefix) / ".hypothesis")


class Finished(NamedTuple):
    """A study that was run: its design, its results, and the folder of all studies that holds it."""

    design: Any
    results: Any
    output: Path

    def copied(self, output: Path) -> Path:
        """Copy what the run has left into a folder, and return that: quicker than to run it there."""
        return shutil.copytree(self.output, output, dirs_exist_ok=True)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """`builders.DESIGN`, run once for all tests of a worker; tests that change its files have a copy."""
    from builders import load_design, run, write_design

    path = write_design(tmp_path_factory.mktemp("design"))
    design, output = load_design(path), tmp_path_factory.mktemp("tiny")
    results = run(design, output=output, executor="serial")
    path.unlink()  # or copies would not be those of another file
    return Finished(design, results, output)


@pytest.fixture(scope="session")
def design() -> Any:
    """A small design of reports and figures, unless a file of tests has another."""
    from builders_results import DESIGN, load_design

    return load_design(DESIGN)


@pytest.fixture(scope="session")
def results(design: Any) -> Any:
    """Results of it, made up, which no test may change."""
    from builders_results import build_results

    return build_results(design)


@pytest.fixture
def warm_processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Processes of Dask are forked from one that has imported everything, as those of `commands.forks`."""
    import dask

    forks()
    # Dask would replace what is imported there.
    monkeypatch.setattr("distributed.utils._forkserver_preload_set", True)
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        yield


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports of this process are without pictures, as those of `commands.simstudy`."""
    from simstudy.report import page

    monkeypatch.setattr(page, "figure_files", lambda *_: {})


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
    """One worker more than cores: tests of Slurm, schedulers and kills wait for most of their time."""
    return len(os.sched_getaffinity(0)) + 1


def pytest_collection_finish() -> None:
    """What all tests share lives as long as they: rubbish is not looked for in it over and over."""
    compile_in_turn()
    gc.collect()
    gc.freeze()
