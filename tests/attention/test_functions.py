"""Processes, methods and measures of the user's own: against a loop in NumPy over single replicates."""

import functools
import json
import math
import re
import runpy
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import torch
from builders import rare, refuses, write_design
from commands import ROOT
from scipy.interpolate import CubicSpline
from scipy.stats import binom, norm

import simstudy
from simstudy import plots
from simstudy.attention.functions import AddressedDraw
from simstudy.design.load import load_design
from simstudy.design.settings.functions import BY_VALUE, Code
from simstudy.errors import UserError
from simstudy.execution.provenance import read_status
from simstudy.execution.store import Store
from simstudy.formulas import OF_TABLES, covers
from simstudy.replicates.replay import replay
from simstudy.report.figures import draw
from simstudy.report.progress import status_record
from simstudy.results import cells_of
from simstudy.simulation import stand_ins

N, BATCH = 12, 256


def sample(draw, n, shift):
    """A normal sample."""
    return {"x": draw.normals(n) + shift, "truth": shift}


def mean(x, n):
    """A mean and its interval; no estimate beyond 1."""
    m = x.mean(axis=-1)
    half = 2.0 * x.std(axis=-1, ddof=1) / math.sqrt(n)
    return {"estimate": np.where(m > 1.0, np.nan, m), "lower": m - half, "upper": m + half, "reject": abs(m) > half}


def fragile(x, n):
    """As `mean`, of one replicate, and raises where that has no estimate."""
    found = mean(x, n)
    if np.isnan(found["estimate"]):
        raise ValueError("no estimate")
    return found


def masked(x, n):
    return mean(x, n) | {"estimate": np.ma.masked_greater(x.mean(axis=-1), 1.0)}


def largest(x, estimate):
    return x.max(axis=-1) - estimate


def spread(x):
    return np.ptp(x, axis=-1)


ALL = ("variance", "coverage", "interval_length", "rejection_rate", largest, spread)


def study(output, process=sample, method=mean, measures=ALL, **how):
    how = {"executor": "serial", "max_replicates": 4 * BATCH, "batch_size": BATCH, **how}
    methods, factors = how.pop("methods", [method]), how.pop("factors", {"n": [N], "shift": [0.5]})
    return cells_of(simstudy.simulate("own", process, methods, measures, factors=factors, output=output, **how))


def cell_of(output):
    return load_design(output / "own" / "design.json").cells[0].cell


def naive(cell, process, n_replicates):
    """Measures by a loop, and the number of failed replicates."""
    rows, failed = [], 0
    for r in range(n_replicates):
        draw = AddressedDraw(cell.data_id, r, 1)
        x = draw.normals(N)[0] + 0.5 if process is sample else draw.generators()[0].normal(0.5, 1.0, N)
        m = sum(x) / N
        if m > 1.0:
            failed += 1
            continue
        half = 2.0 * math.sqrt(sum((v - m) ** 2 for v in x) / (N - 1) / N)
        row = {"bias": m - 0.5, "mean_squared_error": (m - 0.5) ** 2, "coverage": abs(m - 0.5) <= half,
               "interval_length": 2.0 * half, "rejection_rate": abs(m) > half, "largest": max(x) - m,
               "spread": max(x) - min(x)}  # fmt: skip
        rows.append(row)
    found = {name: np.mean([row[name] for row in rows]) for name in rows[0]}
    found["variance"] = np.var([row["bias"] for row in rows], ddof=1)
    return found, failed


@pytest.mark.parametrize("process, method, one_by_one", [
    (sample, mean, False), (sample, fragile, True), (sample, masked, False),
    (lambda rng, n, shift: {"x": rng.normal(shift, 1.0, n), "truth": shift}, fragile, True),
])  # fmt: skip
def test_measures__are_those_of_a_loop_and_failures_are_counted(process, method, one_by_one, tmp_path):
    results = study(tmp_path, process, method, one_by_one=one_by_one)
    expected, failed = naive(cell_of(tmp_path), process, int(results.n_batches[0]) * BATCH)
    assert 20 < failed == results.n_failed.item()
    for name, value in expected.items():
        # Blocks with failures differ in length, so that the variance is unbiased by another weighting.
        tolerance = 2e-4 if name == "variance" else 1e-9
        assert results[name].sel(source="empirical").item() == pytest.approx(value, rel=tolerance), name


