"""Estimates of single data sets, and measures of any table of them: against rsimsum's tables and NumPy."""

import contextlib
import json
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from builders import refuses, write_design
from commands import forks, python
from distributed import Client, LocalCluster
from joblib.externals import loky
from joblib.externals.loky.reusable_executor import _ReusablePoolExecutor
from scipy import stats

import simstudy
from simstudy import plots
from simstudy.errors import UserError
from simstudy.execution.executors import open_executor

# Data relhaz of rsimsum 0.13.1 (n = 50, exponential hazard), and its summary as it is printed: value (MCSE).
RELHAZ = pd.read_csv(Path(__file__).with_name("relhaz.csv"))
PRINTED = {
    "bias": "0.0215 (0.0328)  0.0239 (0.0326)", "relative_bias": "-0.0430 (0.0657) -0.0478 (0.0652)",
    "empirical_se": "0.3285 (0.0233) 0.3258 (0.0232)", "relative_precision": "0.0000 (0.0000) 1.6773 (3.2902)",
    "mean_squared_error": "0.1073 (0.0149) 0.1056 (0.0146)", "model_se": "0.3185 (0.0013) 0.3127 (0.0010)",
    "relative_error_of_model_se": "-3.0493 (6.9011)  -4.0156 (6.8286)", "coverage": "0.9500 (0.0218) 0.9400 (0.0237)",
    "bias_eliminated_coverage": "0.9500 (0.0218) 0.9500 (0.0218)", "rejection_rate": "0.3600 (0.0480) 0.3800 (0.0485)",
}  # fmt: skip
measured = partial(simstudy.performance, truth=-0.5, estimate="theta", method="model", reference="Cox")


def long(wide):
    parts = [wide[[f"theta_{m}", f"se_{m}"]].set_axis(["theta", "se"], axis=1).assign(model=m) for m in ("Cox", "Exp")]
    return pd.concat(parts).reset_index(names="dataset")


@pytest.mark.parametrize("measure", PRINTED)
def test_measure__is_that_of_rsimsum_to_all_printed_digits(measure):
    found = measured(long(RELHAZ)).sel(replicates="available")
    scale = 100.0 if measure in ("relative_precision", "relative_error_of_model_se") else 1.0
    pairs = zip(found[measure].values * scale, found[f"{measure}_mcse"].values * scale, strict=True)
    assert " ".join(f"{value:.4f} ({error:.4f})" for value, error in pairs).split() == PRINTED[measure].split()
    assert found.convergence.values.tolist() == [1.0, 1.0] and found.n_replicates.values.tolist() == [100, 100]


def test_failures__are_told_by_method_and_measures_also_of_common_data_sets():
    table = long(RELHAZ)
    table.loc[(table.model == "Exp") & (table.dataset < 10), ["theta", "se"]] = np.nan
    table.loc[(table.model == "Cox") & (table.dataset == 99), "se"] = np.nan
    found = measured(table.assign(n=50))
    assert found.convergence.sel(replicates="available").values.tolist() == [[0.99], [0.9]]
    assert found.n_replicates.values[:, :, 0].tolist() == [[99, 90], [89, 89]]
    common, names = measured(long(RELHAZ[10:99])), ["bias", "relative_precision_mcse", "coverage"]
    np.testing.assert_allclose(*(t.sel(replicates="common")[names].to_dataarray() for t in (found.sel(n=50), common)))
    # A failure without a row, and a method without standard errors, which has what follows from estimates.
    table = table[~((table.model == "Exp") & (table.dataset < 10))]
    assert measured(table.assign(row=1).rename(columns={"row": 7})).convergence.values[0].tolist() == [[0.99], [0.9]]
    table.loc[table.model == "Exp", "se"] = np.nan
    found = measured(table).sel(replicates="available", estimator="Exp")
    assert found.bias == pytest.approx(RELHAZ.theta_Exp[10:].mean() + 0.5) and found.n_replicates == 90
    assert np.isnan([found.model_se, found.coverage, found.rejection_rate]).all()
    # A ratio of variances moves as data sets are left out: the method has half of those of the reference, and agrees.
    x, half = stats.norm.ppf((np.arange(400) + 0.5) / 400), np.arange(400) % 2 == 0
    table = pd.concat([pd.DataFrame({"estimate": x}), pd.DataFrame({"estimate": x[half]})], keys=["all", "half"])
    found = simstudy.performance(table.reset_index(names=["method", "dataset"])).sel(estimator="half")
    ratios = [x[kept].var(ddof=1) / x[kept & half].var(ddof=1) for kept in ~np.eye(400, dtype=bool)]
    assert found.relative_precision_mcse[0] == pytest.approx(399**0.5 * np.std(ratios), rel=0.1)
    many = [long(RELHAZ[:5]).assign(model=lambda t, k=k: t.model + str(k)) for k in range(6)]
    assert measured(pd.concat(many), reference="Cox0").sizes["estimator"] == 12  # more methods than data sets
    narrow = measured(long(RELHAZ), level=0.9, df=48).coverage.sel(replicates="available", estimator="Cox")
    assert narrow == np.mean(np.abs(RELHAZ.theta_Cox + 0.5) <= stats.t(48).ppf(0.95) * RELHAZ.se_Cox)


