"""Both theories beside Monte Carlo in results of small studies, verdicts, and theory as a control over query points."""

import tomllib
from functools import partial

import numpy as np
import pytest
import scipy
from builders import DESIGN, arrays_of, edited, estimated, loaded, minimal_cell, planned, run, varied, watched

from simstudy import details
from simstudy.data import training
from simstudy.design.load import load_design
from simstudy.design.measures import MEASURES, THEORIES
from simstudy.replicates.performance import Performance
from simstudy.theory import damped_leading_order
from simstudy.verdicts import predictions, query_control
from simstudy.verdicts.estimates import estimates_from
from simstudy.verdicts.predictions import predict
from simstudy.verdicts.query_control import CONTROLLED, N_RANDOMISATIONS, QueryControl, _slopes, applies, controlled_by

N_DRAWS = 24
random_points = partial(
    minimal_cell, regression={"kind": "ridge"}, batch_size=16, population=["queries"],
    queries={"kind": "gaussian", "count": 4},
)  # fmt: skip


def few_keys(**settings):
    """Few keys, heads of dimension 1, and a second grid without exact theory whose heads are redrawn."""
    settings = {"relative_mcse": {"ensemble_variance": 0.006}, "max_replicates": 16384, "hue": None} | settings
    points = {"kind": "points", "points": [[0.4, -0.3], [1.0, 0.5]]}
    text = varied(head_dim=1, batch_size=256, queries=points, n_keys=[3, 60], bandwidth=[0.5], **settings)
    tables = tomllib.loads(text)
    tables["grids"]["angles"] |= {"exact": True, "by_query": True}
    tables["grids"]["other"] = {"settings": {"arrangement": "haar_redrawn"}}
    claim = {"statement": "Exact moments hold with few keys.", "kind": "agrees_with_theory", "source": "exact"}
    tables["claims"]["exact"] = claim | {"grid": "angles", "measure": "ensemble_variance", "margin": 0.15}
    return load_design(tables)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return run(few_keys(), output=tmp_path_factory.mktemp("few-keys"), executor="serial")


def test_optimal_weights__are_the_best_of_their_class_by_simulation_and_by_theory():
    target, points = {"kind": "linear", "coefficients": [0.0, 0.4, 2.0]}, [[1.0, 1.0, 1.0], [-1.0, 0.5, 1.0]]
    settings = {"n_heads": 3, "head_dim": 1, "arrangement": "orthogonal", "n_features": 3, "regression": target}
    settings |= {"n_keys": 200, "noise_sd": 0.5, "queries": {"kind": "points", "points": points}, "batch_size": 256}
    weights, least = {}, [0.0]
    for within in ("unconstrained", "affine", "simplex", "front_greater"):
        cell = minimal_cell(combination={"kind": "optimal", "within": within}, **settings)
        (theory,), found = predict([planned(cell)]), estimated(cell, 4)
        mse, weights[within] = found.estimate["mse"], found.estimate["combination_weight"]
        assert abs(mse - theory["exact"].measures["mse"]) < 4 * found.mcse["mse"] < 0.15 * mse
        assert theory["leading"].measures["mse"] == pytest.approx(theory["exact"].measures["mse"], rel=0.01)
        least.append(mse)
    assert (np.diff(least) > 0.05 * np.array(least[1:])).all()  # each class lies in the one before
    learned, affine, simplex, falling = weights.values()
    assert learned.sum() > 1.01 and affine.min() < -0.01 and min(simplex) >= -0.01 and (np.diff(falling) < 0.01).all()
    assert [affine.sum(), simplex.sum(), falling.sum()] == pytest.approx([1.0] * 3, abs=0.01)


def test_exact_theory__stands_beside_leading_order_and_a_grid_beyond_theory_says_why(results):
    inside = results.isel(cell=results.grid.values == "angles")
    exact, leading = (inside.sel(source=source) for source in THEORIES)
    few = inside.n_keys.values == 3
    assert (exact.inapplicable == "").all() and np.isfinite(exact.mse).all()
    assert np.isnan(leading.mse[few]).all() and np.isfinite(leading.mse[~few]).all()
    assert inside.sel(source="leading").inapplicable[few].str.contains("effective sample size").all()
    close = exact.ensemble_variance[~few] / leading.ensemble_variance[~few]
    assert (abs(close - 1) < 0.05).all() and (close != 1).all()
    other = results.isel(cell=results.grid.values == "other")
    assert all("redrawn" in reason for reason in other.inapplicable.sel(source=list(THEORIES)).values.flat)
    assert np.isnan(other.mse.sel(source="exact")).all() and np.isnan(other.mse_numerical_error).all()


