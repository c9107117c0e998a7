"""Control by expansion: expectations against sums over keys, and what it does to a run: no bias, less error."""

import itertools
from functools import partial

import numpy as np
import pytest
from builders import arrays_of, batches_of, estimated, loaded, minimal_cell, varied
from theory_oracle import gaussian_grid, kernel_values, regression_values

from simstudy.attention import expansion
from simstudy.attention.expansion import expectations
from simstudy.attention.members import pairs_of
from simstudy.data.regression import as_waves, evaluate
from simstudy.design.settings.cell import Rows
from simstudy.kernels.left_out import integrate
from simstudy.replicates import moments
from simstudy.replicates.batch import simulate_batch
from simstudy.replicates.moments import EXPANSION, controlled, stack
from simstudy.replicates.population import measured
from simstudy.theory import exact_moments, predicted_measures

CONTROL = {"control": "expansion"}
AUTOREGRESSIVE = {"kind": "gaussian", "structure": "autoregressive", "correlation": 0.6}
WAVE = {"kind": "ridge", "amplitude": 2.0, "direction": [1.0, -0.5], "frequency": 1.3}
FUNCTIONS = {
    "zero": {"kind": "zero"},
    "linear": {"kind": "linear", "coefficients": [1.0, -2.0]},
    "quadratic": {"kind": "quadratic"},
    "ellipse": {"kind": "quadratic", "coefficients": [0.5, -1.0]},
    "ridge": WAVE,
    "additive": {"kind": "additive", "wave": "cos", "frequency": 0.7, "decay": "power", "rate": 0.5},
    "interaction": {"kind": "interaction", "amplitude": -1.5},
}
FLAT = {"kind": "ridge", "wave": "cos", "amplitude": 2.0, "frequency": 1e-9}
SUM = {"kind": "sum", "terms": list(FUNCTIONS.values())}
MEASURES = ("mse", "squared_bias", "ensemble_variance", "mean_variance", "mean_covariance", "correlation")
POINTS = {"kind": "points", "points": [[0.4, -0.3], [-1.1, 0.8]]}
# Correlated keys (i, d) on a grid in two dimensions, and their probabilities.
NODES, CHANCES = gaussian_grid(np.array([[1.0, 0.6], [0.6, 1.0]]), extent=13.0)
cell_of = partial(minimal_cell, arrangement="haar", query_projections="haar", queries=POINTS, regression=SUM)


@pytest.mark.parametrize("regression", [*FUNCTIONS.values(), SUM])
def test_polynomial_and_waves__are_the_regression_function(regression):
    m, x = minimal_cell(regression=regression).data.regression, np.random.default_rng(4).standard_normal((2, 50))
    gradient, curvature, amplitudes, waves, phases = as_waves(m, 2)
    value = gradient @ x + ((curvature @ x) * x).sum(axis=0) + amplitudes @ np.cos(waves @ x + phases[:, None])
    np.testing.assert_allclose(value, evaluate(m, x), rtol=1e-12, atol=1e-12)


def kernels(cell, points):
    """K of each head and query at points (i, d): (q, h, i)."""
    *heads, queries = arrays_of(cell)
    return np.array([kernel_values(cell, *heads, query, points) for query in queries])


def on_grid(cell, known):
    """Means of functions of a key, 0 if the expectations are right."""
    k, m = kernels(cell, NODES), regression_values(cell.data.regression, NODES)
    rows, columns = pairs_of(cell.heads.n_heads)
    gaps, both, of = m - known.mean[..., None], k[:, rows] * k[:, columns], lambda logs: np.exp(logs)[..., None]
    alone, pairs = k / of(known.log_mass), both / of(known.log_product)
    masses = [alone, k**8 / of(known.log_eighth), pairs, both**2 / of(known.log_fourth)]
    masses += [both * k[:, rows] / of(known.log_first), both * k[:, columns] / of(known.log_second)]
    tilted = pairs[:, rows == columns] * (gaps - known.tilt[..., None])
    of_m = alone * gaps, tilted, pairs * (gaps[:, rows] * gaps[:, columns] - known.spread[..., None])
    return np.concatenate([*(each - 1 for each in masses), *of_m], axis=1).reshape(-1, len(m)) @ CHANCES


@pytest.mark.parametrize("name", FUNCTIONS)
def test_expectations__are_sums_over_a_grid(name):
    settings = {"n_features": 2, "n_heads": 3, "head_dim": 1, "key_distribution": AUTOREGRESSIVE}
    settings |= {"regression": FUNCTIONS[name], "bandwidth": 0.9}
    cell = cell_of(**settings)
    np.testing.assert_allclose(on_grid(cell, expectations(cell)), 0.0, atol=1e-10)
    # Negative control: keys that are not correlated.
    assert np.abs(on_grid(cell, expectations(cell_of(**settings | {"key_distribution": "gaussian"})))).max() > 1e-3