def test_methods__see_the_same_data(tmp_path):
    apart = {"kind": "equals", "margin": 1e-9, "where": {"n": N, "method": "plain"}, "versus": {"method": "shifted"}}
    told = {"bias": 1.0, "largest": -1.0}
    claims = {name: {**apart, "measure": name, "value": value} for name, value in told.items()}
    factors = {"n": [N], "shift": [0.5]}
    methods = {"plain": lambda x: {"estimate": x.mean(-1)}, "shifted": lambda x: {"estimate": x.mean(-1) - 1.0}}
    found = simstudy.simulate("pairs", sample, methods, ["bias", spread, largest], factors=factors,
                                claims=claims, output=tmp_path, executor="serial")  # fmt: skip
    assert found["simulation"].sizes["estimator"] == 2
    assert found["simulation"].bias.sel(estimator="shifted").item() < -0.9
    (axes,) = plots.plot(found, "nested_loop", "bias", hue="estimator", target=0.0)
    assert [line.get_ydata()[0] for line in axes.lines if line.get_label() == "target"] == [0.0]
    results = cells_of(found)
    assert results.verdict_mcse.max() < 1e-8 and results.bias_mcse.min() > 5e-4
    assert results.verdict_estimate.values == pytest.approx([*told.values()])
    # An exception by 1 in few of as many replicates may not have been seen.
    rest = 2.0 * math.log(1.0 / 0.025) / results.n_replicates.values[0]
    assert simstudy.contrast(found, 0, 1, "spread")[3:5] == pytest.approx((-rest, rest))


def test_replay_of_a_failed_replicate__has_its_data_and_says_why(tmp_path):
    results = study(tmp_path, method=fragile, measures=["bias"], one_by_one=True)
    cell = load_design(tmp_path / "own" / "design.json", trust=[tmp_path / "own" / "functions.py"]).cells[0].cell
    draws = AddressedDraw(cell.data_id, 0, BATCH).normals(N) + 0.5
    good, bad = np.argmin(draws.mean(axis=1)), np.argmax(draws.mean(axis=1))
    assert replay(cell, bad).attrs["failure"].endswith("fragile raises ValueError: no estimate")
    assert np.array_equal(replay(cell, bad).x, draws[bad]) and results.n_failed.item() > 0
    replayed = replay(cell, good)
    assert replayed.attrs["failure"] == "" and replayed.estimate.item() == pytest.approx(draws[good].mean())
    assert replayed.number[0] == replayed.estimate - replayed.truth
    often = study(tmp_path / "often", method=fragile, one_by_one=True, factors={"n": [N], "shift": [1.4]})
    assert 0.8 < often.failure_rate.sel(source="empirical").item() < 1.0


def test_zip_figure__has_the_intervals_of_the_first_replicates(tmp_path):
    study(tmp_path, measures=["coverage"])
    folder = tmp_path / "own"
    found = mean(AddressedDraw(cell_of(tmp_path).data_id, 0, 200).normals(N) + 0.5, N)
    figure = {"title": "Intervals", "kind": "zip", "grid": "simulation", "y": "coverage"}
    tables = simstudy.Study.of(folder / "design.json") | {"figures": {"zip": figure}}
    tables["study"]["name"] = "zip"
    (folder / "zip.json").write_text(json.dumps(tables))
    how = {"executor": "serial", "trust": [folder / "functions.py"]}
    results = cells_of(simstudy.run(folder / "zip.json", output=tmp_path, **how))
    assert np.array_equal(results.interval[0, :, 0], found["lower"]) and set(results.interval.values[0, :, 2]) == {0.5}
    (axes,) = draw(load_design(folder / "zip.json").figures["zip"], "zip", results).axes
    drawn = [len(lines.get_segments()) for lines in axes.collections]
    inside = (found["lower"] <= 0.5) & (found["upper"] >= 0.5)
    # An interval is drawn where the estimate alone has failed.
    assert drawn == [inside.sum(), 200 - inside.sum()] and drawn[1] > 0
    covers = [np.prod([part[:, 0] for part in lines.get_segments()], axis=1) <= 0 for lines in axes.collections]
    assert covers[0].all() and not covers[1].any()
    (limits,) = [item for item in axes.patches if item.get_label() == "limits"]
    assert limits.get_height() == pytest.approx(2 * 100 * 1.96 * results.coverage_mcse.item())
    # Where it is needed, such a replicate enters no measure.
    needed = {"functions": tables["functions"] | {"measures": ["coverage", "bias"]}}
    (folder / "zip.json").write_text(json.dumps(tables | needed))
    lower = cells_of(simstudy.run(folder / "zip.json", output=tmp_path, **how)).interval.values[0, :, 0]
    assert np.array_equal(lower, np.where(np.isnan(found["estimate"]), np.nan, found["lower"]), equal_nan=True)
    tables["grids"]["simulation"]["factors"]["shift"] = [*range(13)]
    (folder / "zip.json").write_text(json.dumps(tables))
    refuses("selects 13 cells; select at most 12", load_design, folder / "zip.json")
    refuses("principal-angles: no grid of functions", simstudy.estimates, "principal-angles")


