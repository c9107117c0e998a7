"""Mistakes that a user can mend, and how a message shows what a file says."""

import importlib.util

from simstudy.text import control_character, printable


class UserError(Exception):
    """A mistake that a user can mend: shown as its message alone, each argument a line of it; exit code 2.

    Control characters are spelt out: what files and options say must not steer a terminal.
    """

    def __init__(self, *lines: str) -> None:
        super().__init__(*map(printable, lines))

    def __str__(self) -> str:
        return "\n".join(self.args)


def require_plain(name: str, text: str) -> None:
    """Refuse a setting that would write more than one line into a job script, or steer a terminal."""
    if found := control_character(text):
        raise UserError(f"{name} = {text!r}: must be one line of text without control characters; {found} is one")


def require_extra(wanted: str, module: str, extra: str, otherwise: str = "") -> None:
    """Refuse what needs a module that is not installed, and name the extra that installs it."""
    if importlib.util.find_spec(module) is None:
        raise UserError(f"{wanted}: {module} is not installed; pip install 'simstudy[{extra}]'{otherwise}")