@pytest.mark.parametrize(("n", "error"), [(30, 1e-6), (3000, 1e-8), (30_000, 3e-10)])  # as replicates scatter
@pytest.mark.parametrize("name", FUNCTIONS)
def test_averages_over_a_key_that_is_left_out__are_sums_over_a_grid(name, n, error, monkeypatch):
    monkeypatch.setattr(expansion, "_PIECE", n)  # of the fewest keys, nodes of one query each
    settings = {"n_features": 2, "n_heads": 3, "head_dim": 1, "logits": "dot_product", "bandwidth": 1.2}
    settings |= {"key_distribution": AUTOREGRESSIVE, "regression": FUNCTIONS[name], "n_keys": n}
    cell, rng = cell_of(**settings), np.random.default_rng(4)
    known, (rows, columns) = expansion.known_of(cell), pairs_of(3)
    sums, linear = n / 3 * 10.0 ** rng.uniform(0, 1, (4, 2, 3)), rng.standard_normal((4, 2, 3))
    k = kernels(cell, NODES) / np.exp(known.log_mass)[..., None]
    u = regression_values(cell.data.regression, NODES) - known.mean[..., None]
    share = k / (sums[..., None] + k)
    of_other = share[:, :, rows] * u[:, rows] / (sums[..., None] + k)[:, :, columns] * linear[:, :, columns, None]
    of_one = share[:, :, columns] * u[:, columns] / (sums[..., None] + k)[:, :, rows] * linear[:, :, rows, None]
    both = share[:, :, rows] * share[:, :, columns]
    signal = known.signal * ((both * u[:, rows] * u[:, columns] + 0.5 * (of_one + of_other)) @ CHANCES)
    expected = known.signal * (share * u @ CHANCES), signal + known.noise * cell.data.noise_sd**2 * (both @ CHANCES)
    no_terms = np.zeros_like(known.errors), np.zeros_like(known.products)
    for found, right in zip(integrate(sums, linear, n, known.nodes, *no_terms), expected, strict=True):
        np.testing.assert_allclose(found, n * right, rtol=error, atol=0.1 * error)
    assert known.signal.min() > 0.9 and known.noise.min() > 0.1


def gaps_from(exact, cell, batches):
    """|z| of the means of errors and products, and of all measures that theory predicts."""
    (blocks, _), found = controlled(stack(batches)), measured(cell, batches)
    assert exact.reason == "" and not blocks.failed.size
    rows, columns = pairs_of(cell.heads.n_heads)
    second = exact.covariance + exact.bias[..., None] * exact.bias[..., None, :]
    z = []
    for sums, expected in ((blocks.error_sum, exact.bias), (blocks.product_sum, second[:, rows, columns])):
        means = sums / blocks.n_defined[:, None, None]
        z.append((means.mean(axis=0) - expected) / means.std(axis=0, ddof=1) * np.sqrt(len(means)))
    predicted = predicted_measures(exact, np.array(cell.weights))
    compared = {name for name in predicted if name in found.mcse and np.ndim(found.estimate[name]) == 0}
    assert {"squared_bias", "mean_variance", "mean_covariance", "ensemble_variance", "mse"} <= compared
    z.append([(found.estimate[name] - predicted[name]) / found.mcse[name] for name in sorted(compared)])
    return np.abs(np.concatenate([np.ravel(each) for each in z]))


