"""Functions and heads of the user's own: as shipped ones to the bit, their contract, nothing run without his word."""

from functools import partial
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from builders import BASE, edited, same_bits
from commands import ROOT, simstudy

import simstudy as package
from simstudy.data.heads import key_projections
from simstudy.design import own_code
from simstudy.design.confirmation import confirmatory
from simstudy.design.document import PlannedCell, Precision
from simstudy.design.load import load_design
from simstudy.design.mistakes import DesignError
from simstudy.design.settings.cell import Cell
from simstudy.errors import UserError
from simstudy.execution.store import Store
from simstudy.replicates.batch import simulate_batch
from simstudy.report.page import require_same_design
from simstudy.results import cells_of
from simstudy.verdicts.predictions import predict

SOURCE = """
import numpy as np
def quadratic(x):
    return 0.25 * x[0] ** 2 + 0.25 * x[1] ** 2
"""


def study(folder: Path, name: str = "quadratic", file: str = "mine.py", text: str = SOURCE) -> Path:
    """Write a design with a regression function of one's own and its file, and return its path."""
    (folder / file).write_text(text)
    path = folder / "design.toml"
    path.write_text(f'''
study = {{ name = "own", title = "Own", aim = "To test." }}
[data]
n_keys = 12
n_features = 2
regression = {{ kind = "own", path = "{file}", name = "{name}" }}
[heads]
n_heads = 2
head_dim = 1
arrangement = "orthogonal"
[estimator]
bandwidth = 0.8
[simulation]
seed = {BASE["seed"]}
batch_size = 32
noise_treatment = "drawn"
[precision]
min_replicates = 64
max_replicates = 64
[grids.sizes]
exact = true
factors = {{ n_keys = [6, 12] }}
[profiles.quick]
''')
    return path


def cells(path: Path, *trust: Path) -> list[Cell]:
    return [planned.cell for planned in load_design(path, trust=trust).cells]


EXAMPLE = ROOT / "designs" / "examples"
BREACHES = {
    "nothing_there": "defines no function 'nothing_there'; known are",
    "flat": "returns float64 of shape (2, 3, 5); return numbers of shape (3, 5)",
    "text": "return numbers of shape (3, 5)",
    "not_finite": "returns values that are not finite",
    "counting": "returns other values when it is called again",
    "random": "returns other values when it is called again",
    "failing": "failing raises IndexError: index 7 is out of bounds",
    "writing": "writing raises ValueError: output array is read-only",
    "averaging": "no replicate may see another",
    "within": "gives another value at a point among other points",
}
BROKEN = """
import numpy as np
calls = []
def flat(x): return x
def text(x): return np.full(x[0].shape, "1")
def not_finite(x): return np.where(x[0] > 0, np.nan, 1.0)
def counting(x):
    calls.append(1)
    return x[0] * len(calls)
def random(x): return np.random.rand(*x[0].shape)
def failing(x): return x[7]
def writing(x):
    x[0] += 1.0
    return x[0]
def averaging(x): return x[0] - x[0].mean()
def within(x): return x[0] - x[0].mean(axis=-1, keepdims=True)
"""


def test_own_function__gives_the_bits_of_the_same_shipped_one(tmp_path):
    path = study(tmp_path)
    found = simulate_batch(cells(path, tmp_path / "mine.py"), 0)
    shipped = path.with_name("shipped.toml")
    shipped.write_text(edited(path.read_text(), 'kind = "own", path = "mine.py", name = "quadratic"',
                              'kind = "quadratic", coefficients = [0.25, 0.25]'))  # fmt: skip
    assert same_bits(found, simulate_batch(cells(shipped), 0))