def test_exact_theory__agrees_with_monte_carlo_in_its_error_and_has_a_far_smaller_one_that_is_known(results):
    inside = results.isel(cell=results.grid.values == "angles")
    for name in MEASURES:
        error = np.hypot(inside[f"{name}_mcse"], inside[f"{name}_numerical_error"])
        # Aligned heads have a correlation of 1 in every replicate: rounding is all that is left.
        z = (inside[name].sel(source="empirical") - inside[name].sel(source="exact")) / (error + 1e-9)
        assert (abs(z) < 4.5).all(), f"{name}: {z.values}"
    control = inside.mse.sel(source="empirical") - 1.3 * inside.mse.sel(source="exact")
    assert (abs(control / inside.mse_mcse) > 4.5).all()
    for name in ("mse", "ensemble_variance", "squared_bias"):
        numerical = inside[f"{name}_numerical_error"]
        assert (numerical > 0).all() and (numerical < 1e-3 * inside[f"{name}_mcse"]).all()


def test_measures_by_query__average_to_those_of_the_cell(results):
    for cell in np.flatnonzero(results.grid.values == "angles"):
        for name in {*MEASURES} - {"effective_heads"}:
            by_query = details(results, int(cell))[f"{name}_by_query"]
            assert by_query.sizes["query"] == 2 and (by_query[0] != by_query[1] or name != "mse")
            averaged = results[name].sel(source="empirical")[cell]
            np.testing.assert_allclose(by_query.mean("query"), averaged, rtol=1e-9, err_msg=name)
    other = details(results, {"grid": "other", "n_keys": 40})
    assert "query" not in other.dims and "query_point" not in other


def test_theory__of_cells_that_differ_in_weights_or_that_a_claim_asked_for_is_computed_once(tmp_path, monkeypatch):
    planned = loaded(tmp_path, varied(combination=["uniform", "sum"], hue=None)).cells
    alone = [next(predict([each])) for each in planned]
    calls = watched(monkeypatch, predictions.theory, "leading_order")
    together = list(predict(planned))
    assert len(planned) == 12 and len(calls) == 6
    errors = [[each["leading"].measures["mse"] for each in theories] for theories in (together, alone)]
    np.testing.assert_array_equal(*errors)
    assert len(set(errors[0])) == 12
    calls = watched(monkeypatch, predictions.theory, "exact_moments")
    design = few_keys(stop="both", max_replicates=512)
    run(design, output=tmp_path, executor="serial")
    assert len(calls) == sum(planned.exact for planned in design.cells)


def test_pairs_in_the_wrong_order__stand_in_the_results_for_the_figure_that_shows_them(tmp_path):
    figure = '[figures.order]\ntitle = "t"\nkind = "ordering"\ngrid = "angles"\ny = "mse"\nhue = "bandwidth"\n'
    design = loaded(tmp_path, edited(DESIGN, "[profiles.quick]", figure + "[profiles.quick]"))
    results = run(design, output=tmp_path, executor="serial")
    assert results.wrong_pair_share.dims == ("figure", "cell", "index") and results.figure.values.tolist() == ["order"]
    for bandwidth in (0.5, 1.0):
        cells = results.isel(cell=results.bandwidth.values == bandwidth)
        mse = cells.mse.sel(source="empirical").values
        # Chordal diversity is sin² of the angle, so it has the order of the cells.
        expected = np.mean([mse[j] > mse[i] for i, j in ((0, 1), (0, 2), (1, 2))])
        np.testing.assert_allclose(cells.wrong_pair_share.sel(figure="order", index="chordal"), expected)
    assert (results.wrong_pair_share_mcse.sel(index="chordal") >= 0).all() and "optimum_share" not in results


@pytest.mark.parametrize("lost", [False, True], ids=["some", "all"])
def test_failure_rate__is_the_share_of_all_replicates_even_if_none_is_defined(monkeypatch, tmp_path, lost):
    if lost:
        drawn = training.draw_keys
        monkeypatch.setattr(training, "draw_keys", lambda *asked: np.nan * drawn(*asked))
    design = loaded(tmp_path, varied(normaliser={"kind": "compact", "power": 1}))
    results = run(design, output=tmp_path, executor="serial")
    share = results.n_failed / (results.n_failed + results.n_replicates)
    np.testing.assert_array_equal(results.failure_rate.sel(source="empirical"), share)
    assert (share == 1).all() if lost else 0 < share.max() < 1


