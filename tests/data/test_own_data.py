"""Data of one's own: how they are read, split, scaled, fitted, identified and refused; rows as keys and populations."""

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from builders import DESIGN, edited, loaded, minimal_cell, mistakes, planned, varied, with_contents
from scipy import stats
from sklearn import datasets
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import KFold, cross_val_predict

import simstudy
from simstudy.attention import members_of
from simstudy.data.regression import at_queries
from simstudy.data.shared import SharedData
from simstudy.data.training import draw_keys, draw_rows
from simstudy.design.answerable import draws_of
from simstudy.design.cells import impossibilities
from simstudy.design.load import load_design
from simstudy.design.settings.cell import Cell
from simstudy.execution.provenance import provenance
from simstudy.replicates.batch import simulate_batch
from simstudy.replicates.replay import replay
from simstudy.results import cells_of
from simstudy.verdicts.predictions import predict

NUMBERS = np.random.default_rng(3).normal(size=(30, 4)) * [1.0, 5.0, 0.1, 2.0] + [0.0, 100.0, 0.0, -3.0]
FITTED = {"kind": "fitted", "learner": "linear"}
DIABETES = {"kind": "file", "path": "sklearn:diabetes", "response": "target", "held_out": 12}
WINE = {"kind": "file", "path": "sklearn:wine", "columns": ["alcohol", "hue"], "response": "target"}
SPLIT = WINE | {"held_out": 20}
N_WINE = 178
PAIRED = {"noise": {"kind": "residuals", "paired": True}, "noise_treatment": "drawn"}


def cell_of(path="sklearn:diabetes", folder=".", seed=7, regression="zero", noise="gaussian", **settings):
    keys = {"kind": "file", "path": str(path)} | settings
    return with_contents(Path(folder), key_distribution=keys, regression=regression, noise=noise, seed=seed)


def stored(folder, kind, numbers=NUMBERS):
    path = folder / f"data{kind}"
    np.save(path, numbers) if kind == ".npy" else pd.DataFrame(numbers, columns=list("abcy")).to_csv(path, index=False)
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
    stated = {"response": "3", "regression": "file", "standardise": False}
    raw, apart = (cell_of(path, held_out=6, seed=seed, **stated).rows for seed in (7, 8))
    whole = np.column_stack([np.concatenate([raw.keys, raw.points]), np.concatenate([raw.values, raw.targets])])
    np.testing.assert_array_equal(whole[whole[:, 0].argsort()], NUMBERS[NUMBERS[:, 0].argsort()])
    assert not np.array_equal(raw.points, apart.points) and rows != other
    np.testing.assert_array_equal(cell_of(path, held_out=3, **stated).rows.points, raw.points[:3])


def test_fitted_regression__is_that_of_the_population_and_residuals_are_crossed(tmp_path):
    keys = {"response": "target", "held_out": 42, "regression": FITTED}
    rows = cell_of(**keys, noise="residuals").rows
    responses = cell_of(**keys | {"regression": "file"}).rows.values
    fit = LinearRegression().fit(rows.keys, responses)
    np.testing.assert_allclose(rows.values, fit.predict(rows.keys))
    np.testing.assert_allclose(rows.targets, fit.predict(rows.points))
    folds = KFold(5, shuffle=True, random_state=0)
    left = responses - cross_val_predict(LinearRegression(), rows.keys, responses, cv=folds)
    np.testing.assert_allclose(rows.residuals, left - left.mean())
    assert np.isnan(cell_of(**keys).rows.residuals).all()


@pytest.mark.parametrize("learner", ["nearest_neighbours", "random_forest", "gradient_boosting"])
def test_learners__find_what_is_there(learner):
    keys = {"response": "target", "noise": "residuals"}
    rows = cell_of(**keys, regression={"kind": "fitted", "learner": learner}).rows
    responses = cell_of(response="target", regression="file").rows.values
    assert rows.residuals.std() < 0.9 * responses.std() and np.corrcoef(rows.values, responses)[0, 1] > 0.6