def test_share_of_events__that_all_replicates_have_or_none_is_as_uncertain_as_one_of_few(tmp_path):
    """By Agresti and Coull: without an error, any precision wanted of rare events would pass for reached."""
    wanted = dict.fromkeys(("rejection_rate", "coverage", "above"), 5e-4)
    lower, above = lambda x: 2 * x.mean(-1), lambda x: x[:, 0] > 0.0
    sure = {"sure": lambda x: {"reject": above(x), "above": above(x), "lower": lower(x), "upper": lower(x) + 20}}
    how = {"factors": {"n": [N], "shift": [-9.0, 9.0]}, "max_replicates": 32 * BATCH, "mcse": wanted}
    claim = {"kind": "equals", "measure": "above", "where": {"shift": 9.0}, "value": 1.0, "margin": 0.1}
    claims = {"one": claim, "two": claim | {"versus": {"shift": -9.0}}}
    found = study(tmp_path, methods=sure, measures=[*wanted], claims=claims, **how)
    assert (found.n_replicates == 16 * BATCH).all()
    for name in wanted:
        assert {*found[name].sel(source="empirical").values} == {0.0, 1.0}
        assert found[f"{name}_mcse"].values == pytest.approx(np.sqrt(2.0) / (16 * BATCH), rel=0.05)
    # As it is told of cells: of a difference, exceptions in both of them.
    assert found.verdict_mcse.values == pytest.approx(found.above_mcse.values[0] * np.array([1.0, 2.0]))
    tiny = study(tmp_path, methods={"tiny": lambda x: {"size": 1e-15 * abs(x[:, 0])}}, measures=["size"])
    assert tiny.size_mcse.item() < 1e-16  # which is no share of events


def test_infinite_parameter__is_read_back_and_told(tmp_path):
    levels, bounded = [1.0, math.inf], lambda draw, n, limit: {"x": draw.normals(n).clip(-limit, limit), "truth": 0.0}
    study(tmp_path, bounded, measures=["coverage"], factors={"n": [N], "limit": levels})
    design, store = load_design(tmp_path / "own" / "design.json"), Store(tmp_path / "own" / "quick")
    record = json.loads(json.dumps(status_record(read_status(design, store), design, store), allow_nan=False))
    assert [cell["levels"]["limit"] for cell in record["cells"]] == [1.0, "inf"]
    assert len({hash(planned.cell) for planned in design.cells}) == 2  # thousands that collide take minutes to look up


def greedy(x, n):
    x[0] = 0.0
    return {"estimate": x.mean(axis=-1)}


def silent(x):
    """Returns nothing."""


def n_failed(x):
    return x.max(axis=-1)


