"""Numbers of random instances: through a batch to measures, in a design, and by replay."""

import naive
import numpy as np
import pandas as pd
import pytest
from builders import edited, faults, minimal_cell, write_design

import simstudy
from simstudy.attention import members
from simstudy.attention.combinations import combine_heads
from simstudy.attention.members import measure
from simstudy.data.shared import SharedData
from simstudy.design.feasibility import impossibilities
from simstudy.design.load import load_design
from simstudy.design.measures import MEASURES
from simstudy.design.settings.systems import KINDS, NAMES, QUANTITIES
from simstudy.execution.store import Store
from simstudy.replicates.batch import simulate_batch
from simstudy.replicates.performance import performance
from simstudy.replicates.replay import replay
from simstudy.report.page import write_report
from simstudy.theory.instances import instance_numbers

INSTANCES = {
    "normaliser": {"power": 2},
    "kq_svd": {"rank": 1, "method": "keys", "angle": 60.0},
    "head_recovery": {"rank_deficit": 1, "gates": "position", "held": 2},
    "layer_norm": {"rank": 2},
    "depth": {"depth": 2, "residual": "plain"},
    "hierarchy": {"levels": 3, "downsampling": "chunk"},
    "score_kernel": {"levels": 2},
    "resolution": {"chunk": 4},
    "coarse_mass": {"chunk": 4},
    "pattern": {},
    "published_colony": {"sites": 4},
    "acar": {},
    "boosting_and_ants": {"label_noise": 0.2},
    "gacl": {"generations": 6, "waves": 2},
    "hopfield_noise": {"memory": 0.5, "layers": 3},
    "hopfield_tower": {"memory": 0.5, "layers": 3},
    "masked_head": {"width": 18},
    "perturbed_logits": {"error": 0.3},
    "latent_cache": {"stride": 3},
    "random_heads": {"outputs": 2, "correlation": 0.4},
    "masked_heads": {"heads": 3, "width": 18, "tolerance": 0.1},
    "masked_stack": {"layers": 2, "width": 18},
    "tempered_head": {"tuned_at": 20},
    "head_pair": {"weight": 0.5, "second": 0.5, "sink": 0.1},
    "grouped_heads": {"heads": 6, "groups": 2},
    "in_context_heads": {"steps": 5},
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


@pytest.mark.parametrize(
    ("kind", "parameters", "settings", "place"),
    [
        ("hierarchy", {"levels": 7}, {}, "instance"), ("score_kernel", {"levels": 7}, {}, "instance"),
        ("resolution", {"chunk": 3}, {}, "instance"), ("coarse_mass", {"chunk": 3}, {}, "instance"),
        ("head_recovery", {"held": 3}, {}, "instance"), ("head_recovery", {"rank_deficit": 4}, {}, "instance"),
        ("layer_norm", {"rank": 7}, {}, "instance"), ("layer_norm", {"rank": 5}, {"n_keys": 5}, "instance"),
        ("masked_head", {"width": 9}, {}, "instance"), ("masked_head", {"width": 6}, {}, "instance"),
        ("masked_head", {"width": 198}, {}, "instance"), ("masked_heads", {"width": 9}, {}, "instance"),
        ("masked_stack", {"width": 6}, {}, "instance"), ("random_heads", {}, {"n_heads": 17}, "n_heads"),
        ("masked_stack", {"width": 8, "normalisation": "layer_norm"}, {"n_features": 2}, "n_features"),
        ("perturbed_logits", {}, {"n_keys": 1}, "n_keys"), ("latent_cache", {}, {"head_dim": 1}, "head_dim"),
        ("pattern", {}, {"n_keys": 1}, "n_keys"),
    ],
)  # fmt: skip
def test_what_an_instance_cannot_have__is_named(kind, parameters, settings, place):
    instance = {"kind": kind} | INSTANCES[kind] | parameters
    assert [name for name, _ in impossibilities(minimal_cell(instance=instance, **settings))] == [place]
    for most in ({"kind": "hierarchy", "levels": 6}, {"kind": "layer_norm", "rank": 6}):
        assert not impossibilities(minimal_cell(instance=most))


def test_number_that_is_not_finite__counts_its_replicate_as_failed(monkeypatch):
    cell = cell_of("normaliser")

    def broken(cell, shared):
        numbers = measure(cell, shared)
        numbers["kernel_gap"][shared.first + np.arange(shared.count) == 9] = np.nan
        return numbers

    monkeypatch.setattr(members, "measure", broken)
    (moments,) = simulate_batch([cell], 0)
    assert moments.failed.tolist() == [9] and moments.n_defined.sum() == 31


@pytest.mark.parametrize("power", [1, 3])
@pytest.mark.parametrize("keys", ["unit", "raw"])
def test_normaliser__is_that_of_loops(power, keys):
    cell = cell_of("normaliser", power=power, keys=keys)
    shared = SharedData(cell, 0, 4)
    found, points = measure(cell, shared), shared.normals(41, 6)
    for r in range(4):
        rows = [x / np.linalg.norm(x) if keys == "unit" else x for x in points[r].T]
        logits = [float(rows[0] @ row) / 0.36 for row in rows[1:]]
        weights = naive.entmax(logits, power)
        other = naive.normalised([np.exp(z - max(logits)) for z in logits])
        assert found["softmax_distance"][r] == pytest.approx(np.abs(weights - other).sum() / 2, abs=1e-12)
        assert found["support_share"][r] == np.mean(weights > 1e-15)
    # The identity of entmax and compact kernels is one of keys of equal length.
    assert (found["kernel_gap"] < 1e-12).all() if keys == "unit" else (found["kernel_gap"] > 0.01).all()


def naive_errors(keys, queries, values, method, rank, temperature):
    """Errors of scores and outputs relative to their size, from whole matrices."""
    scores = keys @ queries.T
    approximation = naive.low_rank_scores(keys, queries, rank, method)
    outputs = []
    for matrix in (scores, approximation):
        rows = [naive.normalised([np.exp(z - max(row)) for z in row]) for row in (matrix.T / temperature).tolist()]
        outputs.append(np.array(rows) @ values)
    error = np.linalg.norm(outputs[1] - outputs[0]) / np.linalg.norm(outputs[0])
    return np.linalg.norm(approximation - scores) / np.linalg.norm(scores), error


@pytest.mark.parametrize("method", ["scores", "keys", "stacked"])
@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_compressed_scores__are_those_of_whole_matrices(method, scale):
    parameters = {"rank": 2, "method": method, "angle": 30.0, "scale": scale, "smallest": 0.2}
    cell = cell_of("kq_svd", **parameters).model_copy(update={"heads": minimal_cell(head_dim=4, n_features=8).heads})
    shared = SharedData(cell, 0, 3)
    found, drawn = measure(cell, shared), shared.normals(40, 9)
    deviations = [0.2 ** (k / 3) for k in range(4)]
    c, s = np.cos(np.pi / 6), np.sin(np.pi / 6)
    for r in range(3):
        keys = np.array([[scale * deviations[k] * drawn[r, k, i] for k in range(4)] for i in range(40)])
        plain = np.array([[deviations[k] * drawn[r, 4 + k, i] / scale for k in range(4)] for i in range(40)])
        queries = np.empty_like(plain)
        for k in range(2):
            queries[:, k], queries[:, k + 2] = (
                c * plain[:, k] - s * plain[:, k + 2], s * plain[:, k] + c * plain[:, k + 2],
            )  # fmt: skip
        errors = [naive_errors(keys, queries, drawn[r, 8], m, 2, cell.bandwidth**2) for m in (method, "scores")]
        assert found["score_error"][r] == pytest.approx(errors[0][0], rel=1e-10)
        assert found["output_error"][r] == pytest.approx(errors[0][1], rel=1e-9)
        assert found["beats_scores"][r] == float(errors[0][1] < errors[1][1] and method != "scores")
        excess = errors[0][0] ** 2 - errors[1][0] ** 2
        assert found["eckart_young_gap"][r] == pytest.approx(excess, abs=1e-13)
        assert (excess > 1e-5) == (method != "scores")


INSTANCE_DESIGN = """
[study]
name = "tiny"
title = "A tiny study"
aim = "To test."

[data]
n_keys = 40
n_features = 6

[estimator]
bandwidth = 0.8

[system]
instance = { kind = "normaliser", power = 1 }

[simulation]
seed = 7
batch_size = 32

[precision]
relative_mcse = { softmax_distance = 0.05 }
min_replicates = 64
max_replicates = 512

[grids.powers.factors]
"instance.power" = [1, 2, 4, 8]

[claims.falls]
statement = "The distance falls."
kind = "monotone"
grid = "powers"
measure = "softmax_distance"
x = "instance.power"
direction = "decreasing"

[figures.distance]
title = "Distance against power"
grid = "powers"
x = "instance.power"
y = "softmax_distance"

[profiles.quick]
"""


def test_parameter__is_a_factor_an_axis_and_a_coordinate(tmp_path):
    design = load_design(write_design(tmp_path, INSTANCE_DESIGN))
    assert [planned.cell.instance.power for planned in design.cells] == [1, 2, 4, 8]
    results = simstudy.run(design, output=tmp_path, executor="serial")
    assert results["instance.power"].values.tolist() == [1, 2, 4, 8]
    assert results.verdict.item() == "supported"
    assert results.softmax_distance.attrs["units"] == "1"
    grid = simstudy.to_grid(results, "powers")
    assert grid.softmax_distance.sel({"instance.power": 4, "source": "empirical"}) < 0.5
    page = write_report(results, design, Store(tmp_path)).read_text(encoding="utf-8")
    assert page.count('<th class="number">softmax distance</th>') == 1 and "squared bias" not in page
    assert pd.read_csv(tmp_path / "cells.csv").softmax_distance.tolist() == results.softmax_distance[0].values.tolist()
    wrong = edited(INSTANCE_DESIGN, 'direction = "decreasing"', 'direction = "increasing"')
    contradicted = simstudy.run(load_design(write_design(tmp_path, wrong)), output=tmp_path, executor="serial")
    assert contradicted.verdict.item() == "contradicted"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"instance.power" =', '"instance.powr" =', "grids.powers.factors.instance.powr[0] = 1: unknown key"),
        ('"instance.power" =', '"instanse.power" =', "grids.powers.factors.instanse.power: unknown key"),
        ("[1, 2, 4, 8]", "[1, 0]", "grids.powers.factors.instance.power[1] = 0: must be greater"),
        ('"normaliser", power = 1', '"normaliser"', ""),
    ],
)
def test_faulty_parameter__is_named_where_it_stands(tmp_path, old, new, message):
    found = faults(tmp_path, edited(INSTANCE_DESIGN, old, new))
    assert message in found and bool(found) == bool(message)


