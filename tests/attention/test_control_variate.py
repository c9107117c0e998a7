"""Control variates: their expectations against sums over keys, and what they do to a run: no bias, less error."""

from __future__ import annotations

import numpy as np
import pytest
from builders import DESIGN, edited, minimal_cell, write_design

from simstudy.attention import control_variate
from simstudy.attention.combinations import combine_heads
from simstudy.attention.control_variate import expectations
from simstudy.attention.members import pairs_of
from simstudy.data.heads import key_projections, query_points, query_projections
from simstudy.data.regression import evaluate
from simstudy.data.training import draw_keys
from simstudy.design.feasibility import impossibilities
from simstudy.design.load import load_design
from simstudy.errors import UserError
from simstudy.replicates.batch import simulate_batch
from simstudy.replicates.moments import stack
from simstudy.replicates.performance import performance
from simstudy.theory import exact_moments, predicted_measures

LOGITS = pytest.mark.parametrize("logits", ["distance", "dot_product"])
CONTROL = {"control_variate": "linear_part"}
AUTOREGRESSIVE = {"kind": "gaussian", "structure": "autoregressive", "correlation": 0.6}
EQUICORRELATED = {"kind": "gaussian", "structure": "equicorrelated", "correlation": 0.3}
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
SUM = {"kind": "sum", "terms": list(FUNCTIONS.values())}
POINTS = {"kind": "points", "points": [[0.4, -0.3], [-1.1, 0.8]]}


def cell_of(**settings):
    base = {"arrangement": "haar", "query_projections": "haar", "queries": POINTS, "regression": SUM}
    return minimal_cell(**base | settings)


def kernels(cell, points):
    """K of each head and query at points (d, i): (q, h, i)."""
    images = np.einsum("qj,hjk->qhk", query_points(cell), query_projections(cell))[..., None]
    projected = np.einsum("hjk,ji->hki", key_projections(cell), points)
    if cell.estimator.logits == "distance":
        return np.exp(-((images - projected) ** 2).sum(axis=2) / (2 * cell.bandwidth**2))
    return np.exp((images * projected).sum(axis=2) / cell.bandwidth**2)


def standardised(cell, known, points):
    """Functions of a key (function, i) of expectation 0 if the expectations are right."""
    k, m = kernels(cell, points), evaluate(cell.data.regression, points)
    rows, columns = pairs_of(cell.heads.n_heads)
    gaps, both = m - known.mean[..., None], k[:, rows] * k[:, columns]
    both /= np.exp(known.log_product)[..., None]
    alone = k / np.exp(known.log_mass)[..., None]
    fourth = k**4 / np.exp(known.log_fourth)[..., None]
    squares = both * (gaps[:, rows] * gaps[:, columns] - known.spread[..., None])
    return np.concatenate([alone - 1, fourth - 1, alone * gaps, both - 1, squares], axis=1).reshape(-1, len(m))


# ---------------------------------------------------------------- expectations


def on_grid(cell, known):
    """Expectations of the standardised functions by a sum over a grid, in two dimensions."""
    axis = np.arange(-9.0, 9.0, 0.1)
    nodes = np.array(np.meshgrid(axis, axis)).reshape(2, -1)
    root = np.linalg.cholesky(np.array([[1.0, 0.6], [0.6, 1.0]]))
    weights = np.exp(-0.5 * (nodes**2).sum(axis=0))
    return standardised(cell, known, root @ nodes) @ (weights / weights.sum())


@LOGITS
@pytest.mark.parametrize("name", FUNCTIONS)
def test_expectations__are_sums_over_a_grid(name, logits):
    settings = {"n_features": 2, "n_heads": 3, "head_dim": 1, "logits": logits, "key_distribution": AUTOREGRESSIVE}
    cell = cell_of(regression=FUNCTIONS[name], bandwidth=0.9 if logits == "distance" else 1.4, **settings)
    np.testing.assert_allclose(on_grid(cell, expectations(cell)), 0.0, atol=1e-10)
    # Negative control: keys that are not correlated.
    wrong = cell_of(regression=FUNCTIONS[name], bandwidth=cell.bandwidth, **settings | {"key_distribution": "gaussian"})
    assert np.abs(on_grid(cell, expectations(wrong))).max() > 1e-3