def test_contents_and_not_the_path__identify_data_and_cells_of_the_same_keys_are_paired_and_told_apart(tmp_path):
    path = stored(tmp_path, ".npy")
    (tmp_path / "copy.npy").write_bytes(path.read_bytes())
    one, same = (cell_of(name, tmp_path, standardise=False) for name in (path.name, "copy.npy"))
    np.save(path, NUMBERS + (np.arange(30) == 29)[:, None])  # in the last row alone
    other = cell_of(path.name, tmp_path, standardise=False)
    assert one.identity("e") == same.identity("e") and one.data_id == same.data_id
    assert one.identity("e") != other.identity("e") and one.data_id != other.data_id
    told = provenance(cells=[one, other])["data"]
    assert [*told.items()] == [(each.rows.digest, "data.npy") for each in (one, other)]
    keys = {"response": "target", "held_out": 5}
    plain, other = cell_of(**keys), cell_of(**keys, regression=FITTED)
    assert plain.data_id == other.data_id and plain.identity("e") != other.identity("e")
    assert plain.data_id != cell_of(**keys, sampling="without").data_id
    keys |= {"regression": FITTED}
    first, second = (cell_of(**keys, noise={"kind": "residuals", "paired": paired}) for paired in (False, True))
    assert first.rows == second.rows and first.identity("e") != second.identity("e")


@pytest.mark.parametrize("stated, expected", [
    ('path = "absent.npy"', "cannot be read: No such file"),
    ('path = "nan.npy"', "column '1' holds nan in row 1, the first of 1 such rows; give finite numbers"),
    ('path = "line.npy"', "its array has shape (4,); give rows and columns"),
    ('path = "few.npy"', "1 rows are too few for held_out = 0 and 2 more; add some or lower it"),
    ('path = "constant.npy"', "constant columns cannot be standardised: leave out 0, 2, or use standardise"),
    ('path = "text.csv"', "column 'b' holds 'x' in row 2, the first of 1 such rows; give finite numbers"),
    ('path = "gap.csv"', "column 'b' holds nan in row 2"),
    ('path = "none.csv"', "cannot be read as .csv"),
    *((f'path = "{of}.csv"', f"Expected 2 fields in line {n}, saw 3)") for of, n in (("uneven", 3), ("long", 2))),
    ('path = "other.txt"', "has an unknown file type; give .npy, .csv, or sklearn:NAME"),
    ('path = "sklearn:boston"', "scikit-learn ships no 'boston'; choose diabetes"),
    ('path = "twice.csv"', "2 columns of the data for n_features = 6; state as many"),
    ('path = "twice.csv", response = "z"', "the data have no column 'z', but a, b"),
    ('path = "twice.csv", columns = ["a", ""]', "the data have no column '', but a, b"),
    ('path = "twice.csv", columns = ["a", "a"]', "columns must name each feature once, and not the response"),
    ('path = "twice.csv", columns = ["a"], response = "a"', "and not the response"),
    ('path = "sklearn:diabetes", held_out = 441', "442 rows are too few for held_out = 441"),
    ('path = "sklearn:diabetes", sampling = "twice"', "Input should be 'with_replacement' or 'without'"),
])  # fmt: skip
def test_bad_data__get_one_clear_message(tmp_path, stated, expected):
    arrays = {"nan.npy": np.array([[1.0, np.nan], [2.0, 3.0]]), "line.npy": np.ones(4), "few.npy": np.ones((1, 6))}
    arrays["constant.npy"] = np.column_stack([np.ones(5), np.arange(5.0), np.zeros(5)])
    texts = {"text.csv": "a,b\n1,2\n3,x\n", "gap.csv": "a,b\n1,2\n3,\n", "twice.csv": "a,b\n1,2\n3,4\n"}
    texts |= {"none.csv": "", "uneven.csv": "a,b\n1,2\n3,4,5", "long.csv": "a,b\n1,2,3\n4,5,6\n", "other.txt": "1"}
    for name, content in (arrays | texts).items():
        np.save(tmp_path / name, content) if name.endswith("npy") else (tmp_path / name).write_text(content)
    keys = f'n_features = 6\nkey_distribution = {{ kind = "file", {stated} }}'
    message = mistakes(tmp_path, edited(DESIGN, "n_features = 6", keys))
    assert expected in message and message.count("toml: data.") == 1, message