@pytest.mark.parametrize("how, message", [
    (lambda x: {"estimate": x.mean(axis=-1) - x.mean()}, "odd gives a replicate other numbers among other repl"),
    ({"process": lambda draw, n, shift: {"x": draw.normals(n) + shift}},
     "mean returns no 'truth'; bias needs it; known are estimate"),
    (lambda x: {"estimate": np.full(len(x), np.nan)}, "gives no finite numbers in any of 64 replicates"),
    ({"measures": ["relative_bias"], "factors": {"n": [N], "shift": [0.0]}}, "no finite .* tried: relative_bias"),
    ({"method": fragile, "one_by_one": True, "factors": {"n": [N], "shift": [9.0]}}, "tried: .*Error: no estimate"),
    (lambda x: {"estimate": x.mean(axis=-1)[1:]}, "the first axis must be that of 5 replicates"),
    (lambda x: {"estimate": x.means()}, "odd raises AttributeError"),
    (lambda x: {"estimate": np.linalg.cholesky(-np.eye(len(x)))}, "functions.py: odd raises LinAlgError"),
    ({"factors": {"n": [N], "shift": [0.5, math.nan]}}, r"factors.shift = .0.5, nan.: nan is no level"),
    *(({"factors": {"n": [N], "shift": [0.5], name: [1]}}, rf"factors.{name} = \[1\]: is a name of results")
      for name in ("grid", "keys", "tolerance", "theory")),
    ({"factors": {"n": [N], "shift": [0.5], "bias": [1]}, "measures": ["bias"]}, "bias.* = 1: is a measure, or"),
    ({"factors": {"n": [N], "shift": [0.5], "speed": [1]}}, "speed.0. = 1: is taken by no function"),
    ({"measures": ["rmse"]}, "mean returns no 'rmse'; known: estimate, lower, .*, root_mean_squared_error"),
    ({"measures": [3]}, "measures = 3: give names and functions"),
    ({"measures": [n_failed]}, "'n_failed' is another variable of results"),
    (lambda x: {"estimate": "nothing"}, "odd gives estimate as text of shape ..; give real numbers"),
    ({"measures": [fragile], "one_by_one": True, "factors": {"n": [N], "shift": [9.0]}}, "tried: .*fragile raises"),
    ({"methods": {"odd": lambda x: {"reject": x[:, 0]}}, "measures": ["rejection_rate"]}, "reject beyond 0 and 1"),
    ({"methods": {"odd": lambda x: {"se": x[:, 0]}}, "measures": ["model_se"]}, "se below 0; give standard errors"),
    ({"methods": {"odd": lambda x: {"lower": x[:, 0], "upper": -9.0}}, "measures": ["coverage"]}, "lower above upper"),
    ({"measures": [silent], "one_by_one": True}, "silent gives silent as NoneType of shape ..; give real"),
    ({"process": lambda draw, n, shift: {"x": {"of": 1.0}}}, "process gives x as dict; give an array of numbers"),
    ({"process": lambda rng, n, shift: {"x": rng.normal(size=rng.integers(2, 9))}}, "process gives x in different"),
    ({"process": lambda draw, n, shift: {"x": draw.normals(n).tolist(), "truth": shift}, "method": greedy,
      "one_by_one": True}, "read-only: data are shared by all methods; copy"),
    (lambda x: {"estimate": np.random.default_rng().random(len(x))}, "odd returns other values when it is call"),
    ({"methods": {"odd": lambda x: {"lower": -9.0 - np.random.default_rng().random(len(x)), "upper": 9.0}},
      "measures": ["coverage"]}, "odd returns other values when it is call"),
    *(({"measures": [name]}, r"simstudy.performance.simstudy.estimates.* has it") for name in OF_TABLES),
    ({"methods": {"odd": lambda x: {"estimate": x[:2]}}, "one_by_one": True}, "odd .* float64 of shape .2.*estimates"),
    ({"methods": {"odd": lambda x: None}}, "odd returns NoneType; return a dict of arrays by name"),
    ({"methods": {"odd": lambda x, z: {"estimate": z}}}, "odd takes 'z'; known are"),
    ({"measures": [mean]}, "mean is the name of two functions"),
    ({"factors": {"n": [N], "seed": [1]}}, "factors: 'seed' is an argument of simulate"),
    ({"methods": {"odd": max}}, "odd: its arguments are unknown; wrap it in a function"),
    ({"methods": []}, "methods = ..: give at least one function"),
    ({"methods": mean}, "methods = <function mean .*>: give a list"),
    *(({"methods": {name: mean}}, f"methods: {name!r} cannot name a function") for name in ("a b", 1)),
    *(({name: "n"}, f"{name} = 'n': give a list") for name in ("measures", "independent")),
    ({"factors": {"n": 10}}, "n = 10: give a list"),
    ({"factors": 3}, "factors = 3: give a dict"),
    ({"factors": np.ones((1, 2))}, r"factors = array\(\[\[1., 1.\]\]\): give a dict"),
    *(({name: "9"}, f"{name} = '9': give a whole number") for name in ("min_replicates", "max_replicates")),
    ({"claims": {"c": 3}}, "claims.c = 3: give a dict"),
    ({"claims": {"c": {"value": 1.0}}}, "claims.c.kind: unknown kind; known: .*, equals, "),
    ({"drop": "n"}, "drop.0. = 'n': give a dict"),
    ({"min_replicates": 0}, "min_replicates = 0: Input should be greater than or equal to 1"),
    ({"factors": {"n": [N], "shift": [[0.5]]}}, r"shift.0. = .0.5.: must be a number, a text, true or false; let"),
    ({"factors": {"n": [N], "shift": [mean]}}, "is of type function; give text, numbers, lists"),
    ({"method": lambda x: {"estimate": x}}, "has no name of its own; give methods as a dict by name"),
    ({"method": functools.partial(mean, n=threading.Lock())}, "depends on lock, which has no source; give version"),
    ({"measures": ["failure_rate"]}, "failure_rate is in all results; name another measure too"),
    ({"executor": "treads"}, "executor = 'treads': unknown; choose serial, threads"),
    ({"wrokers": 2, "error": TypeError}, "unexpected keyword argument 'wrokers'"),
])  # fmt: skip
def test_mistakes__are_told_in_one_line_and_nothing_is_written(how, message, tmp_path):
    refuses(message, study, tmp_path, **({"methods": {"odd": how}, "measures": ["bias"]} if callable(how) else how))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("file", ["functions.py", "design.json", "design.toml"])