@LOGITS
@pytest.mark.parametrize(
    "keys",
    [
        pytest.param("gaussian", id="plain", marks=pytest.mark.rare),
        pytest.param(AUTOREGRESSIVE, id="chain"),
        pytest.param(EQUICORRELATED, id="common", marks=pytest.mark.rare),
    ],
)
def test_expectations__are_those_of_the_keys_that_are_drawn(keys, logits):
    """In units of Monte Carlo error; controls: a bandwidth 3 % off, and fewer or other terms of m."""
    settings = {"n_keys": 200_000, "n_features": 5, "n_heads": 3, "logits": logits, "key_distribution": keys}
    bandwidth = 1.2 if logits == "distance" else 1.9
    cell = cell_of(bandwidth=bandwidth, **settings)
    x = draw_keys(cell, 0, 1)[0]

    def z_scores(law):
        values = standardised(cell, expectations(law), x)
        return np.abs(values.mean(axis=1) / values.std(axis=1)) * np.sqrt(values.shape[1])

    assert z_scores(cell).max() < 4.5
    assert z_scores(cell_of(bandwidth=1.03 * bandwidth, **settings)).max() > 8
    assert z_scores(cell_of(bandwidth=bandwidth, regression=WAVE, **settings)).max() > 8


def test_expectations__of_heads_that_coincide_and_are_narrow():
    """E K² of a narrow kernel is half its mass times 2^(1 − p/2) the density at its centre; heads agree to rounding."""
    cell = minimal_cell(arrangement="aligned", bandwidth=1e-6, n_heads=2, head_dim=2, queries=POINTS)
    known = expectations(cell)
    density = np.exp(-0.5 * (query_points(cell)[:, :2] ** 2).sum(axis=1)) / (2 * np.pi)
    np.testing.assert_allclose(np.exp(known.log_mass[:, 0]), 2 * np.pi * 1e-12 * density, rtol=1e-9)
    np.testing.assert_allclose(
        np.exp(known.log_product), np.repeat(np.pi * 1e-12 * density, 3).reshape(2, 3), rtol=1e-6
    )


# ---------------------------------------------------------------- runs


def measured(cell, n_batches=4):
    blocks = stack([simulate_batch([cell], batch)[0] for batch in range(n_batches)])
    assert not blocks.failed.size
    return blocks, performance(blocks, combine_heads(cell), cell.statistics)


def gaps_from_theory(cell, blocks, found):
    """|z| of the means of errors and products, and of all measures that theory predicts."""
    arguments = key_projections(cell), query_projections(cell), query_points(cell)
    exact = exact_moments(cell, *arguments)
    assert exact.reason == ""
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
    "distance": {"n_keys": 12, "bandwidth": 0.6, "query_projections": "same"},
    "few keys": {"n_keys": 2, "bandwidth": 0.8, "query_projections": "same"},
    "one key": {"n_keys": 1, "bandwidth": 0.8, "query_projections": "same"},
    "opposite queries, correlated keys": {
        "n_keys": 12, "query_projections": "opposite", "key_distribution": AUTOREGRESSIVE,
    },
    "dot product": {"n_keys": 12, "logits": "dot_product", "bandwidth": 1.2},
}  # fmt: skip


@pytest.mark.parametrize("name", CELLS)
def test_run__is_that_without_control_and_that_of_the_exact_theory(name, monkeypatch):
    settings = {"n_features": 3, "head_dim": 1, "noise_sd": 0.3, "noise": {"kind": "heteroscedastic"}}
    settings |= {"batch_size": 4096} | CELLS[name]
    cell, plain = cell_of(**settings, **CONTROL), cell_of(**settings)
    blocks, found = measured(cell)
    assert gaps_from_theory(cell, blocks, found).max() < 4.5
    _, other = measured(plain)
    for measure, share in found.contribution.items():
        if measure in ("mse", "ensemble_variance", "mean_variance", "mean_covariance", "squared_bias", "correlation"):
            apart = np.hypot(
                np.sqrt(((share - other.contribution[measure]) ** 2).sum()), found.remainder.get(measure, 0)
            )
            assert abs(found.estimate[measure] - other.estimate[measure]) < 4 * apart, measure
    if name == "one key":
        return
    # Negative controls: a centre that is off, and squares whose expectation is left out.
    right = control_variate._known(cell)
    for wrong in (right._replace(mean=right.mean + 0.1), right._replace(square=0 * right.square)):
        monkeypatch.setattr(control_variate, "_known", lambda _, wrong=wrong: wrong)
        assert gaps_from_theory(cell, *measured(cell)).max() > 8


def gain(measure="mse", **settings):
    """How many times fewer replicates the control variate needs."""
    settings = {"n_features": 8, "n_heads": 4, "arrangement": "rotated", "angle": 30.0, "batch_size": 512} | settings
    settings = {"query_projections": "same", "queries": {"kind": "gaussian", "count": 8, "scale": 0.8}} | settings
    (_, plain), (_, found) = measured(cell_of(**settings)), measured(cell_of(**settings, **CONTROL))
    return (plain.mcse[measure] / found.mcse[measure]) ** 2


