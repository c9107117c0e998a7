"""Kinds of work that are killed, each until it has been hit so many times, and then ended and compared."""

import shutil
from collections.abc import Callable
from pathlib import Path

from kills import BATCHES, ENDS, FOLDER, Aim, Fork, Target


class Bench:
    """A study, a calm run of it, and commands in forks, each after some code; the log takes standard errors."""

    def __init__(self, place: Path, work: str, first: str = "") -> None:
        self.place, self.log, self._first = place, place / "log", first
        self.design = place / "work.toml"
        self.design.write_text(work)
        self.targets: list[Target] = []
        self.finish(*self.run("calm"))

    def start(self, *arguments: object, first: str = "") -> Fork:
        """Start a command of simstudy, after some code."""
        return Fork([*map(str, arguments)], self._first + first, self.log)

    def finish(self, *arguments: object) -> None:
        """Let a command end in order."""
        assert self.start(*arguments).wait() in (0, 3), self.log.read_text()

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


def merge(bench: Bench, n: int) -> Target:
    """A folder that takes the batches of another."""
    target = bench.target("merge")
    arguments = ("merge", bench.place / "calm" / FOLDER, "--into", target.folder)
    for _ in range(n):
        target.hit(lambda: bench.start(*arguments), Aim(most=24, delay=0.002), target.paths(BATCHES))
    bench.finish(*arguments)
    bench.end(target)
    return target


KINDS = {"serial": simulation("serial"), "threads": simulation("threads"), "results": results, "merge": merge}
"""Pilots and shares compute and store batches as runs do, and a report is written as at the end of a run."""
