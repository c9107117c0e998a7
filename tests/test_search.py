"""The search for counterexamples: against closed forms in the angles, and against random pairs."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
from commands import simstudy

from simstudy import search
from simstudy.data.geometry import diversity_indices, principal_angles
from simstudy.design.load import load_design
from simstudy.design.settings.cell import Cell
from simstudy.errors import UserError
from simstudy.search import worst_pair

CHORDAL = 0


def noise_cell(n_heads: int, head_dim: int = 1, **estimator) -> Cell:
    """Noise alone at x = 0, where n·Cov/σ² of two heads is Π_j (1 − κ² cos² t_j)^(−1/2)."""
    return Cell.model_validate({
        "data": {"n_keys": 1000, "n_features": 3},
        "heads": {"n_heads": n_heads, "head_dim": head_dim, "arrangement": "aligned"},
        "estimator": {"bandwidth": 0.5} | estimator,
    })  # fmt: skip


def error_in_closed_form(heads: np.ndarray) -> float:
    cosines2 = np.cos(principal_angles(heads)) ** 2
    return float(np.prod((1 - 0.64 * cosines2) ** -0.5, axis=-1).mean() / 1000)


def test_worst_pair__is_more_diverse_and_worse_and_no_random_pair_is_as_bad():
    found = worst_pair(noise_cell(3), "chordal", 0.05, n_starts=3)
    assert [error_in_closed_form(heads) for heads in found.heads] == pytest.approx(found.mse, rel=1e-9)
    assert diversity_indices(found.heads)[:, CHORDAL] == pytest.approx(found.diversity)
    assert np.diff(found.diversity) >= 0.05
    np.testing.assert_allclose(np.swapaxes(found.heads, -1, -2) @ found.heads, np.ones((2, 3, 1, 1)), atol=1e-12)

    drawn = np.random.default_rng(1).normal(size=(400, 3, 3, 1))
    index = diversity_indices(drawn)[:, CHORDAL]
    error = np.array([error_in_closed_form(heads) for heads in drawn])
    ratios = np.where(index[:, None] - index >= 0.05, error[:, None] / error, 0.0)
    assert 1.0 < ratios.max() < found.ratio


def test_worst_pair__of_two_lines_is_no_counterexample():
    """The control: two heads of one dimension have one angle, and their error falls in it."""
    found = worst_pair(noise_cell(2), "chordal", 0.05, n_starts=2)
    assert found.ratio < 1.0


@pytest.fixture
def hasty(monkeypatch):
    """The solver takes a few steps: enough to tell seeds apart, and to find no pair where there is none."""
    few = {"options": {"maxiter": 8}}
    monkeypatch.setattr(search, "minimize", lambda *given, **named: scipy.optimize.minimize(*given, **(named | few)))


@pytest.mark.usefixtures("hasty")
def test_worst_pair__is_the_same_for_the_same_seed():
    first, again, other = (worst_pair(noise_cell(3), "chordal", 0.05, seed=seed, n_starts=1) for seed in (4, 4, 5))
    np.testing.assert_array_equal(first.heads, again.heads)
    assert not np.array_equal(first.heads, other.heads)


@pytest.mark.usefixtures("hasty")
def test_worst_pair__refuses_what_it_cannot_search():
    with pytest.raises(UserError, match="not an index of heads alone"):
        worst_pair(noise_cell(3), "output", 0.05)
    with pytest.raises(UserError, match=r"gap of 1\.5 in chordal"):
        worst_pair(noise_cell(3), "chordal", 1.5, n_starts=1)
    with pytest.raises(UserError, match="fixed weights"):
        worst_pair(noise_cell(3, combination="optimal"), "chordal", 0.05)


DESIGN = """
[study]
name = "searched"
title = "t"
aim = "a"
[data]
n_keys = 1000
n_features = 3
[heads]
n_heads = 3
head_dim = 1
[estimator]
bandwidth = 0.5
[grids.start.factors]
arrangement = ["aligned", "haar"]
{rest}
[profiles.quick]
"""
FROM_FILE = (
    '[grids.found]\nsettings = { arrangement = "file" }\nfactors.file = ["heads/a-less.npy", "heads/a-more.npy"]'
)


def test_search_command__writes_heads_that_a_design_reads(tmp_path):
    path = tmp_path / "searched.toml"
    path.write_text(DESIGN.format(rest=""))
    common = ("--index", "chordal", "--gap", "0.05", "--starts", "1", "--output", tmp_path / "heads" / "a")
    result = simstudy("search", path, "--cell", 1, *common)
    assert result.returncode == 0 and "a-more.npy" in result.stdout, result.stderr
    path.write_text(DESIGN.format(rest=FROM_FILE))
    cells = [planned.cell for planned in load_design(path).cells if planned.grid == "found"]
    expected = worst_pair(noise_cell(3), "chordal", 0.05, n_starts=1)
    for cell, heads in zip(cells, expected.heads, strict=True):
        # Numerical libraries with another number of threads end the search elsewhere within its tolerance.
        np.testing.assert_allclose(np.array(cell.file_projections), heads, atol=1e-3)
    refused = simstudy("search", path, "--cell", 9, *common)
    assert refused.returncode == 2 and "cells 0 to 3" in refused.stderr
