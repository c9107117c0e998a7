"""Theory between levels is computed once for a design and a theory, and anew for others."""

from __future__ import annotations

import numpy as np
import pytest
from builders_results import DESIGN, build_design, build_results

from simstudy.execution.store import Store
from simstudy.report import between
from simstudy.report.between import between_of
from simstudy.verdicts import curves


def test_theory_between__is_kept_until_design_or_theory_change(tmp_path, monkeypatch):
    monkeypatch.setitem(curves.BUDGET, "leading", 24)
    design = build_design(tmp_path, DESIGN.replace("exact = true", "exact = false"))
    results, store, computed = build_results(design), Store(tmp_path / "out"), []

    def counted(*arguments):
        computed.append(arguments)
        return curves.theory_between(*arguments)

    monkeypatch.setattr(between, "theory_between", counted)
    figure = design.figures["unshown"]
    first, second = (between_of(figure, "unshown", results, design, store) for _ in range(2))
    assert len(computed) == 1 and first.sizes["cell"] == 24
    np.testing.assert_array_equal(first.correlation, second.correlation)
    monkeypatch.setattr(between, "judging_code", lambda _: "another theory")
    between_of(figure, "unshown", results, design, store)
    between_of(figure, "unshown", results.assign_attrs(design_hash="another"), design, store)
    between_of(figure.model_copy(update={"y": "mse"}), "unshown", results, design, store)
    assert len(computed) == 4
    assert between_of(design.figures["which-index"], "which-index", results, design, store) is None


@pytest.mark.parametrize("content", [b"", b"no file of ours"])
def test_damaged_file__is_computed_again(tmp_path, monkeypatch, content):
    monkeypatch.setitem(curves.BUDGET, "leading", 24)
    design = build_design(tmp_path, DESIGN.replace("exact = true", "exact = false"))
    store = Store(tmp_path / "out")
    path = store.write_bytes("figures/unshown.theory.nc", content)
    assert between_of(design.figures["unshown"], "unshown", build_results(design), design, store).sizes["cell"] == 24
    assert len(path.read_bytes()) > len(content)