@pytest.mark.parametrize("change, how, message", [
    (lambda t: t, {"reference": "Weibull"}, "reference = 'Weibull': no method of the table; known: Cox, Exp"),
    (lambda t: pd.concat([t, t[:1]]), {}, "two rows with dataset = 0, model = Cox; leave one of them"),
    (lambda t: t, {"estimate": "b"}, "'b': no column of the table; it has dataset, theta, se, model"),
    (lambda t: t, {"se": "b"}, "'b': no column of the table"),
    (lambda t: t.assign(estimate=0.0), {}, "'estimate': a column, but 'theta' is the estimate; drop or"),
    (lambda t: t.assign(rate=[0.5] * 198 + [None] * 2), {}, "rate: empty in 2 rows; fill it, or drop the column"),
    (lambda t: t.assign(seconds=np.arange(200.0)), {}, "seconds: another level in nearly every row, so"),
    *((lambda t, name=name: t.assign(**{name: 1}), {}, f"{name}: is the name of a measure; rename or")
      for name in ("coverage", "bias_mcse", "n_replicates")),
    (lambda t: t.assign(**{"5": 1}).rename(columns={"se": 5}), {}, "'5': two columns; drop or rename one of them"),
    (lambda t: t.assign(theta="x"), {}, "estimate: of type .*, no real numbers .'x' is none"),
    (lambda t: t[:0], {}, "table: a DataFrame; give a pandas.DataFrame with rows .of polars: to_pandas"),
    (lambda t: t.to_dict("records"), {}, "table: a list; give a pandas.DataFrame"),
    *((lambda t: t, {"level": each}, f"level = {each!r}: must be between 0 and 1") for each in (95, "0.9")),
    (lambda t: t, {"df": 0, "error": ValueError}, "df = 0; give one positive number"),
    (lambda t: t.assign(nu="5"), {"df": "nu"}, "nu: of type str, no real numbers"),
    (lambda t: t.assign(lower=0.0), {}, "'upper': no column of the table; it has dataset, "),
    (lambda t: t.assign(se=-t.se), {}, "se: below 0 in some row; give standard errors"),
    (lambda t: t.assign(lower=1.0, upper=-1.0), {}, "lower: above upper in some row; give the lower end first"),
    (lambda t: t.assign(reject=0.04), {}, "reject: neither 0 nor 1 in some row; give 1 where the test rejects"),
])  # fmt: skip
def test_mistakes_in_a_table__are_told_in_one_line(change, how, message):
    refuses(message, measured, change(long(RELHAZ)), **how)


def sample(draw, n, name, kind, label, path, process, measures, one_by_one):
    return {"self": draw.normals(n) + path, "truth": path}


