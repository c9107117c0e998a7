"""Rows held out as a population: each batch splits the data anew, and scales and fits what is left."""

from pathlib import Path

import numpy as np
import pytest
from builders import minimal_cell
from sklearn.linear_model import LinearRegression

from simstudy.data.regression import at_queries
from simstudy.design.contents import read_contents
from simstudy.design.document import Confirmation, confirmatory
from simstudy.design.feasibility import impossibilities
from simstudy.design.load import load_design
from simstudy.replicates.batch import simulate_batch
from simstudy.replicates.replay import replay
from simstudy.study import run

KEYS = {"kind": "file", "path": "sklearn:wine", "response": "target", "held_out": 20}


def cell_of(population=("held_out",), folder=".", keys=KEYS, **settings):
    base = {
        "n_features": 2, "n_keys": 12, "bandwidth": 1.0, "head_dim": 2, "arrangement": "aligned", "batch_size": 16,
        "regression": {"kind": "fitted", "learner": "linear"}, "noise": "residuals",
        "queries": {"kind": "held_out", "count": 3},
    }  # fmt: skip
    keys = {"columns": ["alcohol", "hue"]} | keys
    cell, problems = read_contents(
        minimal_cell(population=population, key_distribution=keys, **base | settings), Path(folder)
    )
    assert not problems, problems
    return cell


def test_batches__have_splits_of_their_own_and_the_first_that_of_a_study_with_one_split():
    cell, fixed = cell_of(), cell_of(())
    np.testing.assert_array_equal(cell.in_batch(0).rows.table, fixed.rows.table)
    points = [tuple(cell.in_batch(batch).rows.points.ravel()) for batch in range(6)]
    assert len(set(points)) == 6
    assert not np.array_equal(cell.in_batch(1).rows.points, cell_of(seed=8).in_batch(1).rows.points)
    assert cell.in_batch(1).data_id == cell.data_id and cell.identity("") != fixed.identity("")


@pytest.mark.parametrize("sampling", ["with_replacement", "without"])
def test_no_row__is_a_key_and_a_query_of_one_batch(tmp_path, sampling):
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(40, 3)))
    keys = {"path": "rows.npy", "response": "2", "columns": ["0", "1"], "standardise": False, "sampling": sampling}
    cell = cell_of(folder=tmp_path, keys=KEYS | keys, regression="file", noise="gaussian")
    for batch in range(5):
        found = replay(cell, 16 * batch + 3)
        keys = {tuple(key) for key in found["keys"].values.T}
        assert not keys & {tuple(point) for point in cell.in_batch(batch).rows.points}
        np.testing.assert_array_equal(found["target"], at_queries(cell.in_batch(batch)))


def test_target_and_scale__are_those_of_the_rows_that_are_kept():
    cell, raw = cell_of().in_batch(4), cell_of(regression="file", noise="gaussian")
    kept = raw.in_batch(4).rows
    np.testing.assert_allclose(cell.rows.keys.std(axis=0), 1.0)
    fit = LinearRegression().fit(kept.keys, kept.values)
    np.testing.assert_allclose(cell.rows.targets, fit.predict(kept.points))
    assert abs(cell.rows.residuals.mean()) < 1e-12 and len(cell.rows.residuals) == 158


def test_data_that_differ_in_their_last_rows_alone__are_not_drawn_for_one_another(tmp_path):
    table = np.random.default_rng(0).normal(size=(40, 3))
    found = []
    for number in range(2):
        np.save(tmp_path / f"{number}.npy", table + number * (np.arange(40) == 39)[:, None])
        keys = KEYS | {"path": f"{number}.npy", "response": "2", "columns": ["0", "1"]}
        found.append(cell_of(folder=tmp_path, keys=keys))
    assert found[0].data_id != found[1].data_id


def test_company_of_a_cell__changes_none_of_its_bits():
    cells = [cell_of(), cell_of(regression="file", noise="gaussian"), cell_of(("held_out", "rows"), noise="gaussian")]
    alone = [simulate_batch([cell], 3)[0] for cell in cells]
    for one, other in zip(simulate_batch(cells[:2], 3), alone[:2], strict=True):
        assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one, other, strict=True))
    assert not np.array_equal(alone[1].error_sum, alone[2].error_sum)


def test_rows_of_one_split__serve_no_cell_that_splits_anew():
    given, fixed = cell_of(), cell_of(())
    for cell, other in ((given, fixed), (fixed, given)):
        mixed = cell.model_copy(update={"file_rows": other.file_rows})
        assert "have not been read" in str(impossibilities(mixed))


DESIGN = """
[study]
name = "splits"
title = "Splits"
aim = "A test."
[data]
n_keys = 20
n_features = 2
regression = { kind = "fitted", learner = "linear" }
key_distribution = { kind = "file", path = "sklearn:wine", columns = ["alcohol", "hue"], response = "target", held_out = 20 }
[heads]
n_heads = 2
head_dim = 1
arrangement = "orthogonal"
[estimator]
bandwidth = 1.0
[queries]
queries = { kind = "held_out", count = 3 }
[simulation]
population = ["held_out"]
batch_size = 16
[precision]
min_replicates = 1024
max_replicates = 1024
[grids.all.factors]
bandwidth = [0.5, 1.0]
[claims.falls]
statement = "The error falls."
kind = "monotone"
grid = "all"
measure = "mse"
x = "bandwidth"
direction = "decreasing"
[profiles.quick]
"""  # noqa: E501


def test_a_study__says_what_it_averages_over_and_a_confirmation_has_other_splits(tmp_path):
    path = tmp_path / "splits.toml"
    path.write_text(DESIGN)
    design = load_design(path)
    assert not any("drawn once" in note for note in design.notes)
    found = run(path, output=tmp_path / "out", executor="serial")
    words = str(found["verdict_draws"].values[0])
    assert words == "over a population of held-out rows, for these rows of data, 1024 replicates in 64 draws"
    cell = confirmatory(design, Confirmation(seal="0" * 64, beacon="text")).cells[0].cell
    assert not np.array_equal(cell.rows.points, design.cells[0].cell.rows.points)
    path.write_text(path.read_text().replace('population = ["held_out"]\n', ""))
    (note,) = [note for note in load_design(path).notes if "drawn once" in note]
    assert "for these 3 held-out rows with what is fitted to the others, drawn once" in note