@pytest.mark.parametrize(
    ("old", "new", "places"),
    [
        ("n_features = 6", "n_features = 6\nnoise_sd = 0.5", ["data.noise_sd = 0.5: is used by none"]),
        ("[estimator]\n", '[heads]\narrangement = "haar"\n\n[queries]\nqueries = "origin"\n\n[estimator]\n',
         ["heads.arrangement = 'haar'", "queries.queries = 'origin'"]),
        ("[grids.powers.factors]\n", "[grids.powers.factors]\nhead_dim = [1, 2]\n",
         ["grids.powers.factors.head_dim = [1, 2]: is not used by instance = 'normaliser', which uses b"]),
        ("[grids.powers.factors]\n", '[grids.powers]\nsettings = { logits = "distance" }\n[grids.powers.factors]\n',
         ["grids.powers.settings.logits = 'distance': is not used by instance = 'normaliser'"]),
        ("bandwidth = 0.8", 'bandwidth = "attention"', ["estimator.bandwidth = 'attention': follows head_dim, which"]),
        ("[estimator]\nbandwidth = 0.8\n", "", ["estimator.bandwidth: missing"]),
    ],
)  # fmt: skip
def test_settings_that_mean_nothing__are_refused_where_they_stand(tmp_path, old, new, places):
    found = faults(tmp_path, edited(INSTANCE_DESIGN, old, new))
    assert [place in found for place in places] == [True] * len(places) == [True] * len(found.splitlines())


