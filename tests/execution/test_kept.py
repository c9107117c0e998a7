"""What is kept of the batches that were read gives each look what reading them all would."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from builders import minimal_cell

from simstudy.execution import ledger, segments
from simstudy.replicates import folding
from simstudy.replicates.folding import fold
from simstudy.replicates.moments import Moments, stack


def batch(number: int) -> Moments:
    rng = np.random.default_rng(number)
    sums = (rng.normal(size=(16, 1, 2)), rng.normal(size=(16, 1, 3)), rng.normal(size=(16, 7)))
    return Moments(np.ones(16, np.int64), *sums, np.zeros(1), np.array([number]))


@pytest.mark.parametrize("population", [False, True])
def test_looks_of_cells_with_the_same_batches__are_those_of_all_batches(population, monkeypatch):
    monkeypatch.setattr(folding, "FINE_BATCHES", 8)
    monkeypatch.setattr(ledger, "FINE_BATCHES", 8)
    monkeypatch.setattr(segments, "LENGTH", 64)
    damaged, read = {150}, []

    def read_batches(_, numbers, __):
        read.extend(numbers)
        return {number: batch(number) for number in numbers if number not in damaged}

    cell = minimal_cell(**{"population": ["queries"], "queries": {"kind": "gaussian"}} if population else {})
    account = SimpleNamespace(identity="a", planned=SimpleNamespace(cell=cell))
    kept = ledger.Kept(SimpleNamespace(read_batches=read_batches))
    for n in (4, 100, 6, 90, 149, 120, 300, 300):
        wanted = [*range(n)]
        parts, lost = kept.read(account, wanted)
        assert lost == damaged & set(wanted)
        whole = [batch(number) for number in wanted if number not in lost]
        expected = stack(whole) if population else fold(whole)
        for one, other in zip(stack(parts), expected, strict=True):
            assert one.tobytes() == other.tobytes()
        if n == 300:
            damaged.clear()
    assert max(map(read.count, range(96))) == 1 + (not population)  # of a block that did not end, the rest again
    parts, _ = kept.read(account, [0, 1, 2, 5, 7, 20])  # some have not come
    assert stack(parts).failed.tolist() == [0, 1, 2, 5, 7, 20]