def test_folder_of_ones_own__is_not_written_over(file, tmp_path):
    write_design(tmp_path / "own", "").rename(tmp_path / "own" / file)
    refuses("own: has a design or functions of your own; give another name", study, tmp_path)
    assert [path.name for path in (tmp_path / "own").iterdir()] == [file] and not (tmp_path / "own" / file).read_text()


def test_coverage__is_that_of_unbounded_intervals_and_of_no_missing_truth(tmp_path):
    unbounded = {"all": lambda x: {"lower": np.full(len(x), -np.inf), "upper": np.full(len(x), np.inf)}}
    own = study(tmp_path, methods=unbounded, measures=["coverage"], min_replicates=100, batch_size=None)
    assert (own.coverage.sel(source="empirical").item(), own.n_failed.item(), own.n_replicates.item()) == (1.0, 0, 128)
    known = np.array([[0.0, 0.0, np.nan], [1.0, np.inf, 1.0], [np.nan, 1.0, 0.5]])
    assert np.array_equal(covers(*known), [np.nan, 1.0, np.nan], equal_nan=True)


class Trimmed:
    def __init__(self, k):
        self.k = k

    def inner(self, x, /):
        return {"estimate": np.sort(x, axis=-1)[:, self.k : N - self.k].mean(axis=-1)}


def shrunk(x, by):
    return {"estimate": by * x.mean(axis=-1)}


@pytest.mark.usefixtures("warm_processes")
def test_any_callable__gives_its_own_numbers_on_other_processes_and_is_known_by_what_it_rests_on(tmp_path):
    def run(by, executor="serial", **how):
        own = {"own": lambda x: {"estimate": x.mean(axis=-1)}, "trimmed": Trimmed(3).inner}
        methods = {"half": functools.partial(shrunk, by=by), **own}
        given = ["bias", "failure_rate"], {"n": [N], "shift": [0.5]}
        return simstudy.simulate("any", sample, methods, given[0], factors=given[1], min_replicates=BATCH,
                                 batch_size=BATCH, output=tmp_path, executor=executor, **how)  # fmt: skip

    found = run(0.5, "processes", workers=1)
    design = tmp_path / "any" / "design.json"
    x = AddressedDraw(load_design(design).cells[0].cell.data_id, 0, BATCH).normals(N) + 0.5
    means = [0.5 * x.mean(), x.mean(), np.sort(x, axis=1)[:, 3 : N - 3].mean()]
    design.unlink()
    n = json.loads(found.attrs["run"])["batches_computed"]
    assert found["simulation"].bias.values.ravel() + 0.5 == pytest.approx(means, abs=1e-2)
    assert (found["simulation"].failure_rate.values == 0.0).all()
    # Other objects of the same kind are the same methods; with another value that is bound they are others.
    assert run(0.5).attrs["run"] == found.attrs["run"] and design.exists()  # with its seconds: nothing was run again
    assert json.loads(run(0.6).attrs["run"])["batches_computed"] == n
    (tmp_path / "any" / "quick" / "results.nc").unlink()
    BY_VALUE.clear()
    with pytest.raises(UserError, match=r"functions.py: its functions were given to simulate; call it again"):
        simstudy.run(design, output=tmp_path / "other", executor="serial", trust=[design.with_name("functions.py")])


