"""Errors that a user can correct, and texts without control characters for messages."""

import importlib.util
import re

# Controls of ASCII and Latin-1, separators of lines, marks that turn the direction of writing, and halves of pairs,
# which are bytes of a file name that is no UTF-8.
STEERING = re.compile("[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Return a text on one line with control characters spelled out, as terminals would interpret them."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class UserError(Exception):
    """An error that a user can correct: shown as its message only, a line for each argument; exit code 2."""

    def __init__(self, *lines: str) -> None:
        super().__init__(*map(printable, lines))

    def __str__(self) -> str:
        return "\n".join(self.args)


class PrecisionWarning(UserWarning):
    """A run in Python ended before it reached the precision, or decided the claims, of its design."""


def require_extra(wanted: str, module: str, extra: str, otherwise: str = "") -> None:
    """Raise UserError if a module is not installed, and name the extra that installs it."""
    if importlib.util.find_spec(module) is None:
        raise UserError(f"{wanted}: {module} is not installed; pip install 'simstudy[{extra}]'{otherwise}")
