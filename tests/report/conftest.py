"""Reports of these tests show theory at the levels alone: between them it takes seconds, and has tests of its own."""

from __future__ import annotations

import pytest

from simstudy.verdicts import curves


@pytest.fixture(scope="module", autouse=True)
def no_theory_between():
    with pytest.MonkeyPatch.context() as patch:
        for source in curves.BUDGET:
            patch.setitem(curves.BUDGET, source, 0)
        yield