def mean(self, n):
    return {"estimate": self.mean(axis=-1), "se": self.std(axis=-1, ddof=1) / np.sqrt(n)}


def shrunk(self, n, by):
    return {k: by * v for k, v in mean(self, n).items()}


def signal_to_noise(mean_bias, mean_empirical_se, n):
    return mean_bias / mean_empirical_se


WORDS = {name: [1] for name in ("kind", "label", "process", "measures", "one_by_one")}
FACTORS = {"n": [5, 9], "path": [2.0], "name": ["a"], **WORDS}
ASKED = ["relative_bias", "root_mean_squared_error", "relative_error_of_model_se", signal_to_noise, "failure_rate"]


def simulated(output, methods=(mean,), asked=("bias",), factors=FACTORS, **how):
    how = {"max_replicates": 1024, "batch_size": 256, "executor": "serial", **how}
    return simstudy.simulate("sim", sample, methods, asked, factors=factors, output=output, **how)


def test_measures_of_means_and_the_table__are_those_of_numpy(tmp_path):
    levels, impossible = FACTORS | {"by": [0.5, 0.9]}, lambda cell: cell["n"] == 9 and cell["by"] == 0.5
    found = simulated(tmp_path, [mean, shrunk], ASKED, levels, drop=impossible)
    grid, errors = found["simulation"].ds.squeeze(), found["simulation/errors"].ds.squeeze()
    # Names of our own are factors, a factor that a method does not take runs once, and what is dropped not at all.
    assert grid.sizes == {"n": 2, "by": 2, "estimator": 2} and np.isnan(grid.relative_bias.sel(n=9, by=0.5)).all()
    assert '"batches_computed": 20,' in found.attrs["run"] and simstudy.details(found, 0).sizes["block"] == 64
    cells = found.simstudy.cells  # of functions, without the blanks of heads
    assert "mse" not in cells and {*cells.exact_inapplicable} == {"the study has no exact theory for it"}
    table = simstudy.estimates(found, replicates=1024)
    assert [*table][-6:] == ["dataset", "method", "estimate", "se", "truth", "failure"] and len(table) == 6 * 1024
    e, se = table.query("n == 5 and by == 0.5 and method == 'shrunk'")[["estimate", "se"]].to_numpy().T
    value = {
        "relative_bias": lambda e, se: (e / 2.0).mean() - 1.0,
        "root_mean_squared_error": lambda e, se: np.sqrt(((e - 2.0) ** 2).mean()),
        "relative_error_of_model_se": lambda e, se: np.sqrt((se**2).mean() / e.var()) - 1.0,
        "signal_to_noise": lambda e, se: (e.mean() - 2.0) / e.std(),
    }
    cell = {"n": 5, "by": 0.5, "estimator": "shrunk"}
    for name, of in value.items():
        error = np.sqrt(len(e) - 1) * np.std([of(np.delete(e, k), np.delete(se, k)) for k in range(len(e))])
        assert grid[name].sel(cell).item() == pytest.approx(of(e, se), abs=0.1 * error), name
        assert errors[name].sel(cell).item() == pytest.approx(error, rel=0.35), name  # of 64 blocks
    of_table = simstudy.performance(table, reference="mean").sel(replicates="common", estimator="shrunk", n=5, by=0.5)
    assert of_table.relative_precision.item() == pytest.approx(3.0)
    assert of_table.bias.item() == pytest.approx(e.mean() - 2.0)
    confirmed = simulated(tmp_path, confirm="other numbers")
    means = simstudy.estimates(confirmed, replicates=np.int64(1024)).groupby("n").estimate.mean()
    assert confirmed["simulation"].bias.values.ravel() == pytest.approx(means.values - 2.0)


def both(self):
    return {"estimate": np.stack([self.mean(axis=-1), np.median(self, axis=-1)], axis=-1), "size": self[..., 0]}


def picky(self):
    if self[0] > 2.0:
        raise ValueError("too large")
    return both(self)