BARE = {"kind": "file", "path": "sklearn:diabetes", "columns": ["bmi", "bp", "s1", "s2", "s3", "s4"], "held_out": 4}
FILE, QUERIES = BARE | {"response": "target"}, {"queries": {"kind": "held_out", "count": 4}}
BY_A_FIT = {"regression": "fitted", "noise": "residuals"}


@pytest.mark.parametrize("keys, settings, said", [
    (FILE, BY_A_FIT | QUERIES, ""),
    (FILE, BY_A_FIT, 'needs queries = "held_out"; change one'),
    (FILE, {"queries": {"kind": "held_out", "count": 5}}, "5 rows as queries, but held_out = 4"),
    (FILE, {"noise": "residuals"}, 'needs regression = "fitted"'),
    (BARE, BY_A_FIT | QUERIES, 'needs response = "COLUMN"'),
    ("gaussian", BY_A_FIT | QUERIES, 'needs key_distribution = "file"'),
    (FILE | {"sampling": "without"}, {"n_keys": 439}, "439 pairs without replacement, but rows = 438"),
])  # fmt: skip
def test_settings_that_speak_of_rows__need_them(tmp_path, keys, settings, said):
    text = varied(key_distribution=keys, **settings)
    assert said in mistakes(tmp_path, text) if said else loaded(tmp_path, text)


def make(sampling="with_replacement", **settings):
    base = {"n_keys": 50, "regression": FITTED, "n_features": 10, "queries": {"kind": "held_out", "count": 5}}
    return with_contents(**base | {"key_distribution": DIABETES | {"sampling": sampling}} | settings)


def split(population=("held_out",), folder=".", keys=SPLIT, **settings):
    base = {
        "n_features": 2, "n_keys": 12, "bandwidth": 1.0, "head_dim": 2, "arrangement": "aligned", "batch_size": 16,
        "regression": FITTED, "noise": "residuals", "queries": {"kind": "held_out", "count": 3},
    }  # fmt: skip
    return with_contents(Path(folder), population=population, key_distribution=keys, **base | settings)


def sampled(population=("rows",), held_out=0, sampling="with_replacement", **settings):
    """Rows are a population; the mean of keys: one head of a very wide kernel, of the first feature, at the origin."""
    base = {
        "n_features": 2, "n_keys": 12, "n_heads": 1, "head_dim": 1, "arrangement": "aligned", "bandwidth": 1e6,
        "regression": {"kind": "linear", "coefficients": [1.0]}, "noise_sd": 0.0, "batch_size": 64,
    }  # fmt: skip
    keys = WINE | {"held_out": held_out, "sampling": sampling}
    return with_contents(population=population, key_distribution=keys, **base | settings)


@pytest.mark.parametrize("sampling", ["with_replacement", "without"])
def test_rows__are_a_function_of_seed_replicate_and_number_and_as_likely_as_any_other_at_every_place(sampling):
    cell = make(sampling, n_keys=200)
    drawn = draw_rows(cell, 3, 4)
    np.testing.assert_array_equal(draw_rows(make(sampling, n_keys=100), 3, 4), drawn[:, :100])
    np.testing.assert_array_equal(draw_rows(cell, 5, 1)[0], drawn[2])
    assert not np.array_equal(draw_rows(make(sampling, n_keys=200, seed=8), 3, 4), drawn)
    np.testing.assert_array_equal(draw_keys(cell, 3, 4), cell.rows.keys[drawn].swapaxes(1, 2))
    drawn = draw_rows(make(sampling), 0, 4000)
    for place in (0, 7, 49):
        assert stats.chisquare(np.bincount(drawn[:, place], minlength=430)).pvalue > 1e-4
    # Two places are independent, but for a row that cannot come twice.
    assert stats.chisquare(np.histogram2d(drawn[:, 0], drawn[:, 1], bins=10)[0].ravel()).pvalue > 1e-4
    twice = (drawn[:, 0] == drawn[:, 1]).mean()
    assert twice == 0.0 if sampling == "without" else abs(twice - 1 / 430) < 4 * (4000 * 430) ** -0.5
    assert all(len(set(rows)) == 50 for rows in drawn[:50]) == (sampling == "without")

    whole = draw_rows(make("without", n_keys=430), 0, 3)
    assert len({tuple(rows) for rows in whole}) == 3 and (np.sort(whole, axis=1) == np.arange(430)).all()


