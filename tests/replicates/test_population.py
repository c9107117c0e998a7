"""Replicates until they are precise; query points, heads and values as populations: errors against loops and theory."""

from functools import partial

import numpy as np
import pytest
from builders import DESIGN, arrays_of, batches_of, estimated, left_open, loaded, minimal_cell, mistakes, run, varied

from simstudy import nw_ensemble
from simstudy.attention.combinations import combine_heads
from simstudy.data.heads import key_projections, overlap, query_points
from simstudy.design.answerable import draws_of
from simstudy.design.document import Precision
from simstudy.design.measures import MEASURES
from simstudy.execution.provenance import counted
from simstudy.execution.store import store_of
from simstudy.replicates import allocation
from simstudy.replicates.allocation import first_target, needed, next_target, shortfall
from simstudy.replicates.batch import simulate_batch
from simstudy.replicates.moments import empty
from simstudy.replicates.performance import Performance, performance
from simstudy.replicates.population import measured
from simstudy.replicates.replay import replay
from simstudy.report.page import require_same_design
from simstudy.theory import exact_moments, predicted_measure_errors, predicted_measures
from simstudy.verdicts.query_control import QueryControl

GAUSSIAN = {"kind": "gaussian", "count": 5}
random_cell = partial(minimal_cell, arrangement="haar", queries=GAUSSIAN, population=["queries", "heads"])
N_DRAWS = 6
CLAIM = DESIGN[DESIGN.index("[claims.mse-falls]") : DESIGN.index("[figures.mse]")]
RANDOM = {"queries": {"kind": "gaussian", "count": 4}}
POPULATION = RANDOM | {"population": ("queries",)}


def test_each_batch__has_draws_of_its_own_which_cells_of_a_seed_share():
    cell, other = random_cell(), random_cell(bandwidth=0.5, n_keys=60)
    points = [query_points(cell.in_batch(batch)) for batch in range(3)]
    heads = [key_projections(cell.in_batch(batch)) for batch in range(3)]
    for drawn in (points, heads):
        assert all(np.abs(drawn[i] - drawn[j]).max() > 0.1 for i, j in ((0, 1), (0, 2), (1, 2)))
    np.testing.assert_array_equal(points[2], query_points(other.in_batch(2)))
    np.testing.assert_array_equal(heads[2], key_projections(other.in_batch(2)))
    np.testing.assert_array_equal(key_projections(random_cell(population=["queries"]).in_batch(2)), heads[0])
    np.testing.assert_array_equal(query_points(random_cell(population=[]).in_batch(2)), points[0])
    replayed = replay(cell, 2 * 32 + 5)
    np.testing.assert_equal([replayed.query_points.values, replayed.key_projections.values], [points[2], heads[2]])
    # Cells that draw nothing have no population in their names.
    assert minimal_cell(population=["queries"]).identity("e") == minimal_cell().identity("e")
    assert len({random_cell(population=names).identity("e") for names in ([], ["queries"], ["heads"])}) == 3


@pytest.mark.parametrize("size", [4, 32])  # with fewer than 16 replicates some blocks are empty
def test_population_estimates__are_means_over_draws_and_ratios_of_means(size):
    cell = random_cell(regression={"kind": "ridge"}, n_heads=3, batch_size=size)
    batches = batches_of(cell, N_DRAWS)
    found = measured(cell, batches)
    alone = [performance(batch, combine_heads(cell), cell.statistics) for batch in batches]
    for name in ("mse", "squared_bias", "ensemble_variance", "correlation", "direct_mse"):
        values = np.array([each.estimate[name] for each in alone])
        assert found.estimate[name] == pytest.approx(values.mean(), rel=1e-10), name
        assert found.mcse[name] == pytest.approx(values.std(ddof=1) / N_DRAWS**0.5, rel=1e-10), name
        assert (found.contribution[name] ** 2).sum() == pytest.approx(found.mcse[name] ** 2)
    assert found.remainder["failure_rate"] == found.mcse["failure_rate"] > 0.0  # nothing failed, and might have
    variance, between = (np.array([p.estimate[m] for p in alone]) for m in ("mean_variance", "mean_covariance"))

    def effective_heads(kept) -> float:
        return variance[kept].mean() / (variance[kept].mean() / 3 + 2 / 3 * between[kept].mean())

    left_out = np.array([effective_heads(np.arange(N_DRAWS) != g) for g in range(N_DRAWS)])
    pseudo = N_DRAWS * effective_heads(np.arange(N_DRAWS)) - (N_DRAWS - 1) * left_out
    assert found.estimate["effective_heads"] == pytest.approx(pseudo.mean(), rel=1e-10)
    assert found.mcse["effective_heads"] == pytest.approx(pseudo.std(ddof=1) / N_DRAWS**0.5, rel=1e-10)
    assert found.by_batch and found.n_blocks == N_DRAWS