CELLS = {
    "distance": {"n_keys": 12, "bandwidth": 0.9, "query_projections": "same"},
    "uneven noise": {"n_keys": 12, "bandwidth": 0.9, "noise": {"kind": "heteroscedastic"}},
    "opposite, correlated": {"n_keys": 20, "query_projections": "opposite", "key_distribution": AUTOREGRESSIVE},
    "dot product": {"n_keys": 30, "logits": "dot_product", "bandwidth": 1.2},
    "noise above all": {
        "n_keys": 60, "bandwidth": 1.2, "query_projections": "same", "regression": {"kind": "ridge", "amplitude": 0.01},
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CELLS)
def test_run__is_that_of_the_exact_theory_or_shows_that_it_is_not(name, monkeypatch):
    settings = {"n_features": 3, "head_dim": 1, "noise_sd": 0.9, "batch_size": 4096} | CELLS[name]
    cell = cell_of(**settings, **CONTROL)
    exact, batches = exact_moments(cell, *arrays_of(cell)), batches_of(cell, 4)
    found, plain = measured(cell, batches), estimated(cell_of(**settings), 4)
    assert found.estimator == EXPANSION and not plain.n_failed
    assert gaps_from(exact, cell, batches).max() < 4.5
    assert all(plain.mcse[measure] > 1.5 * found.mcse[measure] for measure in MEASURES)
    # Negative controls: a centre that is off, and terms of products whose expectation is left out.
    right = expansion.known_of(cell)
    wrongs = [{"mean": right.mean + 0.1}, {"product_mean": 0 * right.product_mean}, {"bias": np.nan * right.bias}]
    for changes in wrongs:
        monkeypatch.setattr(expansion, "known_of", lambda _, changes=changes: right._replace(**changes))
        batches = batches_of(cell, 4)
        if "bias" not in changes:
            with monkeypatch.context() as unaudited:
                unaudited.setattr(moments, "FARTHEST", np.inf)
                assert gaps_from(exact, cell, batches).max() > 8
        # With noise above all, the mean of second order is less than the error of terms of first order, and with dot
        # products less than that of plain replicates.
        if name not in ("noise above all", "dot product") or "product_mean" not in changes:
            audited = measured(cell, batches)
            assert "standard errors, not to 0" in audited.estimator
            assert audited.estimate["mse"] == plain.estimate["mse"]


@pytest.mark.parametrize("least, settings", [
    (1000, {"regression": "zero"}),
    (5, {"combination": [2.0, -1.0, 0.5, -0.5], "regression": "quadratic"}),
    (1.5, {"n_keys": 60, "bandwidth": 0.5, "noise_sd": 1.0}),
    (100, {"logits": "dot_product"}),
])  # fmt: skip
def test_expansion__saves_replicates(least, settings):
    base = {"n_keys": 512, "n_features": 8, "n_heads": 4, "arrangement": "rotated", "angle": 30.0, "bandwidth": 1.0}
    base |= {"query_projections": "same", "queries": {"kind": "gaussian", "count": 8, "scale": 0.8}, "batch_size": 512}
    plain, found = (estimated(cell_of(**base | settings, control=each), 4) for each in ("none", "expansion"))
    assert found.estimator == EXPANSION and not plain.n_failed + found.n_failed
    assert min((plain.mcse[name] / found.mcse[name]) ** 2 for name in MEASURES if plain.mcse[name]) > least


@pytest.mark.parametrize("settings, why", [
    ({"n_keys": 20, "logits": "dot_product"}, "few keys carry weight, where a control variate would have heavy"),
    ({"n_keys": 8, "bandwidth": 0.25}, "few keys carry weight"),
    ({"n_keys": 1}, "few keys carry weight"),
    ({"n_keys": 512, "regression": "zero", "noise": {"kind": "heteroscedastic"}}, "noise of uneven"),
    ({"n_keys": 512, "regression": "zero", "bandwidth": 1e9}, "replicates do not differ"),
    ({"n_keys": 512, "arrangement": "aligned", "bandwidth": 200.0,
      "queries": {"kind": "points", "points": [[40000.0]]}}, "so small or large that rounding decides"),
])  # fmt: skip
def test_cells_that_stay_plain__say_why(settings, why):
    cell = cell_of(**{"bandwidth": 1.0, "regression": "quadratic", "query_projections": "same"} | settings, **CONTROL)
    batch = simulate_batch([cell], 0)[0]
    assert not batch.control_sum.any()
    estimator = measured(cell, [batch] * 4).estimator
    assert estimator.startswith("plain: ") and why in estimator


@pytest.mark.parametrize("farthest", [3.9, 4.1])
def test_control__whose_mean_misses_0_by_over_four_standard_errors_is_refused(farthest):
    spread = np.random.default_rng(3).standard_normal(64)
    spread = (spread - spread.mean()) / np.linalg.norm(spread - spread.mean())
    sums = np.repeat((spread + farthest / 64)[:, None, None], 2, axis=2)
    blocks = moments.empty(64, np.ones(1), 1, 0, controlled=True)._replace(n_defined=np.ones(64, int), control_sum=sums)
    assert (controlled(blocks)[1] == EXPANSION) == (farthest < 4)


@pytest.mark.parametrize("settings", [{"regression": "zero", "bandwidth": 1e7}, {"regression": FLAT}])
def test_rounding_of_what_does_not_vary__is_no_wrong_mean(settings, monkeypatch):
    cell = cell_of(n_keys=512, **settings, **CONTROL)
    found = estimated(cell, 4)
    assert found.estimator == EXPANSION and not found.n_failed
    right = expansion.known_of(cell)
    monkeypatch.setattr(expansion, "known_of", lambda _: right._replace(mean=right.mean + 1e-12))
    assert "standard errors, not to 0" in estimated(cell, 4).estimator


@pytest.mark.parametrize("logits", ["distance", "dot_product"])
@pytest.mark.parametrize("point", [[30.0, -40.0], [1e9, -1e9]])
@pytest.mark.parametrize("bandwidth", [1e-9, 0.05, 1e9])
def test_far_queries__leave_every_replicate_defined(bandwidth, point, logits):
    for arrangement in ("aligned", "orthogonal"):
        settings = {"arrangement": arrangement, "bandwidth": bandwidth, "logits": logits, "regression": WAVE}
        settings |= {"queries": {"kind": "points", "points": [[0.0], point]}, "query_projections": "same"}
        found, plain = (estimated(cell_of(**settings, control=each)) for each in ("expansion", "none"))
        assert np.isfinite(found.estimate["mse"]) and not plain.n_failed + found.n_failed
        assert abs(found.estimate["mse"] - plain.estimate["mse"]) <= 6 * plain.mcse["mse"] + 1e-9


def mean_of_control(cell, rows):
    sets = np.array(list(itertools.product(range(len(rows.keys)), repeat=cell.data.n_keys)))
    chosen = np.moveaxis(kernels(cell, rows.keys)[..., sets], 2, 0)
    mass = chosen.sum(axis=-1)
    weights = chosen / mass[..., None]
    gram = cell.data.noise_sd**2 * weights @ weights.swapaxes(-1, -2)
    means = (weights * rows.values[sets][:, None, None]).sum(axis=-1)
    return expansion.expansion(cell, means, gram, np.log(mass), None).mean(axis=0)


def test_control_of_rows__averages_to_0_over_all_data_sets():
    rng, keys = np.random.default_rng(2), {"kind": "file", "path": "rows.csv", "response": "y", "held_out": 2}
    rows, others = (Rows(t[:5, :4], t[:5, 4], t[:5, 5], t[5:, :4], t[5:, 4]) for t in rng.standard_normal((2, 7, 6)))
    settings = {"n_features": 4, "n_keys": 3, "regression": {"kind": "fitted"}}
    settings |= {"queries": {"kind": "held_out", "count": 2}}
    cell = cell_of(head_dim=1, bandwidth=2.0, key_distribution=keys, **settings | CONTROL)
    cell = cell.model_copy(update={"file_rows": rows})
    np.testing.assert_allclose(mean_of_control(cell, rows), 0.0, atol=1e-13)
    assert np.abs(mean_of_control(cell, others)).max() > 1e-3


@pytest.mark.parametrize("treatments, stated, expanded", [
    (["integrated"], {"population": ("queries",)}, [False] * 6),
    (["integrated"], {"population": ("queries",), **CONTROL}, [True] * 6),
    (["integrated"], {}, [True] * 6),
    (["integrated"], {"control": "none"}, [False] * 6),
    (["integrated", "drawn"], {}, [False] * 12),
    (["integrated", "drawn"], CONTROL, [True] * 6 + [False] * 6),
])  # fmt: skip
def test_grids__are_expanded_as_a_whole_unless_the_design_says_more(treatments, stated, expanded, tmp_path):
    text = varied(queries={"kind": "gaussian", "count": 2}, noise_treatment=treatments, **stated)
    assert [planned.cell.controlled for planned in loaded(tmp_path, text).cells] == expanded


@pytest.mark.parametrize("settings, why", [
    ({"noise_treatment": "drawn"}, "noise is drawn"),
    ({"noise_treatment": "drawn", "learner": "random_forest"}, "not given heads"),
    ({"normaliser": "sparsemax"}, "not softmax attention"),
    ({"transformation": {"kind": "merge", "stride": 2}}, "not softmax attention"),
    ({"combination": "product"}, "merged"),
    ({"key_scale": "normalised"}, "not softmax attention"),
    ({"mask": "causal"}, "different keys"),
    ({"arrangement": "haar_redrawn"}, "redrawn"),
    ({"key_distribution": {"kind": "student_t", "df": 5}}, "means are known of Gaussian keys"),
    ({"key_distribution": {"kind": "autoregressive", "coefficient": 0.5}}, "depend on one another"),
    ({"n_features": 2**17, "n_keys": 2}, "features take too long"),
])  # fmt: skip
def test_cells_without_known_expectations__stay_plain_and_say_why(settings, why):
    cell = minimal_cell(**CONTROL | ({"regression": "linear"} | settings))
    assert not cell.controlled and why in cell.without_control
    assert minimal_cell(regression=SUM, **CONTROL).controlled
