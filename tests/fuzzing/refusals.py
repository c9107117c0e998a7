"""What a refusal must look like."""

from collections.abc import Callable
from typing import Any

from simstudy.design.measures import INDEXED_MEASURES, MEASURES, STATISTICS

LONGEST_LIST = len(", ".join(MEASURES | STATISTICS | INDEXED_MEASURES))
"""Alternatives that a message may have to list, none of them cut."""


def refused(call: Callable[[], Any], kinds: type[Exception] | tuple = ValueError) -> Any:
    """Return what a call returns, or None if it refuses with a message of one printable line for each mistake."""
    try:
        return call()
    except kinds as error:
        for line in str(error).split("\n"):
            assert line.isprintable() and 10 < len(line) < 1000 + LONGEST_LIST, repr(line)
        return None