def test_failed_replicates_and_empty_batches__are_left_out_and_counted():
    compact = {"kind": "compact", "power": 1}
    cell = random_cell(normaliser=compact, bandwidth=0.3, n_keys=30, queries=GAUSSIAN | {"count": 1})
    batches = batches_of(cell, 12)
    usable = [np.count_nonzero(batch.n_defined) >= 2 for batch in batches]
    assert 2 <= sum(usable) < 12 and any((batch.n_defined == 0).any() for batch in batches)
    found = measured(cell, batches)
    kept = [batch for batch, use in zip(batches, usable, strict=True) if use]
    alone = [performance(batch, combine_heads(cell), cell.statistics) for batch in kept]
    assert found.estimate["mse"] == pytest.approx(np.mean([each.estimate["mse"] for each in alone]), rel=1e-10)
    assert found.n_blocks == sum(usable) and len(found.contribution["mse"]) == 12
    # Contributions are at the place of their batch, so that cells of one seed are paired.
    assert (found.contribution["mse"] != 0.0).tolist() == usable != usable[::-1]
    assert found.estimate["failure_rate"] == sum(len(b.failed) for b in batches) / (12 * 32)
    assert measured(cell, kept[:1]) is None is not measured(cell, kept[:2])
    (batch,) = simulate_batch([minimal_cell()], 0)  # one block with an estimate has no error
    counts = [batch.n_defined * (np.arange(len(batch.n_defined)) < kept) for kept in (1, 2)]
    assert [measured(minimal_cell(), [batch._replace(n_defined=n)]) is None for n in counts] == [True, False]


def test_pilot__finds_the_variances_between_and_within_draws_that_no_batch_has():
    cell = random_cell(regression={"kind": "ridge"}, n_heads=2, batch_size=16)
    values = []
    for number in range(2**40, 2**40 + allocation.PILOT_DRAWS):
        (batch,) = simulate_batch([cell], number)
        values.append(batch.product_sum.mean(axis=1) @ [0.25, 0.5, 0.25])  # mse by block of one replicate
    within = np.var(values, axis=1, ddof=1).mean()
    between = np.var(np.mean(values, axis=1), ddof=1) - within / 16
    found = allocation.variances(random_cell(regression={"kind": "ridge"}, n_heads=2))[:, 0]
    np.testing.assert_allclose(found * np.mean(values) ** 2, [between, within / 16 * 15], rtol=1e-9)


@pytest.mark.parametrize("within, of_draw, wanted", [(1, 1, 4), (100, 5, 16), (100, 80, 64), (1e6, 1e6, 1024)])
def test_replicates_of_a_draw__are_those_of_neyman(monkeypatch, within, of_draw, wanted):
    assert wanted in (4, 1024) or 0.7 < wanted / np.sqrt(of_draw * within / 2.0) < 1.5
    told, cell, certain = np.array([[1.0, 0.5], [within, 0.1]]), random_cell(), random_cell(bandwidth=2.0)
    monkeypatch.setattr(allocation, "operations", lambda cell: (of_draw, 2.0))
    monkeypatch.setattr(allocation, "variances", lambda each, *_: told if each == cell else 0.0 * told)
    for cells in ((cell,), (cell, certain)):
        assert allocation.quickest(left_open(*cells), True) == {"batch_size": wanted}
    few = {"min_replicates": 20, "max_replicates": 20 * 64}
    assert allocation.quickest(left_open(certain, cell, **few), True) == {"batch_size": min(wanted, 16)}
    monkeypatch.setattr(allocation, "variances", lambda each, *_: told if each == cell else None)
    assert allocation.quickest(left_open(cell, certain), True) == {"batch_size": 16}  # as one failed in the pilot
    # With more than a precision wanted populations are plain, even if a control left no variance.
    monkeypatch.setattr(allocation, "variances", lambda each, *_: told * (each.simulation.control == "none"))
    controlled = random_cell(population=["queries"], arrangement="orthogonal", control="expansion")
    assert allocation.quickest(left_open(controlled), True) == {"batch_size": wanted, "control": "none"}


