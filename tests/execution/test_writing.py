"""What is written behind the work: all of it, in order, and failures are told."""

from __future__ import annotations

import pytest

from simstudy.execution import writing
from simstudy.execution.writing import Writer


def test_what_is_added__is_written_in_order_together_and_before_anybody_reads(monkeypatch):
    monkeypatch.setattr(writing, "GATHER_SECONDS", 3600.0)
    written: list[list[int]] = []
    with Writer(written.append) as writer:
        for number in range(3):
            writer.add(number)
        assert written == []
        writer.settle()
        assert written == [[0, 1, 2]]
        writer.add(3)
    assert written == [[0, 1, 2], [3]]


def test_what_is_added__is_written_when_the_work_fails():
    written: list[list[int]] = []
    with pytest.raises(KeyboardInterrupt), Writer(written.append) as writer:
        writer.add(0)
        raise KeyboardInterrupt
    assert written == [[0]]


def test_too_much_that_waits__is_waited_for(monkeypatch):
    monkeypatch.setattr(writing, "GATHER_SECONDS", 3600.0)
    monkeypatch.setattr(writing, "MOST_WAITING", 2)
    written: list[list[int]] = []
    with Writer(written.append) as writer:
        writer.add(0)
        writer.add(1)
        assert written == [[0, 1]]


def test_failure__is_told_at_once_and_nothing_is_written_after_it():
    tried: list[list[int]] = []

    def failing(things: list[int]) -> None:
        tried.append(things)
        raise OSError("full")

    with pytest.raises(OSError, match="full"), Writer(failing) as writer:
        writer.add(0)
        with pytest.raises(OSError, match="full"):
            writer.settle()
        with pytest.raises(OSError, match="full"):
            writer.add(1)
    assert tried == [[0]]