def test_run__leaves_theory_blank_with_the_reason_and_says_which_code_it_ran(tmp_path):
    path = study(tmp_path)
    results = cells_of(package.run(path, output=tmp_path / "out", executor="serial", trust=[tmp_path / "mine.py"]))
    assert np.isnan(results.mse.sel(source=["exact", "leading"])).all()
    assert set(results.inapplicable.sel(source="exact").values) == {
        "regression is code of the user's own, of which no closed form is known"
    }
    read = cells(path)[0].data.regression.code
    assert results.attrs["data"] == f"mine.py {read.label}"
    require_same_design(results, load_design(path), Store(tmp_path))
    digest = confirmatory(load_design(path), "a text").confirmation.digest
    # Judged again from another folder than that of the design, beside which its file lies.
    (tmp_path / "mine.py").write_text(SOURCE + "\n")
    with pytest.raises(UserError, match=r"mine.py has changed since; run the study again"):
        require_same_design(results, load_design(path), Store(tmp_path))
    assert confirmatory(load_design(path), "a text").confirmation.digest != digest


def test_missing_or_faulty_file__is_refused_also_without_trust(tmp_path):
    path = study(tmp_path, text="def quadratic(x:")
    with pytest.raises(DesignError, match="not Python"):
        load_design(path)
    (tmp_path / "mine.py").unlink()
    with pytest.raises(DesignError, match=r"mine.py: cannot be read: No such file"):
        load_design(path)


def test_without_the_users_word__nothing_is_executed(tmp_path):
    text = SOURCE + f"open({str(tmp_path / 'trace')!r}, 'w').close()\n"
    path = study(tmp_path, text=text)
    design = load_design(path)
    for command in ("check", "run", "plan", "status", "replay"):
        more = ["--cell", "0", "--replicate", "1"] if command == "replay" else []
        done = simstudy(command, path, *more, cwd=tmp_path)
        computes = command in ("run", "plan", "replay")
        assert done.returncode == (2 if computes else 0), done.stderr
        if computes:
            assert done.stderr.startswith("error: ") and "code runs only if you trust it" in done.stderr
            assert done.stderr.count("\n") == 1 and str(tmp_path / "mine.py") in done.stderr
    with pytest.raises(UserError, match="--trust"):
        simulate_batch([planned.cell for planned in design.cells], 0)
    assert not (tmp_path / "trace").exists() and not (tmp_path / "outputs").exists()
    (tmp_path / "other.py").write_text(SOURCE)
    assert simstudy("run", path, "--trust", "other.py", cwd=tmp_path).returncode == 2
    assert not (tmp_path / "trace").exists()
    assert simstudy("run", path, "--trust", "mine.py", "--workers", "1", cwd=tmp_path).returncode == 0
    assert (tmp_path / "trace").exists()