@pytest.mark.parametrize("wanted, chosen, piloted", [
    ({"ensemble_variance": 0.01}, {"batch_size": 16}, 2),  # which the control leaves hardly any variance
    ({"ensemble_variance": 0.01, "mse": 0.01}, {"batch_size": 16}, 2),
    ({"mse": 0.01}, {"batch_size": 16, "control": "none"}, 1),  # 64 draws, and 1024 replicates; no control is sooner
    ({"mse": 0.001}, {"batch_size": 8, "control": "none"}, 2),
])  # fmt: skip
def test_draws__are_those_that_reach_the_errors_wanted_soonest(monkeypatch, wanted, chosen, piloted):
    cell, asked = random_cell(population=["queries"], arrangement="orthogonal", control="expansion"), []

    def variances(cell, precision, control):
        asked.append(cell.simulation.control)
        known = {"mse": (0.003, 0.02), "ensemble_variance": (0.0, 5.0 if asked[-1] == "none" else 1e-4)}
        return np.transpose([np.array(known[name]) / error**2 for name, error in precision.relative_mcse.items()])

    costs = {"none": (10.0, 1.0), "expansion": (40.0, 1.5)}
    monkeypatch.setattr(allocation, "operations", lambda cell: costs[cell.simulation.control])
    monkeypatch.setattr(allocation, "variances", variances)
    assert allocation.quickest(left_open(cell, relative_mcse=wanted), False) == chosen and len(asked) == piloted


def test_pilot__sees_what_theory_leaves_of_the_variance_and_a_draw_costs_its_heads_and_its_control():
    cell = random_cell(regression={"kind": "ridge"}, population=["queries"], arrangement="orthogonal")
    raw, left = (allocation.variances(cell, control=control) for control in (None, QueryControl()))
    np.testing.assert_allclose(raw[1], left[1], rtol=0.1)
    assert left[0, 0] < 0.2 * raw[0, 0]
    wide = {"n_heads": 8, "n_features": 64, "regression": {"kind": "ridge"}}
    more = {"population": ["queries"]}, {}, {"control": "expansion"}
    fixed, drawn, controlled = (allocation.operations(random_cell(**wide | each))[0] for each in more)
    assert fixed < drawn < controlled


@pytest.mark.parametrize("claim, wanted, control", [
    (CLAIM, {"mse": 0.05}, "none"),
    ("", {"mse": 0.05}, "none"),
    (CLAIM, {"ensemble_variance": 1e-4}, "none"),
    ("", {"ensemble_variance": 1e-4}, "expansion"),
])  # fmt: skip
def test_draws__are_those_of_the_design_or_of_the_pilot_whoever_asks(tmp_path, claim, wanted, control):
    text = varied(DESIGN.replace(CLAIM, claim), relative_mcse=wanted, bandwidth=[2.0, 3.0], **POPULATION)
    given, free = (loaded(tmp_path, each) for each in (text, varied(text, batch_size=None)))
    assert {each.cell.simulation.batch_size for each in allocation.sized(given).cells} == {32}
    sized = allocation.sized(free)
    chosen = {(each.cell.simulation.batch_size, each.cell.simulation.control) for each in sized.cells}
    ((size, _),) = chosen
    assert chosen <= {(4, control), (8, control)}  # 512 replicates are 64 draws of 8
    results, store = run(free, output=tmp_path, executor="serial"), store_of(free, tmp_path)
    assert set(results.batch_size.values) == {size}
    assert [cell.stored for cell in counted(free, store).cells] == results.n_batches.values.tolist()
    require_same_design(results, free, store)  # as reports ask
    again = run(sized, output=tmp_path / "again", executor="threads", workers=2)
    np.testing.assert_array_equal(results.mse, again.mse)


@pytest.mark.parametrize("settings, control", [
    ({}, "none"), ({"mse": 1e-5, "min_replicates": None, "max_replicates": 9999999}, "expansion"),
    ({"relative_mcse": None}, "expansion"), ({"control": "expansion"}, "expansion"), ({"stop": "both"}, "expansion"),
    (CLAIM, "expansion"),
])  # fmt: skip
def test_grid__is_plain_where_the_precision_is_there_sooner_and_nothing_else_wanted(tmp_path, settings, control):
    text = DESIGN if settings is CLAIM else varied(DESIGN.replace(CLAIM, ""), **settings)
    assert {each.cell.simulation.control for each in allocation.sized(loaded(tmp_path, text)).cells} == {control}


def test_draws__are_told_where_they_are_fixed_and_have_no_measures_by_query_where_new(tmp_path):
    design = loaded(tmp_path, varied(**RANDOM))
    assert draws_of(design.claims["mse-falls"], design.cells) == "for these 4 query points"
    assert "new in each batch" in mistakes(tmp_path, varied(**POPULATION) + "[grids.angles]\nby_query = true\n")


