"""What one job of a batch system is asked for."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from simstudy.errors import UserError, require_plain
from simstudy.execution.folder import Folder

SUBMIT_COMMANDS = {"slurm": "sbatch", "pbs": "qsub", "sge": "qsub", "lsf": "bsub"}
TCP_TIMEOUT = "11s"
"""Silence after which a connection counts as broken; Dask refuses less, and by default takes a minute to notice."""
# Kernels are serial and release the GIL; numerical libraries must not start threads of their own.  Numba has none to
# start, and a variable of its own that changes makes it forget for which features of the processor it compiles.
# Python looks for no module in the current folder.
CHILDREN = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "PYTHONSAFEPATH")}
"""Environment of all processes that are started here."""
_QUOTED = r"[^\w%@+=:,./-]"
"""Characters that mean something in a directive of a batch system."""


@dataclass(frozen=True)
class Jobs:
    """Equal jobs on a batch system, of which what is impossible is refused; ``keys`` is the folder of the study."""

    system: str = "slurm"
    jobs: int = 2
    threads: int = 1
    memory: str = "2GB"
    walltime: str = "01:00:00"
    queue: str | None = None
    interface: str | None = None
    scratch: str = "${TMPDIR:-/tmp}"
    directives: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    logs: Path = Path("logs")
    keys: Folder = field(default_factory=lambda: Folder(Path()))

    def __post_init__(self) -> None:
        import psutil

        for name in ("queue", "interface", "scratch", "directives", "setup", "logs"):
            value = getattr(self, name)
            require_plain(name, " ".join(value) if isinstance(value, tuple) else str(value))
        if self.system not in SUBMIT_COMMANDS:
            raise UserError(f"system = {self.system!r}: unknown; choose {', '.join(SUBMIT_COMMANDS)}")
        if min(self.jobs, self.threads) < 1:
            raise UserError(f"jobs = {self.jobs}, threads = {self.threads}: must be at least 1")
        if not re.fullmatch(r"[0-9]+[MG]B", self.memory):
            raise UserError(f"memory = {self.memory!r}: must be a whole number of MB or GB, such as 4GB")
        if not re.fullmatch(r"[0-9]+:[0-5][0-9]:[0-5][0-9]", self.walltime) or self.seconds < 60:
            raise UserError(
                f"walltime = {self.walltime!r}: must be hours:minutes:seconds, a minute or more, such as 01:30:00"
            )
        if self.interface is not None and self.interface not in psutil.net_if_addrs():
            known = ", ".join(psutil.net_if_addrs())
            raise UserError(f"interface = {self.interface!r}: this machine has none of that name; choose from {known}")
        # sbatch ends an argument at a space, also after a backslash, but not between quotes.  The others know none.
        if re.search(r'[\\"]' if self.system == "slurm" else rf"{_QUOTED}|%", str(self.logs)):
            raise UserError(f"{self.logs}: {self.system} cannot write logs to such a name; choose another --output")

    def __str__(self) -> str:
        return f"{self.jobs} {self.system} jobs of {self.threads} threads"

    @property
    def seconds(self) -> int:
        """Walltime in seconds."""
        hours, minutes, seconds = map(int, self.walltime.split(":"))
        return (hours * 60 + minutes) * 60 + seconds

    def require_command(self) -> None:
        """Refuse a machine that cannot submit to the system."""
        command = SUBMIT_COMMANDS[self.system]
        if shutil.which(command) is None:
            raise UserError(
                f"{command}: not found on the PATH; submit from a login node of the cluster, or choose another --system"
            )
