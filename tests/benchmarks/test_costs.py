"""Costs of a digit, of shared data and of variance reduction are measured on what they claim: everything once, tiny."""

from dataclasses import replace

import bookkeeping
import digits
import inspections
import numpy as np
import pytest
import reductions
import simulations
from builders import DESIGN, write_design
from digits import DIFFERENCE, MEASURES, SIZE, TARGETS

from simstudy import study
from simstudy.execution.store import Store

SMALL = replace(SIZE, keys=64, queries=3, replicates=1024)


def apart(one, other):
    """Largest difference of two ways in units of their errors."""
    gaps = [
        np.abs(one.estimate[name] - other.estimate[name]) / np.hypot(one.error[name], other.error[name])
        for name in (*MEASURES, DIFFERENCE)
    ]
    return max(gap.max() for gap in gaps)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_both_ways_estimate_the_same(target):
    own, other = digits.own_study(SMALL, target, 0), digits.numpy_study(SMALL, target, 0)
    assert own.seconds > 0 and other.seconds > 0
    assert apart(own, other) < 4
    assert apart(own, digits.numpy_study(SMALL, target._replace(noise_sd=1.5), 0)) > 6
    assert own.error[DIFFERENCE] < other.error[DIFFERENCE]


def test_errors_stated_are_those_of_independent_rounds():
    rounds = [digits.numpy_study(replace(SMALL, replicates=256), TARGETS[1], k) for k in range(40)]
    for name in (*MEASURES, DIFFERENCE):
        spread = np.std([one.estimate[name] for one in rounds], axis=0)
        stated = np.mean([one.error[name] for one in rounds], axis=0)
        assert (np.abs(np.log(spread / stated)) < 0.45).all()


def test_digit_rows__the_expansion_pays_where_kernels_reach_enough_keys():
    rows = {(row.size, row.who): row.value.median for row in digits.digit_rows(replace(SMALL, keys=512), 2)}
    assert len(rows) == 24 and min(rows.values()) > 0
    assert all(value > 1.2 for (_, who), value in rows.items() if who == "simstudy, plain")


def test_sharing_rows__count_cells_and_sets_of_data(tmp_path):
    (row,) = digits.sharing_rows(1, write_design(tmp_path, DESIGN), ("angles",))
    assert row.who == "6 cells on 1 sets of data" and row.value.median > 0.5


def test_inspection_rows__tell_time_and_memory():
    rows = {row.who: row.value for row in inspections.inspection_rows((2, 3, 16, 2))}
    assert rows["processor"] > 0
    # Queries and keys of 16 sequences of 128 tokens of one layer, at least; the layers come one after another.
    needed = 2 * 16 * 128 * 3 * 2 * 4 / 2**20
    assert needed < rows["memory"] < 100


@pytest.mark.rare
def test_144_heads__are_inspected_in_less_than_a_gigabyte():
    rows = {row.who: row.value for row in inspections.inspection_rows()}
    print(f"\n144 heads: {rows['processor']:.1f} processor seconds, {rows['memory']:.0f} MB")
    assert rows["memory"] < 1024


@pytest.mark.parametrize("one_by_one", [False, True])
def test_simulation_by_hand__estimates_the_same(tmp_path, one_by_one):
    how = (simulations.mean, simulations.jackknifed)[: 2 if one_by_one else 1], (30,), simulations.BATCH, one_by_one
    found = study.run(simulations.design_of(tmp_path, *how), output=tmp_path, executor="serial")
    by_hand = simulations.by_hand(*how)[0, :, :, 1].ravel()
    errors = found.mean_squared_error_mcse.values
    assert (np.abs(found.mean_squared_error.sel(source="empirical").values - by_hand) < 6 * errors).all()
    assert (errors < 0.05 * by_hand).all()


def test_reduction_rows():
    rows = list(reductions.reduction_rows(replace(SMALL, keys=512, replicates=128), 1))
    assert len(rows) == 18 and all(row.value.median > 0 for row in rows)
    noise_alone = [row.value.median for row in rows if row.size.startswith("noise") and row.who == "expansion"]
    assert min(noise_alone) > 1.0


def test_client_rows__count_every_batch_and_each_takes_its_time():
    rate, busy = (row.value for row in bookkeeping.client_rows(200, 0.05))
    assert 0 < rate < bookkeeping.THREADS / 0.05 and 0 < busy < 50


def test_writer_rows__count_what_is_on_disk(monkeypatch):
    written = []
    monkeypatch.setattr(Store, "write_batch", lambda *arguments: written.append(arguments[2]))
    (row,) = bookkeeping.writer_rows(7)
    assert written == list(range(7)) and row.value > 0
