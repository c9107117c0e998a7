"""Numbers of random instances: through a batch to measures, in a design, and by replay."""

import numpy as np
import pytest
from builders import minimal_cell, write_design

import simstudy
from simstudy.attention.combinations import combine_heads
from simstudy.attention.members import measure
from simstudy.data.shared import SharedData
from simstudy.design.load import load_design
from simstudy.design.measures import MEASURES
from simstudy.design.settings.systems import KINDS, NAMES, QUANTITIES
from simstudy.replicates.batch import simulate_batch
from simstudy.replicates.performance import performance
from simstudy.replicates.replay import replay
from simstudy.theory.instances import instance_numbers

INSTANCES = {
    "published_colony": {"sites": 4},
    "acar": {},
    "boosting_and_ants": {"label_noise": 0.2},
    "gacl": {"generations": 6, "waves": 2},
    "tempered_head": {"tuned_at": 20},
    "head_pair": {"weight": 0.5, "second": 0.5, "sink": 0.1},
    "grouped_heads": {"heads": 6, "groups": 2},
}
"""Parameters of one small instance of each kind."""


def cell_of(kind, **parameters):
    return minimal_cell(instance={"kind": kind} | INSTANCES[kind] | parameters, bandwidth=0.6)


def test_names__are_those_of_one_quantity_each():
    defined = [(name, quantity) for kind in QUANTITIES.values() for name, quantity in kind.items()]
    assert sorted(NAMES) == sorted(name for name, _ in set(defined))
    assert not set(NAMES) & set(MEASURES)
    # Trained models take seconds, and simulations need functions: their own files test them.
    assert {kind for kind, r in KINDS.items() if r.system() not in ("real_heads", "simulation")} == set(INSTANCES)


EXACT = [kind for kind in INSTANCES if instance_numbers(cell_of(kind).instance, cell_of(kind))]


@pytest.mark.parametrize("kind", EXACT)
def test_exact_formula__is_the_mean_of_what_is_measured(kind):
    cell, n = cell_of(kind), 400
    measured = measure(cell, SharedData(cell, 0, n))
    for name, exact in instance_numbers(cell.instance, cell).items():
        assert abs(measured[name].mean() - exact) <= 4.0 * measured[name].std() / np.sqrt(n) + 1e-12, name


@pytest.mark.parametrize("kind", INSTANCES)
def test_every_kind__measures_its_quantities_in_each_replicate_by_itself(kind):
    cell = cell_of(kind)
    whole = measure(cell, SharedData(cell, 4, 3))
    assert tuple(whole) == tuple(QUANTITIES[kind])
    for name, values in whole.items():
        assert values.shape == (3,) and np.isfinite(values).all()
        np.testing.assert_array_equal(values[1:2], measure(cell, SharedData(cell, 5, 1))[name])
    (moments,) = simulate_batch([cell], 0)
    found = performance(moments, combine_heads(cell), cell.statistics)
    each = measure(cell, SharedData(cell, 0, 32))
    for name, values in each.items():
        assert found.estimate[name] == pytest.approx(values.mean(), rel=1e-12)
        rounding = 1e-9 * np.abs(values).max()  # the error of a number that never varies
        assert found.mcse[name] == pytest.approx(values.std(ddof=1) / np.sqrt(32), rel=0.8, abs=rounding)
    assert all(np.isnan(found.estimate[name]) for name in MEASURES)
    assert found.estimate["failure_rate"] == 0
    seen = replay(cell, 5)
    assert seen.failure == ""
    np.testing.assert_array_equal(seen.number, [values[5] for values in each.values()])


def test_batch__holds_the_statistics_of_its_cell_alone():
    cells = {"ensemble": minimal_cell(), "compared": minimal_cell(reference="attention")}
    widths = {name: simulate_batch([cell], 0)[0].statistic_sum.shape[1] for name, cell in cells.items()}
    assert widths == {"ensemble": 7 + 3, "compared": 7 + 4}


def test_results_of_a_study_without_instances__have_no_numbers_of_them(tmp_path):
    results = simstudy.run(load_design(write_design(tmp_path)), output=tmp_path, executor="serial")
    assert not set(NAMES) & set(results)