class Slotted(list):
    __slots__ = ("k",)

    def __init__(self, k):
        self.k = k


@pytest.mark.parametrize("holding", [
    Slotted, Trimmed, lambda k: CubicSpline([0.0, 1.0], [0.0, k]), lambda k: torch.tensor([0.0, k]), lambda k: {1.0, k},
    lambda k: np.vectorize(lambda x: k * x), lambda k: pd.Series([k]), lambda k: deque([k]),
    lambda k: re.compile(f"{k}"), lambda k: np.array([k, None]),
    lambda k: [a := [1.0], b := [1.0], a if k > 0.5 else b], norm,
])  # fmt: skip
def test_value__identifies_whatever_holds_it(holding):
    one, same, other = (stand_ins({"own": functools.partial(shrunk, by=holding(k))}) for k in (0.5, 0.5, 0.6))
    assert one == same != other


def test_file_of_functions__is_run_once_also_by_threads_that_meet():
    code = Code("import time\ntime.sleep(0.2)\ndef f():\n    return 1\n", trusted=True)
    with ThreadPoolExecutor(2) as pool:
        assert len({*pool.map(code.function, "ff")}) == 1


def test_correlated_normals__have_the_covariance_by_cholesky():
    covariance = np.array([[2.0, 0.6, 0.0], [0.6, 1.0, -0.3], [0.0, -0.3, 0.5]])
    draw = AddressedDraw("0" * 32, 0, 4096)
    found = draw.correlated_normals(covariance, 5)
    assert found.shape == (4096, 5, 3)
    np.testing.assert_allclose(np.cov(found.reshape(-1, 3).T), covariance, atol=0.05)
    np.testing.assert_array_equal(AddressedDraw("0" * 32, 7, 2).correlated_normals(covariance, 5), found[7:9])
    refuses("not positive definite", draw.correlated_normals, np.ones((2, 2)), error=np.linalg.LinAlgError)


@pytest.mark.parametrize("page, verdicts", [("README.md", []), ("simstudy/docs/your-methods.md", ["supported"])])
def test_pages__run_as_scripts(page, verdicts, tmp_path, monkeypatch):
    script = tmp_path / "script.py"
    script.write_text((ROOT / page).read_text().split("```python\n")[1].split("```")[0])
    monkeypatch.chdir(tmp_path)
    found = runpy.run_path(str(script))["found"]
    assert [each for each in cells_of(found).get("verdict", [])] == verdicts
    assert found["simulation"].coverage.values.ravel()[-1] == pytest.approx(0.919, abs=0.01)
    assert "hdi" not in found["simulation"]  # functions have no heads


STUDY = """
study = { name = "squares", title = "Squares", aim = "What is the mean of a square?" }
functions = { method = "square", measures = ["squared"], exact_theory = "expected" }
measures.squared = { meaning = "square of a normal number", unit = "kg", counted = false }
simulation.batch_size = 256
precision = { min_replicates = 4096, max_replicates = 4096 }
grids.scales = { factors.scale = [1.0, 2.0], exact = true }
profiles.quick = {}
[claims.theory]
statement = "The mean of the square is that of theory."
kind = "agrees_with_theory"
grid = "scales"
measure = "squared"
source = "exact"
margin = 0.2
[claims.value]
statement = "The mean of the square is a function of the study."
kind = "equals"
grid = "scales"
measure = "squared"
where.scale = 2.0
value = { function = "mean_square", scale = 2.0 }
margin = 0.5
"""
SQUARES = """
def square(draw, scale):
    return {"squared": (scale * draw.normals(1)[:, 0]) ** 2}

def mean_square(scale):
    return scale**2

def expected(scale):
    return {"squared": mean_square(scale)} if scale > 1.0 else {}
"""