def test_contents_of_the_file__identify_batches_and_its_path_does_not(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    first, moved = cells(study(tmp_path)), cells(study(tmp_path / "elsewhere", file="his.py"))
    assert [a.identity("e") for a in first] == [b.identity("e") for b in moved]
    changed = cells(study(tmp_path, text=SOURCE.replace("0.25", "0.5")))
    assert not {a.identity("e") for a in first} & {b.identity("e") for b in changed}


def test_import_of_a_file_beside_it__is_refused(tmp_path):
    (tmp_path / "helper.py").write_text("FACTOR = 0.25\n")
    path = study(tmp_path, text="from helper import FACTOR\ndef quadratic(x):\n    return FACTOR * x[0] ** 2\n")
    with pytest.raises(DesignError, match=r"mine.py: imports helper from beside it, which would not identify"):
        load_design(path)


def test_packages_that_a_file_imports__identify_it_by_their_versions(tmp_path, monkeypatch):
    path = study(tmp_path, text="import sklearn\n" + SOURCE)
    first = cells(path)[0]
    assert first.data.regression.code.text.endswith(f"\n# rests on scikit-learn {metadata.version('scikit-learn')}\n")
    monkeypatch.setattr(own_code, "version", lambda name: "9.9")
    assert cells(path)[0].identity("e") != first.identity("e")


def test_example__of_masks_agrees_with_its_exact_theory(tmp_path):
    trust = [EXAMPLE / "masks" / "functions.py"]
    results = cells_of(package.run(EXAMPLE / "masks", output=tmp_path, executor="serial", trust=trust))
    assert results.verdict.item() == "supported"
    exact, empirical = results.mse.sel(source="exact"), results.mse.sel(source="empirical")
    assert (np.abs(empirical - exact) < 4 * results.mse_mcse).all() and (np.diff(exact) > 0.02).all()


HEADS = """
import numpy as np
def around_the_first_axis(normals):
    shared = np.eye(*normals.shape[1:])
    return shared + 0.5 * normals
def flat(normals): return normals[0]
def collapsed(normals): return np.zeros_like(normals)
def restless(normals): return np.random.default_rng().normal(size=normals.shape)
"""


def heads_study(folder: Path, name: str = "around_the_first_axis", **simulation) -> Path:
    path = study(folder, "around_the_first_axis", text=HEADS + SOURCE)
    text = edited(path.read_text(), 'arrangement = "orthogonal"',
                  f'arrangement = "own"\nheads_function = {{ path = "mine.py", name = "{name}" }}')  # fmt: skip
    text = edited(text, 'kind = "own", path = "mine.py", name = "around_the_first_axis"', 'kind = "linear"')
    path.write_text(edited(text, "batch_size = 32", "\n".join(["batch_size = 32", *simulation.values()])))
    return path


def test_own_heads__are_those_of_a_file_to_the_bit_and_have_their_theory(tmp_path):
    cell = cells(heads_study(tmp_path), tmp_path / "mine.py")[1]
    heads = key_projections(cell)
    plain = {"arrangement": "haar", "heads_function": None}
    normals = 2.0 * (heads - np.eye(2, 1))
    drawn = cell.model_copy(update={"heads": cell.heads.model_copy(update=plain)})
    np.testing.assert_allclose(key_projections(drawn), normals / np.linalg.norm(normals, axis=1, keepdims=True))
    filed = {"arrangement": "file", "file": "heads.npy", "heads_function": None}
    numbers = tuple(tuple(map(tuple, head)) for head in heads.tolist())
    other = cell.model_copy(update={"heads": cell.heads.model_copy(update=filed), "file_projections": numbers})
    assert same_bits(simulate_batch([cell], 0), simulate_batch([other], 0))
    (theory,) = predict([PlannedCell(grid="g", cell=cell, precision=Precision(), by_query=False, exact=True)])
    assert theory["exact"].reason == "" and theory["exact"].measures["mse"] > 0


def test_own_heads__can_be_a_population_of_which_each_batch_has_its_draw(tmp_path):
    path = heads_study(tmp_path, population='population = ["heads"]')
    cell = cells(path, tmp_path / "mine.py")[0]
    first, second = (key_projections(cell.in_batch(batch)) for batch in (0, 1))
    assert cell.population == ("heads",) and not (first == second).any()


@pytest.mark.parametrize(
    ("made", "name", "message"),
    [
        *((partial(study, text=BROKEN), *breach) for breach in BREACHES.items()),
        (heads_study, "flat", "returns float64 of shape (2, 1); return numbers of shape (2, 2, 1)"),
        (heads_study, "collapsed", "returns a head of a rank below head_dim = 1"),
        (heads_study, "restless", "returns other values when it is called again"),
        (heads_study, "quadratic", "quadratic takes x; it may take normals"),
    ],
)
def test_breach_of_the_contract__is_told_in_one_line(made, name, message, tmp_path):
    with pytest.raises(DesignError) as refused:
        load_design(made(tmp_path, name), trust=[tmp_path / "mine.py"])
    said, setting = str(refused.value), "heads.heads_function" if made is heads_study else "data.regression"
    assert message in said and said.count("\n") == 0 and setting in said


@pytest.mark.parametrize(
    ("made", "old", "new", "said"),
    [
        (study, 'name = "quadratic"', 'name = "quadratic", code = "raise SystemExit"', "regression.code = .* of Code"),
        (heads_study, 'arrangement = "own"', 'arrangement = "orthogonal"', 'heads_function for arrangement = "ortho'),
    ],
)
def test_designs_that_own_code_does_not_fit__are_refused(made, old, new, said, tmp_path):
    path = made(tmp_path)
    path.write_text(edited(path.read_text(), old, new))
    with pytest.raises(DesignError, match=said):
        load_design(path, trust=[tmp_path / "mine.py"])