def test_vectors_of_estimands__have_measures_each_and_the_table_says_why_a_method_failed(tmp_path):
    refuses(r"bias as float64 of shape \(5, 2\).*their mean, or measures of components by", simulated, tmp_path, [both])
    assert not (tmp_path / "sim").exists()
    methods = {"both": both, "picky": picky, "first": lambda self: {"estimate": self[..., 0], "size": self[..., 0]}}
    found = simulated(tmp_path, methods, iter(["size"]), FACTORS | {"n": iter([5])}, one_by_one=True)
    refuses('did you mean "bias"', simulated, tmp_path, asked=["bais"])  # leaves the functions of earlier results
    for part, name in ((found["simulation"], "simulation"), (found.copy(), "sim"), (type(found)(), "no study")):
        part.encoding = {"source": "/results.nc"}
        refuses(f"results of {name}: not of simulate", simstudy.estimates, part)
    table = simstudy.estimates(found, replicates=64)
    failed = table.failure.str.contains("picky raises ValueError: too large")
    assert len(table) == 5 * 64 and 20 < failed.sum() < 100 and table.estimate[failed].isna().all()
    measures = simstudy.performance(table).squeeze().sel(replicates="available")
    assert measures.n_replicates.sel(estimator="first").fillna(0.0).values.tolist() == [64, 0]
    assert measures.convergence.sel(estimator="picky").values.tolist() == [1.0 - failed.sum() / 128] * 2
    own = table[(table.method == "picky") & (table.estimand == 1)].estimate
    assert measures.bias.sel(estimand=1, estimator="picky").item() == pytest.approx(own.mean() - 2.0)


@pytest.mark.parametrize("truth", [-0.5, 0.0])
def test_truth_that_is_a_factor__has_measures_at_each_of_its_levels(truth):
    found = measured(pd.concat([long(RELHAZ).assign(effect=each) for each in (-0.5, 0.0)]), truth="effect")
    assert found.sel(effect=truth, drop=True).equals(measured(long(RELHAZ), truth=truth))


def test_factors_of_few_combinations__are_coordinates_of_cells():
    parts = [long(RELHAZ[5 * k : 5 * k + 5]) for k in range(9)]
    found = measured(pd.concat([each.assign(n=k, p=-k) for k, each in enumerate(parts)])).isel(cell=4)
    assert (found.n, found.p) == (4, -4)
    np.testing.assert_allclose(found.to_dataarray(), measured(parts[4]).to_dataarray())


def test_factor_that_is_a_column_of_estimates__is_refused(tmp_path):
    first, numbered = {"first": lambda x: {"estimate": x[:, 0]}}, lambda draw, dataset: {"x": draw.normals(dataset)}
    found = simstudy.simulate("own", numbered, first, ["estimate"], factors={"dataset": [5]}, output=tmp_path)
    refuses("dataset: a factor, and a column of estimates; give the factor another name", simstudy.estimates, found)


def test_levels_that_are_independent__have_random_numbers_of_their_own(tmp_path):
    factors = FACTORS | {"path": [0.0, 1.0]}
    how = {"shared": [], "apart": ["path"]}.items()
    found = (simulated(tmp_path / name, factors=factors, independent=each)["simulation"] for name, each in how)
    shared, apart = (each.ds.bias.squeeze() for each in found)
    np.testing.assert_allclose(shared.sel(path=0.0), shared.sel(path=1.0))
    assert (np.abs(apart.sel(path=0.0) - apart.sel(path=1.0)) > 1e-3).all()
    assert (simulated(tmp_path, max_replicates=1000, batch_size=None)["simulation/errors"].bias > 0.0).all()
    refuses("speed is no factor of these functions; they have", simulated, tmp_path, independent=["speed"])
    with pytest.raises(UserError, match=r"grids.simulation.drop.0. = .'speed': 1.: state levels of factors: n, path"):
        simulated(tmp_path, drop=[{"speed": 1}])


