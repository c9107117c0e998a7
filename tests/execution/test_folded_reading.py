"""A look folds batches as it reads them, and comes to what all of them together would."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from builders import minimal_cell

from simstudy.execution.ledger import Ledger
from simstudy.replicates.moments import Moments, stack
from simstudy.replicates.performance import fold


def batch(number: int) -> Moments:
    rng = np.random.default_rng(number)
    sums = (rng.normal(size=(16, 1, 2)), rng.normal(size=(16, 1, 3)), rng.normal(size=(16, 7)), np.zeros((16, 1, 0)))
    return Moments(np.ones(16, np.int64), *sums, np.zeros(1), np.array([number]))


@pytest.mark.parametrize("population", [False, True])
@pytest.mark.parametrize("n", [4, 100, 149, 300])
def test_looks__are_those_of_all_batches(n, population, monkeypatch):
    """A block that is cut where a segment ends, or a damaged batch that counts, would change the sums."""
    monkeypatch.setattr("simstudy.replicates.performance.FINE_BATCHES", 8)
    monkeypatch.setattr("simstudy.execution.batch_files.LENGTH", 64)
    store = SimpleNamespace(read_batches=lambda _, numbers, __: {i: batch(i) for i in numbers if i != 150})
    cell = minimal_cell(**{"population": ["queries"], "queries": {"kind": "gaussian"}} if population else {})
    account = SimpleNamespace(identity="a", planned=SimpleNamespace(cell=cell))
    parts, lost = Ledger._read(SimpleNamespace(_store=store), account, [*range(n)])
    assert lost == {150} & {*range(n)}
    whole = [batch(number) for number in range(n) if number not in lost]
    expected = stack(whole) if population else fold(whole)
    assert all(one.tobytes() == other.tobytes() for one, other in zip(stack(parts), expected, strict=True))