@pytest.mark.parametrize(("logits", "widening"), [("sum", 1.0), ("mean", 2.0**0.5)])
def test_product__has_measures_of_one_estimate_and_no_theory_under_another_normaliser(logits, widening):
    base = {"n_keys": 400, "n_features": 4, "queries": {"kind": "points", "points": [[0.3, -0.5, 0.8], [-1.1]]}}
    base |= {"regression": {"kind": "ridge", "frequency": 1.3, "direction": [1.0, 0.6]}}
    product = minimal_cell(**base, combination={"kind": "product", "logits": logits})
    joint = minimal_cell(**base, n_heads=1, head_dim=4, bandwidth=widening * product.bandwidth)
    other = minimal_cell(combination="product", normaliser={"kind": "compact", "power": 1})
    found, single, refused = predict([*map(planned, (product, joint, other))])
    assert "softmax" in refused["exact"].reason and not refused["exact"].measures
    for source in THEORIES:
        for name in ("mse", "squared_bias", "ensemble_variance"):
            value = found[source].measures[name]
            assert value == pytest.approx(single[source].measures[name], rel=1e-6) and np.isfinite(value)


def gain(plain, controlled):
    return {name: (plain.mcse[name] / controlled.mcse[name]) ** 2 for name in CONTROLLED}


def test_controlled_estimates__agree_with_many_draws_and_vary_less():
    cell = random_points()
    few, many = estimated(cell, N_DRAWS), estimated(random_points(seed=8), 400)
    controlled = QueryControl()(cell, few)
    for name in CONTROLLED:
        apart = controlled.estimate[name] - many.estimate[name]
        assert abs(apart) < 4 * np.hypot(controlled.mcse[name], many.mcse[name]), name
        parts = [np.linalg.norm(part[name]) for part in (controlled.contribution, controlled.randomisation)]
        assert controlled.mcse[name] == pytest.approx(np.hypot(*parts)) and parts[1] < query_control.COUNTS * parts[0]
    assert gain(few, controlled)["mse"] > 5
    combine = estimates_from([{}] * 2, [(1, 16)] * 2, [controlled] * 2, "mse").combine
    assert combine({0: 1.0}).mcse == pytest.approx(controlled.mcse["mse"]) and combine({0: 1.0, 1: -1.0}).mcse == 0.0
    # Functions of averages are left as they are.
    assert controlled.estimate["effective_heads"] == few.estimate["effective_heads"]
    looked = QueryControl()
    looked(cell, estimated(cell, 10))  # further looks have the bits of a single one
    assert all(looked(cell, few).mcse[name] == controlled.mcse[name] for name in CONTROLLED)


@pytest.mark.parametrize(("bandwidth", "scale"), [(0.8, 1.0), (0.5, 3.0)])
def test_theory_without_a_mean__is_cut_to_what_estimates_can_be(bandwidth, scale):
    """With dot products the expansion grows like exp(|q|²) and faster: averages over queries would not exist."""
    queries = {"kind": "gaussian", "count": 4, "scale": scale}
    cell = random_points(logits="dot_product", bandwidth=bandwidth, queries=queries)
    few = estimated(cell, N_DRAWS)
    controlled = QueryControl()(cell, few)
    for name in CONTROLLED:
        assert abs(controlled.estimate[name] - few.estimate[name]) < 4 * few.mcse[name], name
        assert 0 < controlled.mcse[name] < 1.5 * few.mcse[name], name


def test_slopes__leave_each_pair_out():
    rng = np.random.default_rng(1)
    x = rng.normal(size=9)
    y = 2 * x + rng.normal(size=9)
    for variance in (0.0, 0.05):
        naive = []
        for one, other in ((np.delete(x, k), np.delete(y, k)) for k in range(9)):
            gaps = one - one.mean()
            naive.append(gaps @ other / (gaps @ gaps + 9 * 8 * variance))
        np.testing.assert_allclose(_slopes(y, x, variance), naive, rtol=1e-10)
    assert not _slopes(y, np.full(9, 0.3), 0.0).any()


def test_theory_whose_mean_is_hardly_known__does_no_harm(monkeypatch):
    """With a full slope the error of this mean would be that of the measure, however many replicates there are."""
    monkeypatch.setattr(query_control, "LOG2_FEWEST", 1)
    monkeypatch.setattr(query_control, "LOG2_MOST", 1)
    cell = random_points()
    whole = estimated(cell, 96)
    found = gain(whole, QueryControl()(cell, whole))
    assert min(found.values()) > 0.95 and found["mse"] > 1.05


