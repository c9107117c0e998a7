"""How far a run is, for a person who waits: a bar with ETA on a terminal, a line now and then in a log.

Imports rich and ledger only.
"""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from simstudy.ledger import Ledger

LOG_SECONDS = 10.0
"""Time between two lines where there is no terminal."""


class ProgressDisplay:
    """Observer of a run; use it as a context manager around the run."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = self._logged = time.monotonic()
        self._initial: float | None = None
        columns = (
            TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(),
            TextColumn("{task.fields[replicates]:,} replicates"), TimeElapsedColumn(), TextColumn("ETA"),
            TimeRemainingColumn(),
        )  # fmt: skip
        self._bar = Progress(*columns, console=console, disable=not console.is_terminal)
        self._task = self._bar.add_task("simulating", total=None, replicates=0)

    def __enter__(self) -> ProgressDisplay:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self._bar.stop()

    def __call__(self, ledger: Ledger, predicted: int | None = None) -> None:
        """Show the state of the run; the ETA follows the estimated cost of what is left to simulate."""
        done, expected = ledger.work_done, ledger.work_expected
        replicates = sum((a.target - len(a.missing)) * a.batch_size for a in ledger.accounts)
        cells = sum(account.finished for account in ledger.accounts)
        text = f"{cells}/{len(ledger.accounts)} cells"
        text += "" if predicted is None else f", theory of {predicted}"
        self._bar.update(self._task, total=expected, completed=done, description=text, replicates=replicates)
        self._initial = done if self._initial is None else self._initial
        now = time.monotonic()
        if not self._console.is_terminal and now - self._logged >= LOG_SECONDS:
            self._logged = now
            speed = (done - self._initial) / (now - self._started)
            left = f"{(expected - done) / speed:.0f} s left" if speed > 0 else "time left unknown"
            work = f", {done / expected:.0%} of the work known, {left}" if predicted is None else ""
            self._console.print(f"{text}, {replicates:,} replicates{work}")