def test_settings_that_mean_nothing__tell_no_cells_apart():
    """In a design with ensembles, too, such settings may be stated: the instances beside them do not see them."""
    instance, idle = {"kind": "normaliser", "power": 1}, {"head_dim": 3, "noise_sd": 2.0, "queries": "origin"}
    plain, other = minimal_cell(instance=instance), minimal_cell(instance=instance, **idle)
    assert plain == other and plain.identity("") == other.identity("")
    assert plain.identity("") != minimal_cell(instance=instance, n_keys=41).identity("")
    assert plain.coordinates["head_dim"] == plain.coordinates["arrangement"] == ""
    assert plain.coordinates["bandwidth"] == 0.8


def test_batch__holds_the_statistics_of_its_cell_alone():
    cells = {"ensemble": minimal_cell(), "compared": minimal_cell(reference="attention"), "instance": cell_of("kq_svd")}
    widths = {name: simulate_batch([cell], 0)[0].statistic_sum.shape[1] for name, cell in cells.items()}
    assert widths == {"ensemble": 7 + 3, "compared": 7 + 4, "instance": 7 + 4}


def test_results_of_a_study_without_instances__have_no_numbers_of_them(tmp_path):
    results = simstudy.run(load_design(write_design(tmp_path)), output=tmp_path, executor="serial")
    assert not set(NAMES) & set(results)