def test_values_are_those_of_the_rows_drawn_to_which_any_residual_may_come_or_their_own():
    cell = make(noise_treatment="drawn", noise_sd=0.0)
    shared = SharedData(cell, 2, 3)
    np.testing.assert_array_equal(shared.values(cell), cell.rows.values[draw_rows(cell, 2, 3)])
    np.testing.assert_array_equal(at_queries(cell), cell.rows.targets[:5])
    known = make(regression="linear")
    np.testing.assert_allclose(at_queries(known), known.rows.points[:5, 0])
    cell = make(noise="residuals", noise_treatment="drawn", noise_sd=2.0)
    shared = SharedData(cell, 0, 400)
    drawn = (shared.values(cell) - cell.rows.values[draw_rows(cell, 0, 400)]) / 2.0
    known = np.sort(cell.rows.residuals)
    nearest = known[np.clip(np.searchsorted(known, drawn), 1, 429) - [[[0]], [[1]]]]
    assert np.abs(nearest - drawn).min(axis=0).max() < 1e-9
    assert drawn.var() == pytest.approx(known.var(), rel=0.05)
    np.testing.assert_allclose(shared.variances(cell), 4 * known.var())
    assert abs(np.corrcoef(cell.rows.residuals[draw_rows(cell, 0, 400)].ravel(), drawn.ravel())[0, 1]) < 0.03
    for cell in (make(**PAIRED | {"noise_treatment": how}, noise_sd=0.5) for how in ("drawn", "integrated")):
        shared, paired = SharedData(cell, 0, 3), cell.rows.values + 0.5 * cell.rows.residuals
        np.testing.assert_array_equal(shared.values(cell), paired[draw_rows(cell, 0, 3)])
        assert not shared.variances(cell).any()


def test_contents_travel_to_workers_that_do_not_see_the_file(tmp_path):
    keys = SPLIT | {"path": stored(tmp_path, ".npy").name, "response": "3", "columns": None, "held_out": 3}
    cell = split((), tmp_path, keys, n_features=3, head_dim=1, regression="file", noise="gaussian")
    (tmp_path / "data.npy").unlink()
    np.testing.assert_equal(simulate_batch([pickle.loads(pickle.dumps(cell))], 0), simulate_batch([cell], 0))


@pytest.mark.parametrize("of, settings", [
    (make, [{"n_keys": 60}, {"n_keys": 30}, {"noise": "residuals"}, {"regression": "ridge", "n_keys": 20}, PAIRED]),
    (split, [{}, {"regression": "file", "noise": "gaussian"}]),
    (sampled, [{}, {"n_keys": 6}]),
])  # fmt: skip
def test_company_of_a_cell__changes_none_of_its_bits(of, settings):
    cells = [of(**each) for each in settings]
    for batch in (1, 3):
        np.testing.assert_equal(simulate_batch(cells, batch), [simulate_batch([cell], batch)[0] for cell in cells])


def test_batches__have_splits_of_their_own_with_what_is_fitted_and_the_first_that_of_a_study_with_one_split():
    cell, fixed = split(), split(())
    assert cell.in_batch(0).rows == fixed.rows
    assert len({tuple(cell.in_batch(batch).rows.points.ravel()) for batch in range(6)}) == 6
    assert not np.array_equal(cell.in_batch(1).rows.points, split(seed=8).in_batch(1).rows.points)
    assert cell.in_batch(1).data_id == cell.data_id and cell.identity("") != fixed.identity("")
    both = split(("held_out", "rows"), noise="gaussian"), split(noise="gaussian")
    assert not np.array_equal(*(simulate_batch([each], 3)[0].error_sum for each in both))
    kept, rows = split(regression="file", noise="gaussian").in_batch(4).rows, cell.in_batch(4).rows
    np.testing.assert_allclose(rows.keys.std(axis=0), 1.0)
    np.testing.assert_allclose(rows.targets, LinearRegression().fit(kept.keys, kept.values).predict(kept.points))
    assert abs(rows.residuals.mean()) < 1e-12 and len(rows.residuals) == N_WINE - 20
    found = replay(cell, 16 * 4 + 3)  # no row is a key and a query
    np.testing.assert_array_equal(found["target"], rows.targets[:3])
    assert {*map(tuple, found["keys"].values.T)} <= {*map(tuple, rows.keys)}