def test_functions_without_a_process__have_theory_values_of_claims_and_words(tmp_path, in_process, monkeypatch):
    code = (path := write_design(tmp_path / "squares", STUDY)).parent / "functions.py"
    code.write_text(SQUARES)
    with pytest.raises(UserError, match=r"claims.value.value: .*functions.py: its code runs only if you trust it"):
        simstudy.run(path.parent, output=tmp_path, executor="serial")
    results = cells_of(simstudy.run(path.parent, output=tmp_path, executor="serial", trust=[code]))
    np.testing.assert_array_equal(results.squared.sel(source="exact"), [np.nan, 4.0])
    assert 0.0 < np.abs((results.squared.sel(source="empirical") - [1.0, 4.0]) / results.squared_mcse).max() < 4.0
    assert results.verdict.values.tolist() == ["supported", "supported"] and results.claimed_value[1] == 4.0
    assert not any(each.counted for each in load_design(path, trust=[code]).cells)  # no events, as the study says
    assert results.squared.attrs["units"] == "kg" and "scale" in results.coords and "n_heads" not in results.coords
    monkeypatch.chdir(tmp_path)
    for given in (["status", "squares"], ["report", "squares"]):
        assert in_process(*given, "--output", tmp_path, "--trust", code).returncode == 0
    text = path.read_text()
    for old, new, said in (
        ("scale = [1.0, 2.0]", "speed = [1.0]", "grids.scales.factors.speed.0. = 1.0: is taken by no function"),
        ('method = "square"', 'method = "sqare"', "defines no function 'sqare'; known are square, mean_square"),
        ('method = "square"', 'method = "coverage"', "defines no function 'coverage'; known are square, mean_square"),
        ('"mean_square", scale', '"mean_sqare", scale', "claims.value.value: .* defines no function 'mean_sqare'"),
        ("scale**2", "str(scale)", "claims.value.value: .*functions.py: mean_square raises TypeError: unsupported"),
        ('"mean_square", scale', '["mean_square"], scale', r"claims.value.value: .* no function \['mean_square'\]"),
    ):  # fmt: skip
        path.write_text(text.replace(old, new))
        code.write_text(SQUARES.replace(old, new))
        refuses(said, load_design, path, trust=[code])
    code.write_text("def mean_square(:")
    refuses(r"claims.value.value: .*functions.py: not Python: invalid syntax", load_design, path)


@pytest.mark.parametrize("name", ["intervals", "t-tests", rare("penalties"), rare("attention")])
def test_example__finds_what_it_declares_in_sixty_lines(name, tmp_path):
    path = ROOT / "designs" / "examples" / name
    assert sum(len(each.read_text().splitlines()) for each in path.iterdir()) <= 60
    simstudy.run(path, output=tmp_path, executor="serial", trust=[path / "functions.py"])
    opened = simstudy.open_results(tmp_path / name / "quick")
    results = cells_of(opened)
    assert (results.verdict == results.expected_verdict).all()
    for figure in {*opened.simstudy.figures} - {"zip", "overview"}:
        axes = opened.simstudy.plot(figure).drawing.axes[0]
        (target,) = [line for line in axes.lines if line.get_label() == "target"]
        assert 0.95 in (target.get_xdata()[0], target.get_ydata()[0])
    for cell in range(results.sizes["cell"]) if name == "intervals" else ():
        n, method = int(results["n"][cell]), str(results["method"].values[cell])
        p = {"half": 0.5, "rare": 0.005}[str(results.grid.values[cell])]
        error = results.coverage.values[0, cell] - covered(method, n, p)
        assert abs(error) < 4.5 * results.coverage_mcse.values[cell], (n, p, method)


def covered(method, n, p):
    x, z = np.arange(n + 1), 1.959963984540054
    if method == "wilson":
        inside = abs(x / n - p) <= z * math.sqrt(p * (1 - p) / n)
    else:
        more = z**2 if method == "agresti_coull" else 0.0
        m = (x + more / 2) / (n + more)
        inside = abs(m - p) <= z * np.sqrt(m * (1 - m) / (n + more))
    return binom.pmf(x, n, p) @ inside
