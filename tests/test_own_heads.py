"""Heads of the user's own: those of a file to the bit, with theory; a population; their contract."""

from pathlib import Path

import numpy as np
import pytest
from builders import edited
from builders_own import SOURCE, cells, same_bits, study

from simstudy.data.heads import key_projections
from simstudy.design.document import PlannedCell, Precision
from simstudy.design.load import load_design
from simstudy.design.mistakes import DesignError
from simstudy.replicates.batch import simulate_batch
from simstudy.verdicts.predictions import predict

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
    ("name", "message"),
    [
        ("flat", "returns float64 of shape (2, 1); return numbers of shape (2, 2, 1)"),
        ("collapsed", "returns a head of a rank below head_dim = 1"),
        ("restless", "returns other values when it is called again"),
        ("quadratic", "quadratic takes x; it may take normals"),
    ],
)
def test_own_heads__that_break_their_contract_are_told(name, message, tmp_path):
    with pytest.raises(DesignError) as refused:
        load_design(heads_study(tmp_path, name), trust=[tmp_path / "mine.py"])
    assert message in str(refused.value) and "heads.heads_function" in str(refused.value)


def test_own_heads__and_their_arrangement_are_stated_together(tmp_path):
    path = heads_study(tmp_path)
    path.write_text(edited(path.read_text(), 'arrangement = "own"', 'arrangement = "orthogonal"'))
    with pytest.raises(DesignError, match='remove heads_function for arrangement = "orthogonal"'):
        load_design(path)
