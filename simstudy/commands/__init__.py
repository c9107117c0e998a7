"""The commands, each a thin layer over what `simstudy` offers in Python.

What a command needs is imported inside the command: ``--help`` stays fast.
"""

import inspect

from simstudy.commands import own, studies
from simstudy.commands.cli import app

for command in app.registered_commands:  # listed by a whole sentence, however long
    command.short_help = str(inspect.getdoc(command.callback)).partition("\n")[0]

__all__ = ["app", "own", "studies"]
