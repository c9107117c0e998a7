"""What a refusal must look like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from simstudy.design.claims import MeasureName

LONGEST_LIST = len(", ".join(get_args(MeasureName)))
"""Alternatives that a message may have to list, none of them cut."""


def refused(call: Callable[[], Any], kinds: type[Exception] | tuple = ValueError) -> Any:
    """Return what a call returns, or None if it refuses with a message of one printable line for each mistake."""
    try:
        return call()
    except kinds as error:
        for line in str(error).split("\n"):
            assert line.isprintable() and 10 < len(line) < 1000 + LONGEST_LIST, repr(line)
        return None
