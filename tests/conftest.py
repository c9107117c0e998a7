"""The order of the suite: files that take longest come first, so that no core idles at its end.

Files are handed to workers in this order, whole: ``--dist loadfile --no-loadscope-reorder``.
"""

from __future__ import annotations

import pytest

# Those that wait for Slurm and networks, then by processor time; the others take less than 10 s each.
LONGEST = (
    "test_slurm.py", "test_network.py", "test_study.py", "test_cli.py", "test_cuda.py", "test_kills.py",
    "test_durability.py", "test_nadaraya_watson.py", "test_own_code.py", "test_wheel.py", "test_performance.py",
    "test_page.py", "test_open_claims.py", "test_queue.py", "test_moments.py", "test_terminal.py", "test_load.py",
    "test_figures.py", "test_compact.py", "test_fuzz.py", "test_transport.py", "test_compiled.py", "test_smoke.py",
    "test_quasi_monte_carlo.py", "test_equal_keys.py", "test_monte_carlo.py", "test_control_variate.py",
    "test_sealing.py", "test_documents.py",
)  # fmt: skip


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports of this process are without pictures, as those of `commands.simstudy`."""
    from simstudy.report import page

    monkeypatch.setattr(page, "_drawings", lambda *_: {})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort tests by their files, and leave those of a file in order."""
    ranks = {name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path.name, len(ranks)))