def pools():
    yield "threads", contextlib.nullcontext("threads")
    yield "ProcessPoolExecutor", ProcessPoolExecutor(2, forks())
    yield "LocalCluster", LocalCluster(n_workers=2, processes=False, dashboard_address=":0")
    yield "loky", contextlib.nullcontext("loky")


def test_executor_of_the_callers__gives_the_same_bits(tmp_path):
    found = {}
    for name, pool in pools():
        with pool as opened:
            results = simulated(tmp_path / name, [mean], ["empirical_se"], executor=opened, workers=2)
            ran = json.loads(results.attrs["run"])
            assert (ran["executor"], ran["workers"]) == (name, 2)
            found[name] = results["simulation"].empirical_se.values.ravel().tolist()
            if name == "LocalCluster":
                with Client(opened) as client:
                    simulated(tmp_path / "d", [mean], ["empirical_se"], executor=opened)  # which leaves it open
                    found["Client"] = simulated(tmp_path / "c", [mean], ["empirical_se"], executor=client)
                    found["Client"] = found["Client"]["simulation"].empirical_se.values.ravel().tolist()
    assert all(each == found["threads"] for each in found.values())
    shut = client, ThreadPoolExecutor(), ProcessPoolExecutor(2, forks())
    for pool in shut[1:]:
        pool.shutdown()
    for other, said in (
        (3, "executor of type int: give a Client"), ("lokky", "executor = 'lokky': unknown; choose"),
        *((each, f"executor of type {type(each).__name__}, which is closed: give a Client") for each in shut),
    ):  # fmt: skip
        refuses(said, simulated, tmp_path / "x", executor=other)
    assert not (tmp_path / "x").exists()


def test_processes_of_joblib__are_made_by_one_thread_and_a_script_without_a_guard_is_told(monkeypatch, tmp_path):
    loky.get_reusable_executor().shutdown()
    make = _ReusablePoolExecutor.get_reusable_executor.__func__

    def slowly(cls, *arguments, **settings):
        made, reused = make(cls, *arguments, **settings)
        time.sleep(0.0 if reused else 0.3)
        return made, reused

    monkeypatch.setattr(_ReusablePoolExecutor, "get_reusable_executor", classmethod(slowly))
    with open_executor("loky", 2) as opened:
        futures = [opened.submit(abs, -number) for number in range(4)]
        assert [opened.result(future) for future in futures] == [0, 1, 2, 3]
    script = tmp_path / "script.py"
    script.write_text(f"import simstudy\nsimstudy.run({str(write_design(tmp_path))!r}, executor='processes')\n")
    assert "write the call below if __name__ == '__main__':" in python(script, cwd=tmp_path).stderr.splitlines()[-1]


def test_agreement__draws_equality_and_limits_of_differences():
    table = long(RELHAZ)
    scatter, differences = plots.agreement(table, "Cox", "Exp", "theta", method="model")
    (points,) = [line for line in scatter.lines if len(line.get_xdata()) == 100]
    assert np.array_equal(points.get_xdata(), RELHAZ.theta_Cox) and np.array_equal(points.get_ydata(), RELHAZ.theta_Exp)
    d = RELHAZ.theta_Exp - RELHAZ.theta_Cox
    heights = sorted(line.get_ydata()[0] for line in differences.lines if len(line.get_xdata()) == 2)
    assert heights == pytest.approx([d.mean() - 1.96 * d.std(), d.mean(), d.mean() + 1.96 * d.std()])
    for wrong, remedy in ((table, "give two methods of the table"), (table.to_dict("series"), "of polars: to_pandas")):
        refuses(remedy, plots.agreement, wrong, "Cox", "Weibull", "theta", method="model")
    few, texts = table.theta.where(table.dataset < 1, np.inf), table.theta.map(str) + "x"
    for theta, said in ((few, "finite for both methods in 1 of 100 data sets"), (texts, "theta: of type .*, no real")):
        refuses(said, plots.agreement, table.assign(theta=theta), "Cox", "Exp", "theta", method="model")
