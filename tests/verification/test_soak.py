"""Random designs, run on any executor and extended for an hour, give the naive numbers and leave nothing behind.

``SOAK=20`` makes as many designs, ``SOAK_SECONDS=600`` ends after a time.
"""

import os
import random
import tempfile
import time

import numpy as np
import psutil
import pytest
from builders import RIDGE

import simstudy
from simstudy.data import heads, training
from simstudy.design.load import load_design
from simstudy.results import cells_of

pytestmark = pytest.mark.rare

DESIGNS, SECONDS = int(os.environ.get("SOAK", "300")), float(os.environ.get("SOAK_SECONDS", "3600"))
EXECUTORS = ["serial"] * 3 + ["threads"] * 8 + ["processes"]
"""How often each is taken: one starts processes in seconds, and the soak is to see many designs."""
RATIO = 1.25  # memory at the end over that after a third: what a run leaks adds up, what is kept once does not


def drawn(rng: random.Random) -> dict:
    """Tables of a design."""
    simulation = {"seed": rng.randrange(10**6), "batch_size": rng.choice([16, 32])}
    precision = {"relative_mcse": {"mse": rng.choice([0.2, 0.05, 0.001])}, "min_replicates": 64}
    precision["max_replicates"] = 32 * rng.randint(2, 24)
    heads = {"n_heads": rng.randint(1, 3), "head_dim": rng.randint(1, 2), "arrangement": "haar"}
    data = {"n_keys": 10, "n_features": rng.randint(2, 4), "noise_sd": rng.uniform(0.1, 1.0)}
    factors = {
        "n_keys": rng.sample(range(2, 30), rng.randint(1, 3)),
        "bandwidth": [round(rng.uniform(0.3, 2.0), 3) for _ in range(rng.randint(1, 2))],
    }
    return {
        "study": {"name": "soak", "title": "A random study", "aim": "To test."}, "heads": heads, "precision": precision,
        "simulation": simulation | {"noise_treatment": "drawn", "control": "none"},
        "data": data | {"regression": RIDGE}, "estimator": {"bandwidth": 0.8},
        "grids": {"all": {"factors": factors}}, "profiles": {"quick": {}},
    }  # fmt: skip


def computed(cell, n: int) -> dict[str, float]:
    keys, noise = training.draw_keys(cell, 0, n), training.draw_noise(cell, 0, n)
    values = 2.0 * np.sin((keys[:, 0] - 0.5 * keys[:, 1]) / np.sqrt(1.25)) + cell.data.noise_sd * noise
    (point,) = heads.query_points(cell)  # the centre, where m is 0
    errors = []
    for own, asked in zip(heads.key_projections(cell), heads.query_projections(cell), strict=True):
        gaps = np.einsum("dp,rdi->rip", own, keys) - point @ asked
        weights = np.exp(-(gaps**2).sum(axis=2) / (2 * cell.bandwidth**2))
        errors.append((weights * values).sum(axis=1) / weights.sum(axis=1))
    return {"mse": (np.mean(errors, axis=0) ** 2).mean(), "of heads": np.square(errors).mean()}


def difference(tables: dict, results) -> float:
    cells, largest = cells_of(results).isel(source=0), 0.0
    each = (cells.isel(cell=k) for k in range(len(cells.cell)))
    for planned, one in zip(load_design(tables).cells, each, strict=True):
        found = {"mse": one.mse, "of heads": one.mean_squared_bias + one.mean_variance}
        for name, expected in computed(planned.cell, int(one.n_replicates)).items():
            largest = max(largest, abs(float(found[name]) / expected - 1.0))
    return largest


def resources() -> dict[str, int]:
    this = psutil.Process()
    return {
        "memory": this.memory_info().rss, "descriptors": this.num_fds(), "threads": this.num_threads(),
        "children": len(this.children()), "temporary files": len(os.listdir(tempfile.gettempdir())),
    }  # fmt: skip


@pytest.mark.timeout(SECONDS + 1800)
@pytest.mark.filterwarnings("ignore")
def test_random_designs__give_the_naive_numbers_and_leave_nothing_behind(tmp_path, monkeypatch):
    rng, kept = random.Random(0), []
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    began = time.monotonic()
    while len(kept) < DESIGNS and time.monotonic() - began < SECONDS:
        tables, executor = drawn(rng), rng.choice(EXECUTORS) if kept else "processes"  # which keep a helper
        for _ in range(rng.randint(1, 2)):  # the second time with more replicates
            results = simstudy.run(tables, output=tmp_path / str(len(kept)), executor=executor, workers=2)
            assert difference(tables, results) < 1e-9, tables
            tables["precision"]["max_replicates"] *= 2
        kept.append(resources())
    print(f"\n{len(kept)} designs in {time.monotonic() - began:.0f} s; at the end {kept[-1]}")
    first, last = kept[len(kept) // 3], kept[-1]
    for name in ("descriptors", "threads", "children", "temporary files"):
        assert last[name] <= first[name], (name, kept)
    assert last["memory"] < RATIO * first["memory"]
