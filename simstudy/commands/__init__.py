"""The commands, each a thin layer over what `simstudy` offers in Python.

What a command needs is imported inside the command: ``--help`` stays fast.
"""

from simstudy.commands import designs, inspecting, running, sealing, search, stored, writing
from simstudy.commands.app import app

__all__ = ["app", "designs", "inspecting", "running", "sealing", "search", "stored", "writing"]
