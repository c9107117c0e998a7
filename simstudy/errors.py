"""Errors that a user can correct, and texts without control characters for messages."""

import importlib.util
import re

# Control characters of ASCII and Latin-1, line separators, marks of writing direction, and surrogates, which are bytes
# of a file name that is not UTF-8.
STEERING = re.compile("[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Return a text on one line, with control characters, which terminals would interpret, escaped."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class UserError(Exception):
    """Error that a user can correct: only its message is shown, a line for each argument; exit code 2."""

    def __init__(self, *lines: str) -> None:
        super().__init__(*map(printable, lines))

    def __str__(self) -> str:
        return "\n".join(self.args)


class PrecisionWarning(UserWarning):
    """A run in Python ended before it reached the target precision, or decided the claims, of its design."""


def require_extra(feature: str, module: str, extra: str, otherwise: str = "") -> None:
    """Raise UserError if a module is not installed, and name the extra that installs it."""
    if importlib.util.find_spec(module) is None:
        raise UserError(f"{feature}: {module} is not installed; pip install 'simstudy[{extra}]'{otherwise}")