H, V, K, C = 3, 4, 2, 5
RNG = np.random.default_rng(15)
VALUE, OUTPUT = RNG.normal(size=(H, V, K)), RNG.normal(size=(H, K, C))
MAPS = VALUE @ OUTPUT
RANDOM_MAPS = {"kind": "random", "n_components": 6, "value_dim": 3}
KINDS = {"random": RANDOM_MAPS, "transposed": RANDOM_MAPS | {"output": "transposed"}, "disjoint": "disjoint"}


def cell_of(kind, **settings):
    base = {"n_keys": 20, "n_heads": H, "head_dim": 1, "arrangement": "rotated", "angle": 60.0, "noise_sd": 0.7,
            "regression": "linear", "queries": {"kind": "points", "points": [[0.0], [0.5, -1.0]]}}  # fmt: skip
    return minimal_cell(**base | ({} if kind == "none" else {"value_projections": KINDS[kind]}) | settings)


@pytest.mark.parametrize("output", ["own", "transposed"])
def test_overlap__has_mean_1_and_random_projections_are_as_alike_as_uniform_draws(output):
    """tr(A_h'A_g) of independent draws is k²/v on average where W_O is W_V transposed, and 0 where not."""
    assert [overlap(cell_of(kind)).mean() for kind in KINDS] == pytest.approx([1.0] * 3)
    settings = {"n_heads": 40, "arrangement": "aligned", "angle": None}
    found = overlap(cell_of("random", value_projections=RANDOM_MAPS | {"output": output}, **settings))
    np.testing.assert_allclose(np.diagonal(found), found[0, 0])
    apart = found[~np.eye(40, dtype=bool)] * 3.0 / found[0, 0]
    assert abs(apart.mean() - (9.0 / 6.0 if output == "transposed" else 0.0)) < 0.15
    assert apart.std() > 0.2


def test_vectors__have_the_moments_that_theory_says():
    """The long way: vectors in a direction of their own and with noise, heads key by key, maps, squared distances."""
    cell, n_replicates = cell_of("none"), 1200
    keys_of, (point, _) = key_projections(cell), query_points(cell)
    rng, products = np.random.default_rng(3), np.empty((n_replicates, H, H))
    for r in range(n_replicates):
        keys = rng.normal(size=(20, 6))
        direction = rng.normal(size=V)
        values = [x[0] * direction + 0.7 * rng.normal(size=V) for x in keys]
        errors = []
        for w, a in zip(keys_of, MAPS, strict=True):
            kernels = [np.exp(-((x @ w - point @ w) ** 2).sum() / (2 * 0.8**2)) for x in keys]
            estimate = sum(k * y for k, y in zip(kernels, values, strict=True)) / sum(kernels)
            errors.append(a.T @ (estimate - point[0] * direction))
        products[r] = np.array(errors) @ np.array(errors).T
    prediction = exact_moments(cell, *arrays_of(cell))
    through = np.einsum("hvc,gvc->hg", MAPS, MAPS)
    expected = through * (prediction.covariance[0] + np.outer(prediction.bias[0], prediction.bias[0]))
    assert np.abs((products.mean(axis=0) - expected) / (products.std(axis=0) / np.sqrt(n_replicates))).max() < 4.0
    at_first = prediction._replace(bias=prediction.bias[:1], covariance=prediction.covariance[:1])
    mse = predicted_measures(at_first, [1 / H] * H, through / through.mean())["mse"]
    assert mse == pytest.approx((H**2 / (sum(MAPS) ** 2).sum()) * expected.mean())


@pytest.mark.parametrize("noise_treatment", ["integrated", "drawn"])
@pytest.mark.parametrize("kind", KINDS)
def test_simulation__agrees_with_exact_theory(kind, noise_treatment):
    cell = cell_of(kind, batch_size=4096, noise_treatment=noise_treatment)
    found, arguments = estimated(cell), (exact_moments(cell, *arrays_of(cell)), [1 / H] * H, overlap(cell))
    expected, bounds = predicted_measures(*arguments), predicted_measure_errors(*arguments)
    for name in MEASURES:
        assert abs(found.estimate[name] - expected[name]) < 4.0 * found.mcse[name] + bounds[name] + 1e-12, name
        assert bounds[name] < 1e-3 * max(abs(expected[name]), 1e-9), name


