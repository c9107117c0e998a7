"""Studies with functions of the user's own, for tests."""

from pathlib import Path

import numpy as np
from builders import BASE

import simstudy as package
from simstudy.design.load import load_design
from simstudy.design.settings.cell import Cell
from simstudy.replicates.moments import Moments

SOURCE = """
import numpy as np
def quadratic(x):
    return 0.25 * x[0] ** 2 + 0.25 * x[1] ** 2
def copied(z):
    return z
def means(values, queries, uniforms):
    count = len(values), queries.shape[1], uniforms.shape[1]
    return np.broadcast_to(values.mean(axis=1)[:, None, None] + 0.0 * uniforms[:, None, :, 0], count)
def squared_error(estimates, target):
    return ((estimates.mean(axis=2) - target) ** 2).mean(axis=1)
def lengths(keys, values, queries):
    return keys[0].sum(axis=1) + values[:, 0] + queries[0, 0]
"""


def study(folder: Path, name: str = "quadratic", file: str = "mine.py", text: str = SOURCE, **settings) -> Path:
    """Write a design with a regression function of one's own and its file, and return its path."""
    (folder / file).write_text(text)
    design = package.Study("own", title="Own", aim="To test.")
    given = {"n_keys": 12, "n_features": 2, "regression": {"kind": "own", "path": file, "name": name}}
    design.data(**given).heads(n_heads=2, head_dim=1, arrangement="orthogonal").estimator(bandwidth=0.8, **settings)
    design.simulation(seed=BASE["seed"], batch_size=32, noise_treatment="drawn")
    design.precision(min_replicates=64, max_replicates=64).grid("sizes", {"n_keys": [6, 12]}, exact=True)
    path = folder / "design.toml"
    path.write_text(design.toml())
    return path


def same_bits(ours: list[Moments], theirs: list[Moments]) -> bool:
    return all(
        np.array_equal(a, b, equal_nan=True)
        for one, other in zip(ours, theirs, strict=True) for a, b in zip(one, other, strict=True)
    )  # fmt: skip


def own(name: str) -> dict[str, str]:
    return {"path": "mine.py", "name": name}


def cells(path: Path, *trust: Path) -> list[Cell]:
    return [planned.cell for planned in load_design(path, trust=trust).cells]
