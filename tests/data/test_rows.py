"""Rows of a user's data as keys: drawn by address, each as likely as any other, their outcomes with them."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from builders import minimal_cell
from scipy import stats

from simstudy.attention import members_of
from simstudy.data.regression import at_queries
from simstudy.data.shared import SharedData
from simstudy.data.training import draw_keys, draw_rows
from simstudy.design.contents import read_contents
from simstudy.replicates.batch import simulate_batch
from simstudy.replicates.replay import replay

FITTED = {"kind": "fitted", "learner": "linear"}


def make(sampling="with_replacement", noise="gaussian", regression=FITTED, n_keys=50, **settings):
    keys = {"kind": "file", "path": "sklearn:diabetes", "response": "target", "held_out": 12}
    settings = {"n_features": 10, "queries": {"kind": "held_out", "count": 5}} | settings
    data = {"key_distribution": keys | {"sampling": sampling}, "noise": noise, "regression": regression}
    cell, problems = read_contents(minimal_cell(n_keys=n_keys, **data, **settings), Path())
    assert not problems
    return cell


@pytest.mark.parametrize("sampling", ["with_replacement", "without"])
def test_rows__are_a_pure_function_of_seed_replicate_and_number(sampling):
    cell = make(sampling, n_keys=200)
    drawn = draw_rows(cell, 3, 4)
    np.testing.assert_array_equal(draw_rows(make(sampling, n_keys=100), 3, 4), drawn[:, :100])
    np.testing.assert_array_equal(draw_rows(cell, 5, 1)[0], drawn[2])
    assert not np.array_equal(draw_rows(make(sampling, n_keys=200, seed=8), 3, 4), drawn)
    np.testing.assert_array_equal(draw_keys(cell, 3, 4), cell.rows.keys[drawn].swapaxes(1, 2))


@pytest.mark.parametrize("sampling", ["with_replacement", "without"])
def test_every_row__is_as_likely_as_any_other_at_every_place(sampling):
    drawn = draw_rows(make(sampling), 0, 4000)
    for place in (0, 7, 49):
        assert stats.chisquare(np.bincount(drawn[:, place], minlength=430)).pvalue > 1e-4
    # Two places are independent, but for a row that cannot come twice.
    table = np.histogram2d(drawn[:, 0], drawn[:, 1], bins=10)[0]
    assert stats.chisquare(table.ravel()).pvalue > 1e-4
    twice = (drawn[:, 0] == drawn[:, 1]).mean()
    assert twice == 0.0 if sampling == "without" else abs(twice - 1 / 430) < 4 * (4000 * 430) ** -0.5
    assert all(len(set(rows)) == 50 for rows in drawn[:50]) == (sampling == "without")


def test_all_rows_without_replacement__are_all_rows():
    drawn = draw_rows(make("without", n_keys=430), 0, 3)
    np.testing.assert_array_equal(np.sort(drawn, axis=1), np.tile(np.arange(430), (3, 1)))
    assert len({tuple(rows) for rows in drawn}) == 3


def test_values_are_those_of_the_rows_drawn():
    cell = make(noise_treatment="drawn", noise_sd=0.0)
    shared = SharedData(cell, 2, 3)
    np.testing.assert_array_equal(shared.values(cell), cell.rows.values[draw_rows(cell, 2, 3)])
    np.testing.assert_array_equal(at_queries(cell), cell.rows.targets[:5])
    known = make(regression="linear")
    np.testing.assert_allclose(at_queries(known), known.rows.points[:5, 0])


def test_any_residual_may_come_to_any_row():
    cell = make(noise="residuals", noise_treatment="drawn", noise_sd=2.0)
    shared = SharedData(cell, 0, 400)
    drawn = (shared.values(cell) - shared.regression(cell)) / 2.0
    known = np.sort(cell.rows.residuals)
    nearest = known[np.clip(np.searchsorted(known, drawn), 1, 429) - [[[0]], [[1]]]]
    assert np.abs(nearest - drawn).min(axis=0).max() < 1e-9
    assert drawn.var() == pytest.approx(known.var(), rel=0.05)
    np.testing.assert_allclose(shared.variances(cell), 4 * known.var())
    own = cell.rows.residuals[draw_rows(cell, 0, 400)]
    assert abs(np.corrcoef(own.ravel(), drawn.ravel())[0, 1]) < 0.03


def test_paired_residuals_stay_with_their_rows():
    paired = {"kind": "residuals", "paired": True}
    cells = [make(noise=paired, noise_treatment=treatment, noise_sd=0.5) for treatment in ("drawn", "integrated")]
    shared = SharedData(cells[0], 0, 3)
    rows = draw_rows(cells[0], 0, 3)
    expected = (cells[0].rows.values + 0.5 * cells[0].rows.residuals)[rows]
    for cell in cells:
        np.testing.assert_array_equal(shared.values(cell), expected)
        assert not shared.variances(cell).any()


def test_cells_of_one_company__have_the_bits_that_they_have_alone():
    cells = [
        make(n_keys=60), make(n_keys=30), make(noise="residuals"), make(regression="ridge", n_keys=20),
        make(noise={"kind": "residuals", "paired": True}, noise_treatment="drawn"),
    ]  # fmt: skip
    for cell, moments in zip(cells, simulate_batch(cells, 1), strict=True):
        alone = simulate_batch([cell], 1)[0]
        for ours, theirs in zip(moments, alone, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_contents_travel_to_workers_that_do_not_see_the_file(tmp_path):
    path = tmp_path / "data.npy"
    np.save(path, np.random.default_rng(0).normal(size=(30, 6)))
    keys = {"kind": "file", "path": "data.npy", "response": "5", "held_out": 3}
    settings = {"n_features": 5, "queries": {"kind": "held_out", "count": 3}}
    cell, _ = read_contents(minimal_cell(key_distribution=keys, regression="file", **settings), tmp_path)
    path.unlink()
    arrived = pickle.loads(pickle.dumps(cell))
    for ours, theirs in zip(simulate_batch([arrived], 0)[0], simulate_batch([cell], 0)[0], strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_replay_shows_the_rows_that_the_batch_used():
    cell = make(noise="residuals", noise_treatment="drawn")
    shown = replay(cell, 17)
    np.testing.assert_array_equal(shown["keys"], draw_keys(cell, 17, 1)[0])
    members = members_of(cell, SharedData(cell, 17, 1))
    np.testing.assert_array_equal(shown["head_estimate"], members.means[0])


def test_validation_pairs_of_fitted_weights__are_further_rows():
    combination = {"kind": "fitted", "n_validation": 30}
    cell = make("without", noise="residuals", noise_treatment="drawn", combination=combination)
    assert np.isfinite(simulate_batch([cell], 0)[0].error_sum).all()