@pytest.mark.parametrize(
    "measure",
    ["mse", *(pytest.param(name, marks=pytest.mark.rare) for name in ("ensemble_variance", "mean_covariance")),
     "squared_bias"],
)  # fmt: skip
def test_control__saves_replicates_under_a_signal(measure):
    assert gain(measure, n_keys=256, bandwidth=0.5, noise_sd=0.3) > 5
    assert gain(measure, n_keys=256, bandwidth=0.5, noise_sd=0.3, dtype="float32") > 5


def test_control__does_no_harm_where_kernels_catch_few_keys(monkeypatch):
    """Their sums have heavy tails.  Control: with factors of 1 it does."""
    few = {"n_keys": 30, "logits": "dot_product", "bandwidth": 1.0, "measure": "ensemble_variance"}
    assert gain(**few) > 1
    assert gain(n_keys=8, bandwidth=0.25) > 1
    damped = control_variate._known

    def undamped(cell):
        found = damped(cell)
        return found._replace(share=np.ones_like(found.share), square=found.square / found.share)

    monkeypatch.setattr(control_variate, "_known", undamped)
    assert gain(**few) < 0.7


@LOGITS
@pytest.mark.parametrize("point", [[30.0, -40.0], [1e9, -1e9]])
@pytest.mark.parametrize("bandwidth", [1e-9, 0.05, 1e9])
def test_far_queries__leave_every_replicate_defined(bandwidth, point, logits):
    for arrangement in ("aligned", "orthogonal"):
        settings = {"arrangement": arrangement, "bandwidth": bandwidth, "logits": logits, "regression": WAVE}
        settings |= {"queries": {"kind": "points", "points": [[0.0], point]}, "query_projections": "same"}
        _, found = measured(cell_of(**settings, **CONTROL), 1)
        _, plain = measured(cell_of(**settings), 1)
        assert np.isfinite(found.estimate["mse"])
        assert abs(found.estimate["mse"] - plain.estimate["mse"]) <= 6 * plain.mcse["mse"] + 1e-9


def test_function_without_signal__has_nothing_to_take_off():
    (with_control,), (without,) = (
        simulate_batch([cell_of(regression="zero", **settings)], 0) for settings in (CONTROL, {})
    )
    for one, other in zip(with_control, without, strict=True):
        np.testing.assert_array_equal(one, other)


def test_direct_mse__stays_the_plain_average():
    (with_control,), (without,) = (simulate_batch([cell_of(**settings)], 0) for settings in (CONTROL, {}))
    np.testing.assert_array_equal(with_control.statistic_sum, without.statistic_sum)
    assert not np.array_equal(with_control.product_sum, without.product_sum)


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({"noise_treatment": "drawn"}, 'noise_treatment = "integrated"'),
        ({"noise_treatment": "drawn", "learner": "random_forest"}, 'learner = "nadaraya_watson"'),
        ({"normaliser": "sparsemax"}, 'normaliser = "softmax"'),
        ({"transformation": {"kind": "merge", "stride": 2}}, 'transformation = "none"'),
        ({"combination": "product"}, "no product of kernels"),
        ({"key_scale": "normalised"}, 'key_scale = "raw"'),
        ({"arrangement": "haar_redrawn"}, "the same in all replicates"),
        ({"key_distribution": {"kind": "student_t", "df": 5}}, 'key_distribution = "gaussian"'),
        ({"key_distribution": {"kind": "autoregressive", "coefficient": 0.5}}, 'key_distribution = "gaussian"'),
        ({"regression": {"kind": "sum", "terms": ["linear", "bumps"]}}, "without bumps"),
        ({"n_features": 2**17, "n_keys": 2}, "needs an array"),
    ],
)
def test_cells_without_known_expectations__are_refused(settings, remedy):
    def told(**others):
        return [text for name, text in impossibilities(minimal_cell(**others)) if name == "control_variate"]

    settings = {"regression": "linear"} | settings
    assert any(remedy in text for text in told(**settings, **CONTROL))
    assert not told(**settings) and not told(regression=SUM, **CONTROL)


def test_refusal__is_one_line(tmp_path):
    text = edited(DESIGN, "batch_size = 32", 'batch_size = 32\ncontrol_variate = "linear_part"')
    text = edited(text, 'regression = { kind = "ridge" }', 'regression = "bumps"')
    with pytest.raises(UserError, match=r"control_variate.*without bumps.*\"none\"") as raised:
        load_design(write_design(tmp_path, text))
    assert len(str(raised.value).splitlines()) <= 2
