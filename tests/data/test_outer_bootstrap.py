"""Rows of data as a population: each batch draws its keys from a bootstrap sample of the rows."""

from pathlib import Path

import numpy as np
import pytest
from builders import minimal_cell

from simstudy.data.shared import SharedData
from simstudy.data.training import draw_keys, draw_rows
from simstudy.design.contents import read_contents
from simstudy.design.document import PlannedCell, Precision
from simstudy.design.feasibility import impossibilities
from simstudy.replicates.batch import simulate_batch
from simstudy.replicates.population import measured
from simstudy.replicates.replay import replay
from simstudy.verdicts.predictions import predict

N = 178
WINE = {"kind": "file", "path": "sklearn:wine", "columns": ["alcohol", "hue"], "response": "target"}


def cell_of(population=("rows",), held_out=0, **settings):
    """The mean of keys: one head of a very wide kernel, of the first feature, at the origin."""
    base = {
        "n_features": 2, "n_keys": 12, "n_heads": 1, "head_dim": 1, "arrangement": "aligned", "bandwidth": 1e6,
        "regression": {"kind": "linear", "coefficients": [1.0]}, "noise_sd": 0.0, "batch_size": 64,
    }  # fmt: skip
    keys = WINE | {"held_out": held_out} | settings.pop("keys", {})
    cell = minimal_cell(population=population, key_distribution=keys, **base | settings)
    cell, problems = read_contents(cell, Path())
    assert not problems, problems
    return cell


def test_rows__are_those_of_one_bootstrap_sample_in_each_batch_and_of_another_in_the_next():
    cell = cell_of(n_keys=4000)
    samples = [np.unique(draw_rows(cell.in_batch(batch), first, 8)) for batch, first in ((0, 0), (0, 64), (1, 64))]
    np.testing.assert_array_equal(samples[0], samples[1])
    assert not np.array_equal(samples[1], samples[2])
    for sample in samples:  # 1 - 1/e of the rows, with a standard deviation of 3.9
        assert abs(len(sample) - N * (1.0 - np.exp(-1.0))) < 16
    assert len(np.unique(draw_rows(cell_of((), n_keys=4000), 0, 8))) == N


def test_fewer_keys__are_a_prefix_in_every_batch():
    cells = [cell_of(n_keys=n).in_batch(3) for n in (5, 12)]
    keys = [draw_keys(cell, 192, 4) for cell in cells]
    np.testing.assert_array_equal(keys[0], keys[1][:, :, :5])


def test_values__travel_with_their_rows_and_a_replicate_is_rebuilt():
    settings = {"regression": "file", "held_out": 5, "queries": {"kind": "held_out", "count": 2}, "bandwidth": 1.0}
    cell = cell_of(**settings).in_batch(2)
    shared = SharedData(cell, 130, 3)
    table = {tuple(key): value for key, value in zip(cell.rows.keys, cell.rows.values, strict=True)}
    expected = [[table[tuple(key)] for key in replicate] for replicate in shared.keys(12).swapaxes(1, 2)]
    np.testing.assert_array_equal(shared.values(cell), expected)
    np.testing.assert_array_equal(replay(cell_of(**settings), 131)["keys"], shared.keys(12)[1])


def test_batches__spread_as_data_sets_of_that_size_do():
    spread = {}
    for population in ((), ("rows",)):
        cell = cell_of(population)
        errors = [simulate_batch([cell], batch)[0].error_sum.sum() / 64 for batch in range(64)]
        spread[population] = np.var(errors, ddof=1)
    variance = cell.rows.keys[:, 0].var()
    within, between = variance / (12 * 64), variance / N
    # A sample variance of 64 numbers has a relative standard deviation of 0.18.
    assert spread[()] / within == pytest.approx(1.0, abs=0.6)
    assert spread["rows",] / (within + between) == pytest.approx(1.0, abs=0.6)


def test_both_errors__are_there_whatever_else_is_in_the_batch():
    cell, plain = cell_of(n_keys=6), cell_of((), n_keys=6)
    together = [simulate_batch([cell_of(), cell], batch)[1] for batch in range(6)]
    alone = [simulate_batch([cell], batch)[0] for batch in range(6)]
    for one, other in zip(together, alone, strict=True):
        assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one, other, strict=True))
    found = measured(cell, alone)
    assert found is not None and found.given is not None
    assert found.mcse["mse"] > 1.5 * found.given.mcse["mse"] > 0
    assert cell.identity("") != plain.identity("")


def test_theory__is_blank_with_the_reason():
    planned = PlannedCell(grid="g", cell=cell_of(), precision=Precision(), by_query=False, exact=True)
    (theory,) = predict([planned])
    assert theory["exact"].reason == "rows are a population: theory holds for given ones"


def test_rows__are_no_population_without_replacement_or_without_data():
    assert cell_of(keys={"sampling": "without"}).population == ()
    assert minimal_cell(population=["rows"]).population == ()
    settings = {"noise": "residuals", "regression": {"kind": "fitted", "learner": "linear"}, "noise_sd": 1.0}
    cell = cell_of(held_out=5, queries={"kind": "held_out", "count": 2}, **settings)
    assert "population" in [setting for setting, _ in impossibilities(cell)]
