"""Functions and heads of the user's own: as shipped ones to the bit, their contract, nothing run without his word."""

import itertools
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from builders import edited, planned, refuses, write_design
from commands import ROOT

import simstudy as package
from simstudy.data.heads import key_projections
from simstudy.design import contents
from simstudy.design.load import load_design
from simstudy.design.settings.records import DesignError
from simstudy.execution.store import Store
from simstudy.replicates.batch import simulate_batch
from simstudy.report.page import require_same_design
from simstudy.results import cells_of
from simstudy.verdicts.predictions import predict

SOURCE = """
import numpy as np
def quadratic(x):
    return 0.25 * x[0] ** 2 + 0.25 * x[1] ** 2
def around_the_first_axis(normals):
    return np.eye(*normals.shape[1:]) + 0.5 * normals
"""
OWN = '{ kind = "own", path = "mine.py", name = "quadratic" }'
HEADS = 'arrangement = "own", heads_function = { path = "mine.py", name = "around_the_first_axis" }'
DESIGN = f"""
study = {{ name = "own", title = "Own", aim = "To test." }}
data = {{ n_keys = 12, n_features = 2, regression = {OWN} }}
heads = {{ n_heads = 2, head_dim = 1, arrangement = "orthogonal" }}
estimator = {{ bandwidth = 0.8 }}
simulation = {{ seed = 7, batch_size = 32, noise_treatment = "drawn" }}
precision = {{ min_replicates = 64, max_replicates = 64 }}
grids.sizes = {{ exact = true, factors = {{ n_keys = [6, 12] }} }}
profiles.quick = {{}}
"""
OF_HEADS = edited(edited(DESIGN, OWN, '"linear"'), 'arrangement = "orthogonal"', HEADS)


def study(folder: Path, text: str = SOURCE, design: str = DESIGN) -> Path:
    """Write a design of one's own and its file, and return its path."""
    path = write_design(folder, design)
    (folder / "mine.py").write_text(text)
    return path


def cells(path: Path, *trust: Path):
    return [planned.cell for planned in load_design(path, trust=trust).cells]


def test_run__has_the_bits_of_the_same_shipped_function_no_theory_and_says_which_code_it_ran(tmp_path):
    found = simulate_batch(cells(study(tmp_path), tmp_path / "mine.py"), 0)
    shipped = edited(DESIGN, OWN, '{ kind = "quadratic", coefficients = [0.25, 0.25] }')
    np.testing.assert_equal(found, simulate_batch(cells(study(tmp_path, design=shipped)), 0))
    path = study(tmp_path)
    results = cells_of(package.run(path, output=tmp_path / "out", executor="serial", trust=[tmp_path / "mine.py"]))
    assert np.isnan(results.mse.sel(source=["exact", "leading"])).all()
    told = "regression is code of the user's own, of which no closed form is known"
    assert (results.inapplicable.sel(source="exact") == told).all()
    assert results.attrs["data"] == f"mine.py {cells(path)[0].data.regression.code.label}"
    require_same_design(results, load_design(path), Store(tmp_path))
    digest = load_design(path, confirm="a text").confirmation.digest
    (tmp_path / "mine.py").write_text(SOURCE + "\n")
    said = "mine.py has changed since; run the study again"
    refuses(said, require_same_design, results, load_design(path), Store(tmp_path))
    assert load_design(path, confirm="a text").confirmation.digest != digest


def test_without_the_users_word__nothing_is_executed(tmp_path, monkeypatch, in_process):
    monkeypatch.chdir(tmp_path)
    path = study(tmp_path, SOURCE + f"open({str(tmp_path / 'trace')!r}, 'w').close()\n")
    design = load_design(path)
    for command in ("check", "run", "plan", "status", "replay"):
        done = in_process(command, path, *["--cell", "0", "--replicate", "1"] if command == "replay" else [])
        computes = command in ("run", "plan", "replay")
        assert done.returncode == (2 if computes else 0), done.stderr
        if computes:
            assert done.stderr.startswith("error: ") and "code runs only if you trust it" in done.stderr
            assert done.stderr.count("\n") == 1 and str(tmp_path / "mine.py") in done.stderr
    refuses("--trust", simulate_batch, [planned.cell for planned in design.cells], 0)
    assert not (tmp_path / "trace").exists() and not (tmp_path / "outputs").exists()
    (tmp_path / "other.py").write_text(SOURCE)
    assert in_process("run", path, "--trust", "other.py").returncode == 2 and not (tmp_path / "trace").exists()
    assert in_process("run", path, "--trust", "mine.py", "--workers", "1").returncode == 0
    assert (tmp_path / "trace").exists()


def test_contents_of_the_file_and_versions_of_packages__identify_batches_and_its_path_does_not(tmp_path, monkeypatch):
    first = {a.identity("e") for a in cells(study(tmp_path))}
    (tmp_path / "mine.py").rename(tmp_path / "his.py")
    assert {b.identity("e") for b in cells(write_design(tmp_path, edited(DESIGN, "mine", "his")))} == first
    assert not first & {b.identity("e") for b in cells(study(tmp_path, SOURCE.replace("0.25", "0.5")))}
    importing = cells(study(tmp_path, "import sklearn\n" + SOURCE))[0]
    assert importing.data.regression.code.text.endswith(f"\n# rests on scikit-learn {version('scikit-learn')}\n")
    monkeypatch.setattr(contents, "version", lambda name: "9.9")
    assert cells(tmp_path / "design.toml")[0].identity("e") != importing.identity("e")
    monkeypatch.syspath_prepend(tmp_path)
    path = study(tmp_path / "lab", f"import of_mine\n{SOURCE}")  # a package that is edited where it lies
    assert len({cells(path)[0].identity("e") for k in "112" if (tmp_path / "of_mine.py").write_text(f"k = {k}")}) == 2


