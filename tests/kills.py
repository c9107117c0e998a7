"""Kills that hit work: runs forked from a warm process, killed when the files on disk show that they are at work.

A kill counts if its process had written something since it began, or left a file half written, and had more to write.
One that came too early or too late is repeated at another moment."""

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import stored
import xarray as xr
from builders import DESIGN, edited
from commands import FORKS, ROOT, run_command

FOLDER = Path("tiny") / "quick"
BATCHES = stored.PATTERN
ENDS = ("details.nc", "results.nc", "provenance.json", "figures/*", "*.csv", "report.html")
"""What a run writes when all batches are stored, in this order."""
PATIENCE = 240.0
TRIES = 40
"""Moments at which a kill is tried until it hits work."""

# Twelve cells in two shares, and a batch every 3 ms or so; the control by expansion would end them at the first look.
WORK = edited(DESIGN, "n_keys = 40", "n_keys = 2_000").replace("mse = 0.05", "mse = 0.001")
WORK = edited(WORK, "batch_size = 32", 'batch_size = 32\ncontrol = "none"')
WORK = edited(WORK, "n_features = 6\n", "")
WORK = edited(WORK, "angle = [0, 45, 90]", "n_features = [6, 7]\nangle = [0, 45, 90]")
WORK = edited(WORK, 'expected = "undecided"', 'expected = "supported"')
WORK = edited(WORK, 'hue = "bandwidth"', 'hue = "bandwidth"\nwhere = { n_features = 6 }')


class Fork:
    """A command in a process of its own group, forked from a warm one; ``first`` is code to execute before it."""

    def __init__(self, arguments: list[str], first: str, log: Path) -> None:
        given = ["simstudy", *arguments], str(ROOT), environment(), f"import os; os.setsid()\n{first}"
        self._process = FORKS.Process(target=run_command, args=(*given, [os.devnull, str(log)]))
        self._process.start()
        self.pid, self.kill = self._process.pid, self._process.kill

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout or PATIENCE)
        assert self._process.exitcode is not None, "waited in vain"
        return self._process.exitcode


class Aim(NamedTuple):
    """When a process is killed: once it has written some of its files, ``most`` at most, and ``delay`` s later at most.

    Half of the kills come when the next file is half written instead.
    """

    patterns: tuple[str, ...] = (BATCHES,)
    most: int = 12
    delay: float = 0.03


BATCH = Aim()