def test_population_of_heads__draws_their_value_projections_which_are_those_of_nw_ensemble():
    cell = cell_of("random", population=["heads"], batch_size=16, head_seed=4)
    assert cell.population == ("heads",)
    batches = batches_of(cell, 6)
    overlaps = [overlap(cell.in_batch(number)) for number in range(6)]
    assert not np.allclose(overlaps[0], overlaps[1])
    given = [performance(batch, combine_heads(cell), cell.statistics, each).estimate["mean_covariance"]
             for batch, each in zip(batches, overlaps, strict=True)]  # fmt: skip
    assert measured(cell, batches).estimate["mean_covariance"] == pytest.approx(np.mean(given))
    cell = cell_of("none")
    keys, values = RNG.normal(size=(20, 6)), RNG.normal(size=(20, V))
    points, heads = query_points(cell), key_projections(cell)
    alone = nw_ensemble(keys, values, points, heads, 0.8).head_estimate.values
    mapped = nw_ensemble(keys, values, points, heads, 0.8, value_projections=VALUE, output_projections=OUTPUT)
    np.testing.assert_allclose(mapped.estimate, np.einsum("qhv,hvc->qc", alone, MAPS))


def reached(mse: float = 1.0, mcse: float = 0.1, correlation: float = np.nan) -> Performance:
    return Performance(
        {"mse": np.float64(mse), "correlation": np.float64(correlation)},
        {"mse": np.float64(mcse), "correlation": np.float64(np.nan)},
        {}, {}, 64, 1000, 0,
    )  # fmt: skip


def wanting(**entries) -> Precision:
    return Precision.model_validate({"min_replicates": 100, "max_replicates": 10_000} | entries)


VERDICT = {"stop": "verdict", "relative_mcse": {"mse": 0.05}}


@pytest.mark.parametrize("found, asked, worst", [
    ({}, {"relative_mcse": {"mse": 0.05}}, 2.0),
    ({}, {"absolute_mcse": {"mse": 0.2}}, 0.5),
    ({}, {"relative_mcse": {"mse": 0.05}, "absolute_mcse": {"mse": 0.025}}, 4.0),
    ({}, {"relative_mcse": {"mse": 0.05}, "absolute_mcse": {"mse": 0.1}}, 2.0),
    ({}, {"relative_mcse": {"correlation": 0.01}}, 0.0),  # which is undefined
    ({"mse": 0.0, "mcse": 0.0}, {"relative_mcse": {"mse": 0.1}}, 0.0),
    ({"mse": 0.0}, {"relative_mcse": {"mse": 0.1}}, np.inf),
    ({}, VERDICT, 0.0),  # precision is asked of no cell that waits for a verdict alone
    ({"mse": -1.0}, VERDICT | {"stop": "both"}, 2.0),
])  # fmt: skip
def test_shortfall__is_the_worst_ratio(found, asked, worst):
    short = shortfall(reached(**found), wanting(**asked))
    assert short.ratio == pytest.approx(worst)
    assert worst != 4.0 or short[1:3] == ("mse", 0.1)


def test_batches_needed__cover_the_floor_and_grow_as_the_square_of_the_ratio_and_by_a_tenth_more():
    assert [first_target(wanting(min_replicates=n), 32) for n in (1, 128, 129, 1000)] == [4, 4, 5, 32]
    assert first_target(wanting(min_replicates=32, max_replicates=64), 32) == 2
    assert first_target(wanting(), 32, population=True) == 64  # draws of a population, of which fewer allow no verdict
    precision = wanting(relative_mcse={"mse": 0.05})
    found = {mcse: needed(10, reached(mcse=mcse), precision, 16) for mcse in (0.05, 0.0501, 0.1, 0.5)}
    assert found == {0.05: 10, 0.0501: 12, 0.1: 44, 0.5: 625}
    assert next_target(100, reached(), precision, 16) == 400 and next_target(1, reached(), precision, 16) == 4


def test_stopped_estimates__are_nearly_unbiased_and_cover():
    """Stopping at a wanted MCSE favours samples whose MCSE came out small; the floor keeps the harm little."""
    rng = np.random.default_rng(6)
    precision = wanting(relative_mcse={"mse": 0.05}, min_replicates=1, max_replicates=20_000)
    hits, estimates = 0, []
    for _ in range(300):
        squares = rng.exponential(size=20_000) ** 2
        done, target = 0, first_target(precision, 64)
        while target > done:
            done = target
            blocks = squares[: done * 64].reshape(16 * done, -1).sum(axis=1)[:, None, None]
            moments = empty(16 * done, np.zeros(1), 1, 0)._replace(n_defined=np.full(16 * done, 4), product_sum=blocks)
            result = performance(moments, np.ones(1), ())
            target = next_target(done, result, precision, 64)
        estimates.append(float(result.estimate["mse"]))
        hits += abs(estimates[-1] - 2.0) < 1.97 * float(result.mcse["mse"])
    assert abs(np.mean(estimates) / 2.0 - 1) < 0.01 and 0.91 < hits / 300 < 0.98
