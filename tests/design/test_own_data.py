"""Data of one's own: what is read, how rows are split, scaled and fitted, what identifies them, what is refused."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from builders import DESIGN, edited, loaded, mistakes, with_contents
from sklearn import datasets
from sklearn.linear_model import LinearRegression

from simstudy.execution.provenance import provenance

NUMBERS = np.random.default_rng(3).normal(size=(30, 4)) * [1.0, 5.0, 0.1, 2.0] + [0.0, 100.0, 0.0, -3.0]


def cell_of(path="sklearn:diabetes", folder=".", seed=7, regression="zero", noise="gaussian", **settings):
    keys = {"kind": "file", "path": str(path)} | settings
    return with_contents(Path(folder), key_distribution=keys, regression=regression, noise=noise, seed=seed)


def stored(folder, kind, numbers=NUMBERS):
    path = folder / f"data{kind}"
    frame = pd.DataFrame(numbers, columns=list("abcy"))
    np.save(path, numbers) if kind == ".npy" else frame.to_csv(path, index=False)
    return path


@pytest.mark.parametrize(("kind", "response", "columns"), [(".npy", "3", None), (".csv", "y", ["a", "b", "c"])])
def test_files_of_every_kind__hold_the_same(tmp_path, kind, response, columns):
    stated = {"response": response, "regression": "file", "standardise": False}
    rows = cell_of(stored(tmp_path, kind).name, tmp_path, **stated).rows
    np.testing.assert_allclose(rows.keys, NUMBERS[:, :3], rtol=1e-15)
    np.testing.assert_allclose(rows.values, NUMBERS[:, 3], rtol=1e-15)
    assert np.isnan(rows.residuals).all() and rows.points.shape == (0, 3)
    if columns:
        chosen = cell_of("data.csv", tmp_path, columns=["c", "a"], **stated).rows
        np.testing.assert_array_equal(chosen.keys, rows.keys[:, [2, 0]])


@pytest.mark.parametrize("name", ["diabetes", "breast_cancer", "digits", "wine", "iris"])
def test_data_sets_of_scikit_learn__have_names(name):
    rows = cell_of(f"sklearn:{name}", response="target", regression="file", standardise=False).rows
    found = getattr(datasets, f"load_{name}")()
    np.testing.assert_equal([rows.keys, rows.values], [found.data, found.target])


def test_held_out_rows__are_others_under_another_seed_and_scaled_with_the_population(tmp_path):
    path = stored(tmp_path, ".npy")
    rows, other = (cell_of(path, held_out=6, seed=seed).rows for seed in (7, 8))
    assert rows.keys.shape == (24, 4) and rows.points.shape == (6, 4)
    np.testing.assert_allclose(rows.keys.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(rows.keys.std(axis=0), 1.0)
    raw, apart = (cell_of(path, held_out=6, standardise=False, seed=seed).rows for seed in (7, 8))
    together = np.concatenate([raw.keys, raw.points])
    np.testing.assert_array_equal(np.sort(together, axis=0), np.sort(NUMBERS, axis=0))
    assert not np.array_equal(raw.points, apart.points) and rows != other
    np.testing.assert_array_equal(cell_of(path, held_out=3, standardise=False).rows.points, raw.points[:3])


def test_fitted_regression__is_that_of_the_population_and_residuals_are_crossed(tmp_path):
    keys = {"response": "target", "held_out": 42, "regression": {"kind": "fitted", "learner": "linear"}}
    rows = cell_of(**keys, noise="residuals").rows
    responses = cell_of(**keys | {"regression": "file"}).rows.values
    fit = LinearRegression().fit(rows.keys, responses)
    np.testing.assert_allclose(rows.values, fit.predict(rows.keys))
    np.testing.assert_allclose(rows.targets, fit.predict(rows.points))
    own = responses - rows.values
    assert abs(rows.residuals.mean()) < 1e-10
    # A row that was in the fit is closer to it; but not by much, with ten features and four hundred rows.
    assert 1.02 < rows.residuals.std() / own.std() < 1.1
    assert np.isnan(cell_of(**keys).rows.residuals).all()


@pytest.mark.parametrize("learner", ["nearest_neighbours", "random_forest", "gradient_boosting"])
def test_learners__find_what_is_there(learner):
    keys = {"response": "target", "noise": "residuals"}
    rows = cell_of(**keys, regression={"kind": "fitted", "learner": learner}).rows
    responses = cell_of(response="target", regression="file").rows.values
    assert rows.residuals.std() < 0.9 * responses.std()
    assert np.corrcoef(rows.values, responses)[0, 1] > 0.6


def test_contents_and_not_the_path__identify_data(tmp_path):
    path = stored(tmp_path, ".npy")
    (tmp_path / "copy.npy").write_bytes(path.read_bytes())
    one, same = (cell_of(name, tmp_path, standardise=False) for name in (path.name, "copy.npy"))
    np.save(path, NUMBERS + (np.arange(30) == 29)[:, None])  # in the last row alone
    other = cell_of(path.name, tmp_path, standardise=False)
    assert one.identity("e") == same.identity("e") and one.data_id == same.data_id
    assert one.identity("e") != other.identity("e") and one.data_id != other.data_id
    told = provenance(cells=[one, other])["data"]
    assert [*told.items()] == [(each.rows.digest, "data.npy") for each in (one, other)]


def test_cells_of_the_same_keys__are_paired_and_told_apart():
    keys, fitted = {"response": "target", "held_out": 5}, {"kind": "fitted", "learner": "linear"}
    plain, other = cell_of(**keys), cell_of(**keys, regression=fitted)
    assert plain.data_id == other.data_id and plain.identity("e") != other.identity("e")
    assert plain.data_id != cell_of(**keys, sampling="without").data_id
    noises = ({"kind": "residuals", "paired": paired} for paired in (False, True))
    first, second = (cell_of(**keys, regression=fitted, noise=noise) for noise in noises)
    assert first.rows == second.rows and first.identity("e") != second.identity("e")


def design_with(keys, *edits):
    text = edited(DESIGN, "n_features = 6", f"n_features = 6\nkey_distribution = {keys}")
    for old, new in edits:
        text = edited(text, old, new)
    return text


@pytest.mark.parametrize("stated, expected", [
    ('path = "absent.npy"', "cannot be read: No such file"),
    ('path = "nan.npy"', "column '1' holds nan in row 1, the first of 1 such rows; give finite numbers"),
    ('path = "line.npy"', "its array has shape (4,); give rows and columns"),
    ('path = "few.npy"', "1 rows are too few"),
    ('path = "constant.npy"', "constant columns cannot be standardised: leave out 0, 2, or use standardise"),
    ('path = "text.csv"', "column 'b' holds 'x' in row 2, the first of 1 such rows; give finite numbers"),
    ('path = "gap.csv"', "column 'b' holds nan in row 2"),
    ('path = "none.csv"', "cannot be read as .csv"),
    ('path = "other.txt"', "has no file type that is read; give .npy, .csv, or sklearn:NAME"),
    ('path = "sklearn:boston"', "scikit-learn ships no 'boston'; choose diabetes"),
    ('path = "twice.csv"', "2 columns of the data for n_features = 6; state as many"),
    ('path = "twice.csv", response = "z"', "the data have no column 'z', but a, b"),
    ('path = "twice.csv", columns = ["a", "a"]', "columns must name each feature once, and not the response"),
    ('path = "twice.csv", columns = ["a"], response = "a"', "and not the response"),
    ('path = "sklearn:diabetes", held_out = 441', "442 rows are too few for held_out = 441"),
    ('path = "sklearn:diabetes", sampling = "twice"', "Input should be 'with_replacement' or 'without'"),
])  # fmt: skip
def test_bad_data__get_one_clear_message(tmp_path, stated, expected):
    arrays = {"nan.npy": np.array([[1.0, np.nan], [2.0, 3.0]]), "line.npy": np.ones(4), "few.npy": np.ones((1, 6))}
    arrays["constant.npy"] = np.column_stack([np.ones(5), np.arange(5.0), np.zeros(5)])
    texts = {"text.csv": "a,b\n1,2\n3,x\n", "gap.csv": "a,b\n1,2\n3,\n", "twice.csv": "a,b\n1,2\n3,4\n"}
    for name, content in (arrays | texts | {"none.csv": "", "other.txt": "1"}).items():
        np.save(tmp_path / name, content) if name.endswith("npy") else (tmp_path / name).write_text(content)
    message = mistakes(tmp_path, design_with(f'{{ kind = "file", {stated} }}'))
    assert expected in message and message.count("data.") == 1, message


COLUMNS = 'columns = ["bmi", "bp", "s1", "s2", "s3", "s4"]'
DIABETES = f'{{ kind = "file", path = "sklearn:diabetes", response = "target", held_out = 4, {COLUMNS} }}'
REGRESSION = 'regression = { kind = "ridge" }'
QUERIES = ("[simulation]", '[queries]\nqueries = { kind = "held_out", count = 4 }\n\n[simulation]')
FITTED = (REGRESSION, 'regression = "fitted"\nnoise = "residuals"')
WITHOUT = DIABETES.replace("held_out = 4", 'held_out = 4, sampling = "without"')


@pytest.mark.parametrize("keys, edits, said", [
    (DIABETES, [FITTED, QUERIES], ""),
    (DIABETES, [FITTED], 'needs queries = "held_out"; change one'),
    (DIABETES, [(QUERIES[0], QUERIES[1].replace("count = 4", "count = 5"))], "5 rows as queries, but held_out = 4"),
    (DIABETES, [(REGRESSION, 'noise = "residuals"')], 'needs regression = "fitted"'),
    (DIABETES.replace('response = "target", ', ""), [FITTED, QUERIES], 'needs response = "COLUMN"'),
    ('"gaussian"', [FITTED, QUERIES], 'needs key_distribution = "file"'),
    (WITHOUT, [("n_keys = 40", "n_keys = 439")], "439 pairs without replacement, but rows = 438"),
])  # fmt: skip
def test_settings_that_speak_of_rows__need_them(tmp_path, keys, edits, said):
    text = design_with(keys, *edits)
    assert said in mistakes(tmp_path, text) if said else loaded(tmp_path, text)