def test_a_study__says_what_it_averages_over_and_a_confirmation_has_other_splits(tmp_path):
    study = simstudy.Study("splits", title="Splits", aim="A test.").estimator(bandwidth=1.0)
    study.data(n_keys=20, n_features=2, regression=FITTED, key_distribution=SPLIT)
    study.heads(n_heads=2, head_dim=1, arrangement="orthogonal").queries(queries={"kind": "held_out", "count": 3})
    study.simulation(population=["held_out"], batch_size=16).precision(min_replicates=1024, max_replicates=1024)
    falls = {"measure": "mse", "x": "bandwidth", "direction": "decreasing", "statement": "The error falls."}
    study.grid("all", {"bandwidth": [0.5, 1.0]}).claim("falls", "monotone", grid="all", **falls)
    design = load_design(study)
    words = str(cells_of(simstudy.run(design, output=tmp_path, executor="serial"))["verdict_draws"].values[0])
    draws = "over a population of held-out rows, for these rows of data, 1024 replicates in 64 draws"
    assert words == f"at these settings, {draws}"
    cell = load_design(study, confirm="text").cells[0].cell
    assert not np.array_equal(cell.rows.points, design.cells[0].cell.rows.points)
    fixed = load_design(study.simulation(population=[]))
    told = draws_of(fixed.claims["falls"], fixed.cells)
    assert told == "for these 3 held-out rows with what is fitted to the others and these rows of data"


def test_rows_of_a_population__are_one_bootstrap_sample_in_each_batch_and_have_no_theory():
    cell = sampled(n_keys=4000)
    samples = [np.unique(draw_rows(cell.in_batch(batch), first, 8)) for batch, first in ((0, 0), (0, 64), (1, 64))]
    np.testing.assert_array_equal(samples[0], samples[1])
    assert not np.array_equal(samples[1], samples[2])
    for sample in samples:  # 1 - 1/e of the rows, with a standard deviation of 3.9
        assert abs(len(sample) - N_WINE * (1.0 - np.exp(-1.0))) < 16
    assert len(np.unique(draw_rows(sampled((), n_keys=4000), 0, 8))) == N_WINE
    (theory,) = predict([planned(sampled())])
    assert theory["exact"].reason == "rows are a population: theory holds for given ones"
    assert sampled(sampling="without").population == () and minimal_cell(population=["rows"]).population == ()
    settings = {"noise": "residuals", "regression": FITTED, "noise_sd": 1.0}
    cell = sampled(held_out=5, queries={"kind": "held_out", "count": 2}, **settings)
    assert "noise" in [setting for setting, _ in impossibilities(cell)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("combination", ["uniform", {"kind": "fitted", "n_validation": 20}])
def test_level_of_features__takes_no_digit_from_distances(tmp_path, monkeypatch, dtype, combination):
    monkeypatch.setattr(Cell, "data_id", "0" * 32)  # the same rows of either file
    table, found = np.round(np.random.default_rng(5).normal(size=(90, 3)) * 8.0) / 8.0, []
    for shift in (0.0, 9e8):
        path = tmp_path / f"at {shift:g}.csv"
        np.savetxt(path, table + np.array([shift, -shift, 0.0]), "%.3f", delimiter=",", header="a,b,y", comments="")
        keys = {"kind": "file", "path": path.name, "response": "y", "held_out": 12, "standardise": False}
        cell = split((), tmp_path, keys, regression="file", arrangement="haar", head_dim=1, n_heads=2, dtype=dtype,
                     combination=combination)  # fmt: skip
        found.append(members_of(cell, SharedData(cell, 0, 4)).means)
    np.testing.assert_allclose(*found, rtol=0.0, atol=1e-5 if dtype == "float32" else 1e-12)