class Target:
    """A folder whose writers are killed, and the calm one that it must equal in the end; the name is for the table."""

    def __init__(self, name: str, folder: Path, calm: Path) -> None:
        self.name, self.folder = name, folder
        self.tried = self.effective = self.torn = 0
        self._calm = {path: content(calm / path) for path in state(calm)}
        self._seen = state(folder)
        self._harmed: dict[str, tuple[int, int]] = {}
        self._moments = random.Random(name)

    def paths(self, *patterns: str) -> set[str]:
        return {path for path in self._calm if any(PurePosixPath(path).match(pattern) for pattern in patterns)}

    def hit(self, start: Callable[[], Any], aim: Aim = BATCH, wanted: set[str] | None = None) -> None:
        """Start a process and kill it, until a kill has hit work; where all batches are stored by then, start anew."""
        for _ in range(TRIES):
            process = start()
            if self.shoot(process, aim, wanted):
                return
            if aim.patterns == (BATCHES,) and self.paths(BATCHES) <= self._seen.keys():
                shutil.rmtree(self.folder)
                self._seen = {}
        raise AssertionError(f"{self.name}: no kill in {TRIES} hit work")

    def shoot(
        self, process: Any, aim: Aim = BATCH, wanted: set[str] | None = None, victim: Callable | None = None
    ) -> bool:
        """Kill a process, or by ``victim`` one that works for it, and return whether that hit work.

        The files ``wanted`` are those that the process has to write, all of the calm folder by default.
        """
        before = state(self.folder)
        self._wait(process, aim, before, process.kill if victim is None else lambda: None)
        at_work = process.poll() is None
        if victim is None:
            process.kill()
            at_work = process.wait(PATIENCE) == -signal.SIGKILL
        else:
            victim()
        now = state(self.folder)
        written = {path for path in now if now[path] != before.get(path)}
        torn = 0 if victim else len(half_written(self.folder))
        done = written | (now.keys() & self.paths(BATCHES))
        effective = at_work and bool(written or torn) and bool((wanted or self._calm.keys()) - done)
        self.tried += 1
        self.effective += effective
        self.torn += effective and torn > 0
        self.assert_harmless()
        return effective

    def _wait(self, process: Any, aim: Aim, before: dict, kill: Callable) -> None:
        count = self._moments.randint(1, aim.most)
        while process.poll() is None:
            # On a fast machine a command would end while its files are looked at.
            with held(process):
                now = state(self.folder, *aim.patterns)
            if sum(now[path] != before.get(path) for path in now) >= count:
                break
            time.sleep(0.003)
        else:
            return
        if self._moments.random() < 0.5:
            time.sleep(self._moments.uniform(0, aim.delay))
            return
        deadline = time.monotonic() + 1.0
        # A file is half written for a tenth of a millisecond: the process goes on in steps that are little longer.
        while time.monotonic() < deadline and process.poll() is None:
            with held(process):
                if half_written(self.folder):
                    kill()
                    return
            time.sleep(0.0002)

    def stored(self) -> list[str]:
        return sorted(path for path in self._seen if path.endswith(".batch"))

    def forget(self, path: str) -> None:
        """Let a batch be computed again: it was harmed, or is no more."""
        self._seen.pop(path, None)
        self._harmed |= state(self.folder, path)

    def assert_harmless(self) -> None:
        """No batch was written again, and what was written is whole."""
        now = state(self.folder)
        kept = {path: was for path, was in self._seen.items() if path.endswith(".batch")}
        assert kept.items() <= now.items(), f"{self.name}: a stored batch was lost or computed again"
        whole = {path: was for path, was in now.items() if was != self._harmed.get(path)}
        for path in whole:
            if whole[path] != self._seen.get(path):
                assert content(self.folder / path) == self._calm[path], f"{self.name}: {path} is not that of a calm run"
        self._seen = whole

    def assert_equal(self) -> None:
        """Everything is there, as after a calm run."""
        self.assert_harmless()
        assert self._seen.keys() == self._calm.keys()
        assert half_written(self.folder) == []


@contextlib.contextmanager
def held(process: Any) -> Iterator[None]:
    """Stop a process and all of its group meanwhile."""
    # It may have no group yet, or no more.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGCONT)


def state(folder: Path, *patterns: str) -> dict[str, tuple[int, int]]:
    """Files and batches of a study, each with what changes when it is written again: its place, and the time."""
    own = ((name, row) for name, row in stored.rows(folder).items() if name.startswith("batches/"))  # not its shares'
    found = {name: (row, 0) for name, row in own if any(map(PurePosixPath(name).match, patterns or (BATCHES,)))}
    for path in (path for pattern in patterns or (BATCHES, *ENDS) for path in folder.glob(pattern)):
        with contextlib.suppress(FileNotFoundError):
            about = path.stat()
            found[path.relative_to(folder).as_posix()] = (about.st_ino, about.st_mtime_ns)
    return found


def half_written(folder: Path) -> list[str]:
    """Files that are being written, or were when their process was killed."""
    try:
        aside = [name for name in os.listdir(folder / ".partial") if not name.endswith(".pem")]
    except FileNotFoundError:
        aside = []
    return aside + stored.torn(folder)


def content(path: Path) -> object:
    """Whatever of a file or batch every run of a study must repeat."""
    if path.suffix == ".batch":
        return stored.record(path)
    if path.suffix == ".nc":
        return numbers(path)
    return sorted(json.loads(path.read_text())) if path.suffix == ".json" else path.read_bytes()


def numbers(results: Path) -> dict[str, str]:
    """Digest of every variable and attribute of a file of results, apart from what tells how its run went."""
    content = {}
    with xr.open_datatree(results) as opened:
        for node in opened.subtree:
            content |= {f"{node.path} {name}": values.values for name, values in node.variables.items()}
            stated = {name: np.asarray(text) for name, text in node.attrs.items() if name != "run"}
            content |= {f"{node.path} attribute {name}": text for name, text in stated.items()}
    return {name: hashlib.sha256(_bytes(values)).hexdigest() for name, values in content.items()}


def _bytes(values: np.ndarray) -> bytes:
    return repr(values.tolist()).encode() if values.dtype == object else values.tobytes()