def test_example__of_masks_agrees_with_its_exact_theory(tmp_path):
    masks = ROOT / "designs" / "examples" / "masks"
    results = cells_of(package.run(masks, output=tmp_path, executor="serial", trust=[masks / "functions.py"]))
    assert results.verdict.item() == "supported"
    exact, empirical = results.mse.sel(source="exact"), results.mse.sel(source="empirical")
    assert (np.abs(empirical - exact) < 4 * results.mse_mcse).all() and (np.diff(exact) > 0.02).all()


def test_own_heads__are_those_of_a_file_to_the_bit_and_have_their_theory(tmp_path):
    cell = cells(study(tmp_path, design=OF_HEADS), tmp_path / "mine.py")[1]
    heads = key_projections(cell)
    plain = {"arrangement": "haar", "heads_function": None}
    normals = 2.0 * (heads - np.eye(2, 1))
    drawn = cell.model_copy(update={"heads": cell.heads.model_copy(update=plain)})
    np.testing.assert_allclose(key_projections(drawn), normals / np.linalg.norm(normals, axis=1, keepdims=True))
    filed = {"arrangement": "file", "file": "heads.npy", "heads_function": None}
    numbers = tuple(tuple(map(tuple, head)) for head in heads.tolist())
    other = cell.model_copy(update={"heads": cell.heads.model_copy(update=filed), "file_projections": numbers})
    np.testing.assert_equal(simulate_batch([cell], 0), simulate_batch([other], 0))
    (theory,) = predict([planned(cell)])
    assert theory["exact"].reason == "" and theory["exact"].measures["mse"] > 0
    population = edited(OF_HEADS, "batch_size", 'population = ["heads"], batch_size')
    cell = cells(study(tmp_path, design=population), tmp_path / "mine.py")[0]
    first, second = (key_projections(cell.in_batch(batch)) for batch in (0, 1))
    assert cell.population == ("heads",) and not (first == second).any()


def test_designs_that_own_code_does_not_fit__are_refused_and_slow_functions_tried_once(tmp_path, monkeypatch):
    code = edited(DESIGN, '"quadratic"', '"quadratic", code = "raise SystemExit"')
    unfit = edited(OF_HEADS, 'arrangement = "own"', 'arrangement = "orthogonal"')
    for design, said in ((code, "regression.code = .* of Code"), (unfit, 'heads_function for arrangement = "ortho')):
        refuses(said, load_design, study(tmp_path, design=design), trust=[tmp_path / "mine.py"], error=DesignError)
    for seconds, n_tried in ((0.1, 2), (1.0, 1)):
        clock = itertools.count(0.0, seconds)
        monkeypatch.setattr(contents, "time", SimpleNamespace(monotonic=lambda clock=clock: next(clock)))
        monkeypatch.setattr(contents, "_try", tried := Mock())
        assert len(cells(study(tmp_path), tmp_path / "mine.py")) == 2 and tried.call_count == n_tried


@pytest.mark.parametrize("text, message", [
    # of a regression function, unless it takes normals: the file, and what is said of it
    ("def m(x): return x", "returns float64 of shape (2, 3, 5); give real numbers of shape (3, 5)"),
    ("def m(x): return np.full(x[0].shape, '1')", "give real numbers of shape (3, 5)"),
    ("def m(x): return np.where(x[0] > 0, np.nan, 1.0)", "returns values that are not finite"),
    ("def m(x): return np.random.rand(*x[0].shape)", "returns other values when it is called again"),
    ("def m(x): raise SystemExit(0)", "m raises SystemExit: 0"),
    ("def m(x): return x[7]", "m raises IndexError: index 7 is out of bounds"),
    ("def m(x): x[0] += 1.0", "m raises ValueError: output array is read-only"),
    ("def m(x): return x[0] - x[0].mean()", "no replicate may see another"),
    ("def m(x): return x[0] - x[0].mean(axis=-1, keepdims=True)", "gives a point another value among other points"),
    ("def n(x): return x[0]", "defines no function 'm'; known are n"),
    ("def m(x:", "not Python"),
    ("from helper import m", "imports helper from its own folder, which would not identify"),
    (None, "mine.py: cannot be read: No such file"),
    ("def m(normals): return normals[0]", "returns float64 of shape (2, 1); give real numbers of shape (2, 2, 1)"),
    ("def m(normals): return np.zeros_like(normals)", "returns a head of a rank below head_dim = 1"),
    ("def m(normals): return np.random.rand(*normals.shape)", "returns other values when it is called again"),
    ("def m(normals, x): return normals", "m raises TypeError: m() missing 1 required positional argument"),
])  # fmt: skip
def test_breach_of_the_contract__is_told_in_one_line(text, message, tmp_path):
    of_heads = "normals" in (text or "")
    design = edited(OF_HEADS, "around_the_first_axis", "m") if of_heads else edited(DESIGN, "quadratic", "m")
    path, trust = study(tmp_path, f"import numpy as np\n{text}\n", design), [tmp_path / "mine.py"]
    (tmp_path / "helper.py").write_text("m = abs\n")
    if text is None or "helper" in text or text.endswith(":"):  # also without trust
        trust = (tmp_path / "mine.py").unlink() or [] if text is None else []
    setting = "heads.heads_function" if of_heads else "data.regression"
    assert message in refuses(setting, load_design, path, trust=trust, error=DesignError)
