"""The commands, each a thin layer over what `simstudy` offers in Python.

What a command needs is imported inside the command: ``--help`` stays fast.
"""

from simstudy.commands import designs, own, running
from simstudy.commands.cli import app

__all__ = ["app", "designs", "own", "running"]
