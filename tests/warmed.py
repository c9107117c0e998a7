"""What `commands.forks` has done before it forks: imported everything, and run a small study by the command line."""

import contextlib
import io
import tempfile
from pathlib import Path
from unittest import mock

from builders import write_design
from commands import compile_in_turn
from threadpoolctl import threadpool_limits

from simstudy.__main__ import command
from simstudy.execution.provenance import engine

compile_in_turn()
with (
    tempfile.TemporaryDirectory() as place,
    contextlib.redirect_stdout(io.StringIO()),
    threadpool_limits(),
    mock.patch("simstudy.report.page.figure_files", lambda *_: {}),
):
    command(["run", str(write_design(Path(place))), "--output", place, "--executor", "serial"])
engine.cache_clear()  # the environment of a test decides it
