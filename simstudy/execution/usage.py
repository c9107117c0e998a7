"""What a computation took: processor time and memory, of every process that had a part in it."""

from __future__ import annotations

import os
import platform
import resource
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

Result = TypeVar("Result")


class Usage(NamedTuple):
    """What one task took, where it ran: host and process, seconds of its thread, most memory of the process so far."""

    process: str
    cpu_seconds: float
    peak_MiB: float


def measured(call: Callable[..., Result], *arguments: Any) -> tuple[Result, Usage]:
    """Return what a call returns, and what it took."""
    start = time.thread_time()
    result = call(*arguments)
    return result, Usage(_process(), time.thread_time() - start, _peak_MiB())


class Meter:
    """Sums the use of a run, from its making on."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        self._elsewhere = 0.0
        self._peaks: dict[str, float] = {}

    def add(self, usage: Usage) -> None:
        """Take note of a task; what it took in this very process is counted already."""
        if usage.process != _process():
            self._elsewhere += usage.cpu_seconds
            self._peaks[usage.process] = max(usage.peak_MiB, self._peaks.get(usage.process, 0.0))

    @property
    def wall_seconds(self) -> float:
        """Time on the clock so far."""
        return time.perf_counter() - self._wall

    @property
    def cpu_seconds(self) -> float:
        """Processor time of this process and of the tasks so far."""
        return time.process_time() - self._cpu + self._elsewhere

    def read(self) -> dict[str, float]:
        """Return wall time, processor time and peak memory of this process and those of the tasks, together."""
        peaks = [_peak_MiB(), *self._peaks.values()]
        return {
            "wall_seconds": round(self.wall_seconds, 2),
            "cpu_seconds": round(self.cpu_seconds, 2),
            "processes": len(peaks),
            "peak_memory_MiB": round(sum(peaks), 1),
            "peak_memory_largest_process_MiB": round(max(peaks), 1),
        }


def _process() -> str:
    return f"{platform.node()}:{os.getpid()}"


def _peak_MiB() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