UNFOLDED = "from simstudy.execution.state import RunState\nRunState.fold = lambda _: None\n"
"""Batches that a kill has left are compared one by one, which they are no more once they are folded together."""
_MAIN = f"{UNFOLDED}import runpy, sys\nsys.argv[0] = 'simstudy'\nrunpy.run_module('simstudy', run_name='__main__')"


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-W", "ignore", "-m", "simstudy", *map(str, arguments)]


def unfolded(*arguments: object) -> list[str]:
    """A command that folds nothing."""
    return [sys.executable, "-W", "ignore", "-c", _MAIN, *map(str, arguments)]


def environment(**more: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200", "NO_COLOR": "1"} | more


class Bench:
    """A study, a calm run of it, and commands in forks, each after some code; the log takes standard errors."""

    def __init__(self, place: Path, work: str, first: str = "") -> None:
        self.place, self.log, self._first = place, place / "log", UNFOLDED + first
        self.design = place / "work.toml"
        self.design.write_text(work)
        self.targets: list[Target] = []
        self.finish(*self.run("calm"))

    def start(self, *arguments: object, first: str = "") -> Fork:
        """Start a command of simstudy, after some code."""
        return Fork([*map(str, arguments)], self._first + first, self.log)

    def finish(self, *arguments: object) -> None:
        """Let a command end in order; another draw may leave a claim open."""
        assert self.start(*arguments).wait() in (0, 3, 5)[: 2 + ("--confirm" in arguments)], self.log.read_text()

    def run(self, name: str, *options: object) -> tuple[object, ...]:
        """Arguments of a run into a folder of this name."""
        return ("run", self.design, "--output", self.place / name, *(options or ("--executor", "serial")))

    def target(self, name: str, folder: Path = FOLDER, calm: str = "calm") -> Target:
        """A folder to be shot at."""
        self.targets.append(Target(name, self.place / name / folder, self.place / calm / folder))
        return self.targets[-1]

    def copied(self, name: str) -> Target:
        """A folder to be shot at, in which all is done."""
        shutil.copytree(self.place / "calm", self.place / name)
        return self.target(name)

    def start_over(self, target: Target, *arguments: object) -> Fork:
        """Start a command that has to make results and report again, as some of them is gone."""
        for name in ("provenance.json", "report.html"):
            (target.folder / name).unlink(missing_ok=True)
        return self.start(*arguments)

    def end(self, target: Target) -> None:
        """Run what is left, and compare."""
        self.finish(*self.run(target.name))
        target.assert_equal()
        assert "Traceback" not in self.log.read_text()


def simulation(executor: str) -> Callable[[Bench, int], Target]:
    """Return what kills runs while they compute batches."""

    def killed(bench: Bench, n: int) -> Target:
        target = bench.target(executor)
        for _ in range(n):
            target.hit(lambda: bench.start(*bench.run(executor, "--executor", executor)))
        bench.end(target)
        return target

    return killed


def results(bench: Bench, n: int) -> Target:
    """Runs that write results and the report."""
    target = bench.copied("results")
    for _ in range(n):
        target.hit(lambda: bench.start_over(target, *bench.run("results")), Aim(ENDS, 4), target.paths(*ENDS))
    bench.end(target)
    return target


def confirmation(bench: Bench, n: int) -> Target:
    """Runs with other random numbers, at their batches and at what follows: they are one, as in another folder."""
    options = ("--executor", "serial", "--confirm", "a text")
    bench.finish(*bench.run("another", *options))
    (digest,) = os.listdir(bench.place / "another" / FOLDER / "confirmed")
    target = bench.target("confirm", FOLDER / "confirmed" / digest, "another")
    for _ in range(n - n // 2):
        target.hit(lambda: bench.start(*bench.run("confirm", *options)))
    bench.finish(*bench.run("confirm", *options))
    for _ in range(n // 2):
        start = bench.run("confirm", *options)
        target.hit(lambda start=start: bench.start_over(target, *start), Aim(ENDS, 4), target.paths(*ENDS))
    bench.finish(*bench.run("confirm", *options))
    target.assert_equal()
    assert os.listdir(bench.place / "confirm" / FOLDER) == ["confirmed"]
    assert os.listdir(target.folder.parent) == [digest] and "Traceback" not in bench.log.read_text()
    return target


KINDS = {
    "serial": simulation("serial"),
    "threads": simulation("threads"),
    "results": results,
    "confirm": confirmation,
}
"""Pilots and shares compute and store batches as runs do, and a report is written as at the end of a run."""