def test_error_of_the_expectation__is_how_estimates_move_with_what_is_taken_for_it():
    rng = np.random.default_rng(6)
    theory = rng.normal(size=64)
    share = (theory + 0.5 * rng.normal(size=64)) / 64
    share -= share.mean()
    names = ("estimate", "mcse", "contribution", "remainder", "widening")
    values = (1.0, np.linalg.norm(share), share, 0.0, 1.0)
    plain = Performance(**{field: dict.fromkeys(CONTROLLED, each) for field, each in zip(names, values, strict=True)},
                        n_blocks=64, n_replicates=64, n_failed=0)  # fmt: skip
    drawn = dict.fromkeys(CONTROLLED, theory)
    means = (0.2 * rng.normal(size=N_RANDOMISATIONS) for _ in range(400))
    found = [controlled_by(plain, drawn, dict.fromkeys(CONTROLLED, each)) for each in means]
    told = np.sqrt(np.mean([(each.randomisation["mse"] ** 2).sum() for each in found]))
    assert np.std([each.estimate["mse"] for each in found]) / told == pytest.approx(1.0, abs=0.12)


@pytest.mark.parametrize("settings", [
    {"population": []},
    {"regression": {"kind": "zero"}},
    {"arrangement": "haar", "population": ["queries", "heads"]},
    {"combination": {"kind": "optimal"}},
    {"key_distribution": {"kind": "sphere"}},
    {"normaliser": {"kind": "sparsemax"}},
])  # fmt: skip
def test_other_cells__are_left_as_they_are(settings):
    cell = random_points(**settings)
    performance = estimated(cell, 4)
    assert not applies(cell) and QueryControl()(cell, performance) is performance


def test_cells_of_one_grid__are_controlled_together_or_not_at_all():
    additive = {"regression": {"kind": "additive"}, "n_features": 16, "head_dim": 1, "arrangement": "orthogonal"}
    one, many = (random_points(**additive, n_heads=n_heads) for n_heads in (1, 16))
    performance = estimated(one, 4)
    assert QueryControl()(one, performance) is not performance
    assert QueryControl([planned(one), planned(many)])(one, performance) is performance
    assert QueryControl([planned(one), planned(many, "other")])(one, performance) is not performance


def test_theory__of_many_features_is_evaluated_in_pieces_and_far_from_all_keys_damped(monkeypatch):
    cell, points = random_points(n_keys=60), np.random.default_rng(0).normal(size=(50, 6))
    whole = query_control._theory(cell, points)
    monkeypatch.setattr(query_control, "NUMBERS", 7 * 6 * cell.heads.n_heads**2)
    for name, values in query_control._theory(cell, points).items():
        np.testing.assert_allclose(values, whole[name], rtol=1e-12)
    few, many = (query_control._log2_most(random_points(n_features=d)) for d in (6, 4096))
    assert few == query_control.LOG2_MOST > many
    # Means of outcomes of amplitude 1 differ by 2 at most; undamped, the term of order 1/n is 148.
    cell = random_points(n_keys=100, n_heads=4, n_features=8, bandwidth=0.3, arrangement="orthogonal")
    theory = damped_leading_order(cell, *arrays_of(cell)[:2], np.random.default_rng(0).normal(scale=1.5, size=(500, 8)))
    assert 0.9 < np.nanmax(np.abs(theory.bias)) < 2.0


@pytest.mark.parametrize("settings", [
    {"bandwidth": 0.3},
    {"logits": "dot_product", "regression": {"kind": "additive"}},
    {"n_heads": 2, "head_dim": 4, "n_keys": 256, "logits": "dot_product", "bandwidth": "attention"},
])  # fmt: skip
def test_expectation_of_theory__is_as_wrong_as_its_error_says_and_less_so_beside_that_of_another_cell(settings):
    wide = {"n_keys": 100, "n_heads": 4, "n_features": 8, "arrangement": "orthogonal", "queries": {"kind": "gaussian"}}
    wide |= settings
    cells = [random_points(**wide | {"n_keys": wide["n_keys"] + more}) for more in (0, 20)]
    sobol = [scipy.stats.qmc.Sobol(8, rng=np.random.default_rng(seed)).random(2**13) for seed in range(100, 108)]
    known = [query_control._theory(cell, scipy.special.ndtri(np.concatenate(sobol))) for cell in cells]
    for log2 in (query_control.LOG2_FEWEST, query_control.LOG2_FEWEST + 1):
        found = [query_control._expected(cell, log2) for cell in cells]
        for name in CONTROLLED:
            values = np.array([found[0][name], found[0][name] - found[1][name]])
            truths = known[0][name].mean(), known[0][name].mean() - known[1][name].mean()
            errors = values.std(axis=1, ddof=1) / np.sqrt(N_RANDOMISATIONS)
            assert (abs(values.mean(axis=1) - truths) < 3.5 * errors + 1e-15).all() and errors[1] < errors[0], name
