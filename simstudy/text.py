"""Which characters of a text steer what shows it, and how to spell them out."""

import re

# Controls of ASCII and Latin-1, separators of lines, marks that turn the direction of writing, and halves of pairs,
# which are bytes of a file name that is no UTF-8.
_STEERING = re.compile("[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Return a text on one line, control characters spelt out: what a file says must not steer the terminal."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def control_character(text: str, allowed: str = "") -> str | None:
    """Return the first character of a text that would steer a terminal, a job script or a page, as ``U+001B``."""
    found = (match[0] for match in _STEERING.finditer(text) if match[0] not in allowed)
    return next((f"U+{ord(character):04X}" for character in found), None)
