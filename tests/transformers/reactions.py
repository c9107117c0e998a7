"""Reactions as RXNMapper reads them, of as many kinds as are common in patents, written for these tests."""

from __future__ import annotations

import re
from pathlib import Path

REACTIONS = Path(__file__).with_suffix(".txt").read_text().split()

_TOKEN = re.compile(r"\[[^\]]+]|Br?|Cl?|>>?|%\d\d|.")


def tokens(reaction: str, vocabulary: dict[str, int]) -> list[int]:
    """Numbers of the tokens of a reaction, between those that begin and end a sequence."""
    found = [vocabulary.get(token, vocabulary["[UNK]"]) for token in _TOKEN.findall(reaction)]
    return [vocabulary["[CLS]"], *found, vocabulary["[SEP]"]]
